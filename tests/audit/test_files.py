"""Every SQL file: header, style, plan, columns, and what it says of an empty ledger."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from pipeline.audit.audits import bound, shown
from pipeline.audit.catalogue import find, listed, page
from pipeline.audit.query import connected
from pipeline.errors import UsageError
from pipeline.expressions.catalogue import METRICS
from pipeline.store import derived
from queries.files import ANSWERS, HeaderError, Kind, Query, parse, queries
from schemas.tables import PUBLISHED
from tests.audit.conftest import Ask

ALL = [query for kind in get_args(Kind) for query in queries(kind)]
ASKED = [query for kind in ANSWERS for query in queries(kind)]
ROOT = Path(__file__).parents[2]
COMMON = ["run", "split", "from_step", "to_step", "adapter", "limit"]
NAMED = [
    *("adapter_weighting", "metric_definitions", "identity_collisions", "fan_out", "sibling_disagreement"),
    *("mainstream_risk", "row_against_rollout", "constant_groups", "unscored", "group_recovery"),
    *("token_denominators", "gaps", "metric_history", "registrations"),
]
KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        ALL AND AS ASC BETWEEN BIGINT BOOLEAN BY CASE CAST CREATE CROSS DESC DISTINCT DOUBLE ELSE END EXISTS FILTER FOR
        FROM FULL GROUP HAVING HUGEINT IN INCLUDE INNER INTEGER IS JOIN LATERAL LEFT LIMIT MACRO MATERIALIZED NOT NULL
        NULLS ON OR ORDER OUTER OVER PARTITION QUALIFY SELECT SEMI SETS THEN UNION UNPIVOT USING VALUES VARCHAR WHEN
        WHERE WINDOW WITH
        """,
    )
)
EITHER = {"FIRST", "LAST"}
"""Keywords after NULLS, and names of columns."""


def label(query: Query) -> str:
    return f"{query.kind}/{query.name}"


def source(query: Query) -> str:
    return (files("queries") / query.kind / f"{query.name}.sql").read_text(encoding="utf-8")


# --- headers ----------------------------------------------------------------------------------------------------------

HEADER = """\
-- What is it?
--
-- grain: run
-- severity: info
-- read: as it
--     stands
-- order: by run
-- parameters:
--     limit BIGINT = 5: rows at most
--     run VARCHAR: only
--         this run
-- columns:
--     run: training run

SELECT run FROM batches LIMIT $limit;
"""


def test_a_header_is_read() -> None:
    query = parse("audits", "it", HEADER)

    assert (query.question, query.grain, query.read) == ("What is it?", ("run",), "as it stands")
    assert [(p.name, p.type, p.default, p.text) for p in query.parameters] == [
        ("limit", "BIGINT", 5, "rows at most"),
        ("run", "VARCHAR", None, "only this run"),
    ]
    assert query.statement == "SELECT run FROM batches LIMIT $limit"


@pytest.mark.parametrize(
    ("line", "lacking"),
    [
        ("-- What is it?\n", "question"),
        ("-- grain: run\n", "grain"),
        ("-- read: as it\n--     stands\n", "read"),
        ("-- severity: info\n", "severity"),
        ("-- order: by run\n", "order"),
        ("--     run: training run\n", "columns"),
        ("SELECT run FROM batches LIMIT $limit;\n", "statement"),
    ],
)
def test_an_incomplete_header_is_an_error(line: str, lacking: str) -> None:
    with pytest.raises(HeaderError, match=lacking):
        parse("audits", "it", HEADER.replace(line, "--\n" if lacking == "question" else ""))


def test_a_grain_that_is_no_column_and_an_unknown_type_are_errors() -> None:
    with pytest.raises(HeaderError, match="grain among the columns"):
        parse("audits", "it", HEADER.replace("-- grain: run", "-- grain: step"))
    with pytest.raises(HeaderError, match="not a parameter"):
        parse("audits", "it", HEADER.replace("limit BIGINT", "limit NUMBER"))


@pytest.mark.parametrize("query", ASKED, ids=label)
def test_parameters_are_the_common_ones_and_all_are_used(query: Query) -> None:
    assert [parameter.name for parameter in query.parameters][:6] == COMMON
    assert set(re.findall(r"\$(\w+)", query.statement)) == {parameter.name for parameter in query.parameters}


def test_every_audit_that_was_asked_for_is_there_and_no_name_means_two_things() -> None:
    assert set(NAMED) <= {query.name for query in queries("audits")}
    assert len({query.name for query in ASKED}) == len(ASKED)
    relations = {table.relation for table in PUBLISHED} | {"ledger_info"}
    assert not relations & {view.name for view in derived.views()}


def test_an_unknown_audit_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean adapter_weighting"):
        find("adapter_weigthing")


# --- style ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ALL, ids=label)
def test_style(query: Query) -> None:
    assert list(style_faults(source(query))) == []


