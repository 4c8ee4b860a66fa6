"""Whatever the statement: nothing is written, no foreign file is read, no setting changes, and it stops in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import duckdb
import pytest

import pipeline
from pipeline.audit import query
from pipeline.audit.guard import checked
from pipeline.audit.query import connected, fetched
from pipeline.errors import NoInputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALLOWED = [
    "SELECT count(*) FROM samples",
    "FROM samples LIMIT 1",
    "TABLE batches",
    "VALUES (1), (2)",
    "WITH s AS (SELECT * FROM main.samples) SELECT s.step FROM s JOIN memory.main.batches USING (run, split, step)",
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n",
    "SELECT * FROM range(3), generate_series(1, 2), unnest([1, 2])",
    "SELECT unnest(list_transform([1, 2], lambda x: x + 1))",
    "DESCRIBE samples",
    "SUMMARIZE batches",
    "SHOW TABLES",
    "EXPLAIN SELECT 1",
    "explain analyze SELECT count(*) FROM samples",
    "SELECT * FROM information_schema.columns",
    "SELECT column_name, comment FROM duckdb_columns() WHERE NOT internal",
    "PIVOT batches ON split IN ('train') USING sum(samples)",
    "SELECT * FROM metrics_wide, metric_definitions LIMIT 1",
    "SELECT agrees(1.0, 1.0, 0.0)",
    "SELECT * FROM samples TABLESAMPLE 10 PERCENT",
    "SELECT 1; -- one statement, and a remark",
    "/* ä; */ SELECT 'ö;' ; /* ü */ ; -- ;",
    "SELECT step, step FROM batches",
]
REFUSED = [
    "",
    "not sql",
    "SELECT 1; SELECT 2",
    "COPY samples TO '{dir}/out.csv'",
    "COPY (SELECT 1) TO '{dir}/out.csv'",
    "COPY samples TO '{data}/out.parquet' (FORMAT parquet)",
    "EXPORT DATABASE '{data}/export'",
    "CREATE TABLE t AS SELECT 1",
    "CREATE OR REPLACE VIEW samples AS SELECT 1",
    "INSERT INTO samples SELECT * FROM samples",
    "DELETE FROM samples",
    "DROP VIEW samples",
    "ATTACH '{dir}/other.duckdb'",
    "ATTACH '{ledger}/ledger.duckdb' AS again",
    "INSTALL httpfs",
    "LOAD json",
    "SET threads = 1",
    "SET lock_configuration = false",
    "RESET enable_external_access",
    "SET VARIABLE x = 1",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CALL enable_logging()",
    "CREATE SECRET (TYPE s3)",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "BEGIN",
    "VACUUM",
    "CHECKPOINT",
    "USE memory",
    "EXPLAIN COPY samples TO '{dir}/out.csv'",
    "EXPLAIN ANALYZE COPY samples TO '{dir}/out.csv'",
    "EXPLAIN (FORMAT json) SELECT * FROM read_text('/etc/passwd')",
    "EXPLAIN ANALYZE SELECT * FROM read_text('/etc/passwd')",
    "PIVOT batches ON split USING sum(samples)",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM '{dir}/secret.csv'",
    'SELECT * FROM "{dir}/secret.csv"',
    "SELECT * FROM '{data}/**/*.parquet'",
    "FROM read_parquet('{data}/**/*.parquet')",
    "FROM parquet_scan('{data}/**/*.parquet')",
    "FROM parquet_metadata('{data}/**/*.parquet')",
    "FROM glob('{data}/**')",
    "FROM glob('/etc/*')",
    "FROM read_text('/etc/passwd')",
    "FROM READ_TEXT('/etc/passwd')",
    "FROM main.read_text('/etc/passwd')",
    "FROM system.main.read_text('/etc/passwd')",
    "FROM read_blob('/etc/passwd')",
    "FROM read_csv('{dir}/secret.csv')",
    "FROM sniff_csv('{dir}/secret.csv')",
    "FROM read_json('{dir}/secret.csv')",
    "FROM read_duckdb('{ledger}/ledger.duckdb')",
    "FROM query('SELECT 1')",
    "FROM query_table('samples')",
    "FROM query_table(['{dir}/secret.csv'])",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "FROM histogram_values('{dir}/secret.csv', secret)",
    "FROM pragma_table_info('{dir}/secret.csv')",
    "FROM duckdb_settings()",
    "FROM duckdb_secrets()",
    "FROM enable_logging('QueryLog', storage = 'file', storage_path = '{dir}/log')",
    "FROM enable_profiling('json', '{dir}/profile')",
    "FROM checkpoint()",
    "FROM arrow_scan(1, 2, 3)",
    "FROM add_grammar_extension('x')",
    "SELECT getenv('HOME')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM samples WHERE EXISTS (FROM '{dir}/secret.csv')",
    "SELECT * FROM samples, LATERAL (SELECT * FROM read_text('/etc/passwd'))",
    "WITH s AS (FROM read_text('/etc/passwd')) SELECT * FROM s",
    "WITH s AS MATERIALIZED (FROM '{dir}/secret.csv') SELECT * FROM s",
    "SELECT * FROM (WITH \"{dir}/secret.csv\" AS (SELECT 1) SELECT 1), '{dir}/secret.csv'",
    "SELECT 1 UNION ALL SELECT content FROM read_text('/etc/passwd')",
    "SELECT 1 ORDER BY (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT list_transform([1], lambda x: (SELECT content FROM read_text('/etc/passwd')))",
    "DESCRIBE SELECT * FROM read_text('/etc/passwd')",
    "DESCRIBE '{dir}/secret.csv'",
    "SUMMARIZE '{dir}/secret.csv'",
    "SELECT * FROM (SUMMARIZE '{dir}/secret.csv')",
    "SELECT * FROM (PIVOT '{dir}/secret.csv' ON secret IN ('x') USING count(*))",
    "SELECT * FROM ledger",
    "SELECT * FROM layout",
    "SELECT * FROM pg_catalog.pg_settings",
]


@pytest.fixture
def places(cases_ledger: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "secret.csv").write_text("secret\nhidden\n")
    return {"dir": str(tmp_path), "ledger": str(cases_ledger), "data": str((cases_ledger / "data").resolve())}


@pytest.fixture(scope="module")
def locked(cases_ledger: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with connected(cases_ledger) as connection:
        yield connection


def tree(*roots: Path) -> set[tuple[str, int, int]]:
    paths = [path for root in roots for path in root.rglob("*")]
    return {(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.is_file()}


@pytest.mark.parametrize("statement", ALLOWED)
def test_what_reads_the_ledger_is_answered(statement: str, locked: duckdb.DuckDBPyConnection) -> None:
    assert fetched(locked, checked(locked, statement)).height > 0 or "TABLESAMPLE" in statement


def test_what_does_anything_else_is_refused_and_leaves_no_trace(
    places: dict[str, str],
    locked: duckdb.DuckDBPyConnection,
    cases_ledger: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = tree(cases_ledger, tmp_path)
    for statement in REFUSED:
        # What `pipeline.sql` does, over one connection.
        with pytest.raises(UsageError) as refusal:
            fetched(locked, checked(locked, statement.format(**places)))
        assert "hidden" not in str(refusal.value), statement
        assert "root:" not in str(refusal.value), statement
    assert tree(cases_ledger, tmp_path) == before


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '{dir}/secret.csv'",
        "COPY (SELECT 1) TO '{dir}/out.csv'",
        "ATTACH '{dir}/other.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "SET temp_directory = '{dir}'",
        "RESET lock_configuration",
    ],
)
def test_the_connection_itself_is_locked_too(
    statement: str, places: dict[str, str], locked: duckdb.DuckDBPyConnection
) -> None:
    with pytest.raises(duckdb.Error):
        locked.execute(statement.format(**places)).fetchall()


def test_python_variables_are_no_tables(cases_ledger: Path) -> None:
    import polars as pl

    stolen = pl.DataFrame({"a": [1]})
    with pytest.raises(UsageError, match="no relation stolen"):
        pipeline.sql("SELECT * FROM stolen", cases_ledger)
    with connected(cases_ledger) as connection, pytest.raises(duckdb.Error):
        connection.execute("SELECT * FROM stolen")
    assert stolen.height == 1


def test_a_deep_statement_is_checked_like_a_shallow_one(cases_ledger: Path) -> None:
    deep = "SELECT 1" + " + 1" * 200 + " FROM (" * 60 + "SELECT * FROM read_text('/etc/passwd')" + ")" * 60
    with pytest.raises(UsageError):
        pipeline.sql(deep, cases_ledger)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM range(1000000000000)",
        "SELECT * FROM range(1000000000000)",
        "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    ],
)
def test_a_statement_stops_at_its_timeout(statement: str, cases_ledger: Path) -> None:
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"stopped after 0.3 s; narrow it, or raise --timeout"):
        pipeline.sql(statement, cases_ledger, timeout=0.3)
    assert time.monotonic() - began < 5


def test_an_answer_that_does_not_fit_is_refused(cases_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "MAX_CELLS", 10)

    assert pipeline.sql("SELECT range AS a, range AS b FROM range(5)", cases_ledger).height == 5
    with pytest.raises(UsageError, match="more than 5 rows of 2 columns"):
        pipeline.sql("SELECT range AS a, range AS b FROM range(6)", cases_ledger)
    assert pipeline.sql("SELECT * FROM range(1000000)", cases_ledger, limit=3)["range"].to_list() == [0, 1, 2]


def test_a_wrong_statement_says_what_is_wrong_with_it(cases_ledger: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rewards"):
        pipeline.sql("SELECT rewards FROM samples", cases_ledger)
    with pytest.raises(UsageError, match="there is no relation sample; there are"):
        pipeline.sql("SELECT * FROM sample", cases_ledger)
    with pytest.raises(NoInputError, match="no ledger there"):
        pipeline.sql("SELECT 1", tmp_path / "nowhere")