def style_faults(text: str) -> list[str]:
    """One style: upper-case keywords, lower-case names, indentation by four, at most 120 columns, a final newline."""
    known = KEYWORDS | EITHER
    faults = [] if text.endswith(";\n") else ["does not end with a semicolon and one newline"]
    for number, line in enumerate(text.splitlines(), start=1):
        code = re.sub(r"'[^']*'|--.*|\$\w+", "''", line)
        indent = len(line) - len(line.lstrip(" "))
        words = re.findall(r"[A-Za-z_]\w*", code)
        wrong = [
            *(f"{word} is a keyword" for word in words if word.upper() in KEYWORDS and word not in KEYWORDS),
            *(f"{word} is no keyword" for word in words if word.upper() not in known and word != word.lower()),
            *(["longer than 120"] if len(line) > 120 else []),
            *(["spaces at the end"] if line != line.rstrip() else []),
            *(["a tab"] if "\t" in line else []),
            *(["not indented by four"] if code.strip("' ") and indent % 4 else []),
        ]
        faults += [f"line {number}: {fault}" for fault in wrong]
    return faults


@pytest.mark.parametrize(
    "text",
    ["SELECT 1", "select 1;\n", "SELECT Count(*);\n", "SELECT\n  1;\n", "SELECT 1; \n", f"SELECT {'1' * 120};\n"],
)
def test_other_styles_are_faults(text: str) -> None:
    assert style_faults(text)


# --- plans, columns, empty ledgers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ASKED, ids=label)
def test_an_empty_ledger_gives_the_documented_columns_and_no_row(query: Query, asking: dict[str, Ask]) -> None:
    empty, full = asking["empty"](query.name), asking["fanout"](query.name)

    assert empty.columns == [column.name for column in query.columns]
    assert empty.height == 0
    assert full.schema == empty.schema
    plain = (pl.String(), pl.Int64(), pl.Float64(), pl.Boolean())
    assert set(full.dtypes) <= {*plain, *(pl.List(dtype) for dtype in plain)}


@pytest.mark.parametrize("query", ASKED, ids=label)
def test_duckdb_plans_the_file_as_shown_with_and_without_parameters(query: Query, empty_ledger: Path) -> None:
    given = {"run": "it's", "split": "train", "from_step": 0, "to_step": 9, "adapter": "north", "limit": 3}
    with connected(empty_ledger) as connection:
        for values in ({}, given):
            assert connection.execute(f"EXPLAIN {shown(query, bound(query, values))}").fetchall()


@pytest.mark.parametrize("query", ASKED, ids=label)
def test_the_grain_identifies_a_row(query: Query, asking: dict[str, Ask]) -> None:
    for ask in asking.values():
        assert ask(query.name).select(query.grain).is_unique().all()


@pytest.mark.parametrize("query", ASKED, ids=label)
def test_a_limit_gives_the_first_rows_of_the_whole_answer(query: Query, asking: dict[str, Ask]) -> None:
    whole = asking["fanout"](query.name, limit=None)

    for limit in (0, 1, 2):
        assert asking["fanout"](query.name, limit=limit).equals(whole.head(limit))


@pytest.mark.parametrize("query", ASKED, ids=label)
def test_restrictions_leave_rows_that_fit_them(query: Query, asking: dict[str, Ask]) -> None:
    given = {"run": "miles_multilora_fanout_run", "split": "train", "from_step": 1, "to_step": 1, "adapter": "south"}
    answer = asking["fanout"](query.name, **given, limit=None)

    if "step" in answer.columns:
        assert set(answer["step"]) <= {1}
    if "adapter_name" in query.grain and query.name != "token_denominators":
        assert set(answer["adapter_name"]) <= {"south"}
    assert asking["fanout"](query.name, run="another").height == 0
    assert asking["fanout"](query.name, split="eval").height == 0


def test_views_have_the_documented_columns_each_with_its_comment(empty_ledger: Path) -> None:
    with connected(empty_ledger) as connection:
        found = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
        summaries = dict(
            connection.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall()
        )
    views = derived.views()
    documented = [(view.name, column.name, column.text) for view in views for column in view.columns]
    names = {view.name for view in views}
    assert [row for row in found if row[0] in names] == sorted(documented)
    assert all(comment for _, _, comment in found)
    assert {view.name: view.question for view in views}.items() <= summaries.items()
    assert all(summaries.values())


def test_every_metric_of_the_accounting_has_a_file_and_a_column_in_metrics_wide() -> None:
    names = {metric.name for metric in METRICS if metric.family == "accounting"}
    assert names <= {query.name for query in queries("metrics")}
    (wide,) = (view for view in queries("views") if view.name == "metrics_wide")
    columns = {column.name for column in wide.columns}
    assert columns - set(wide.grain) == names | {f"{name}_count" for name in names}


# --- catalogue --------------------------------------------------------------------------------------------------------


def test_the_catalogue_is_the_one_that_is_made() -> None:
    assert (ROOT / "queries" / "README.md").read_text(encoding="utf-8") == page()


def test_the_list_has_every_audit_and_check_with_its_question() -> None:
    rows = listed().rows(named=True)
    assert [(row["name"], row["question"]) for row in rows] == [(query.name, query.question) for query in ASKED]
