"""`rollout-ledger audit` and `sql`: answers, checks, files, streams, exit codes; and the functions of these names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import pipeline
from pipeline.audit.audits import check
from pipeline.cli import watchdog
from pipeline.cli.app import run
from pipeline.errors import UsageError
from queries.files import queries
from tests.audit.ledgers import published
from tests.worked_cases import TWO_ADAPTERS, train

CHECKS = [query.name for query in queries("checks")]


@pytest.fixture
def doctored(tmp_path: Path) -> Path:
    """A ledger whose published figures are not what its samples say."""
    ledger = published(tmp_path / "doctored", [train(*TWO_ADAPTERS)])
    rewrite(ledger, "metrics", pl.when(pl.col("metric") == "episode_raw_reward").then(0.75).otherwise("value"), "value")
    rewrite(ledger, "adapters", pl.col("weight_scoped") * 1.5, "weight_scoped")
    return ledger


def rewrite(ledger: Path, relation: str, expression: pl.Expr, column: str) -> None:
    (path,) = (ledger / "data" / "segments").glob(f"*/{relation}.parquet")
    path.chmod(0o644)
    pl.read_parquet(path).with_columns(expression.alias(column)).write_parquet(path)


# --- lists and answers ------------------------------------------------------------------------------------------------


def test_without_a_name_it_lists_audits_and_questions_also_without_a_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--format", "json"]) == 0

    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed["adapter_weighting"]["question"].endswith("?")
    assert listed["published_metrics"]["kind"] == "check"
    assert run(["audit"]) == 0
    assert "adapter_weighting" in capsys.readouterr().out


def test_an_answer_is_on_stdout_plain_and_alone(cases_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "identity_collisions", "--ledger", str(cases_ledger), "--run", "two"]) == 0

    told = capsys.readouterr()
    header, rule, row = told.out.splitlines()
    assert header.split()[:4] == ["run", "split", "step", "dropped"]
    assert set(rule) == {"-", " "}
    assert row.split()[:6] == ["two", "train", "0", "adapter", "1", "1"]
    assert told.err == ""


def test_restrictions_parameters_and_formats(fanout_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--split", "train", "--from", "1", "--to", "1", "--adapter", "south"]
    assert run(["audit", "metric_history", "--ledger", str(fanout_ledger), "--format", "csv", *where]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2

    given = ["--param", "metric=row_mean_raw_reward", "--param", "from_step=2"]
    assert run(["audit", "metric_history", "--ledger", str(fanout_ledger), "--format", "json", *given]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {(row["metric"], row["step"]) for row in answer} == {("row_mean_raw_reward", 2)}


def test_a_limit_says_that_there_is_more(fanout_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["audit", "adapter_weighting", "--ledger", str(fanout_ledger), "--format", "json"]
    assert run([*ask, "--limit", "2"]) == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == 2
    assert "the first 2 rows" in told.err
    for enough in ("7", "0"):
        assert run([*ask, "--limit", enough]) == 0
        told = capsys.readouterr()
        assert len(json.loads(told.out)) == 7
        assert told.err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["adapter_weigthing"], "did you mean adapter_weighting?"),
        (["gaps", "fan_out"], "one audit at a time"),
        (["gaps", "--param", "metric=x"], "gaps has no parameter metric"),
        (["gaps", "--param", "from_step=x"], "expected BIGINT"),
        (["gaps", "--param", "x"], "expected NAME=VALUE"),
        (["gaps", "--check"], "no check gaps"),
    ],
)
def test_wrong_calls_say_what_to_do(
    arguments: list[str], said: str, cases_ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", *arguments, "--ledger", str(cases_ledger)]) == 2

    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


def test_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "gaps"]) == 2
    assert "give --ledger" in capsys.readouterr().err
    assert run(["audit", "gaps", "--ledger", str(tmp_path)]) == 3
    assert "no ledger there" in capsys.readouterr().err


def test_shown_sql_runs_in_any_client(cases_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import duckdb

    assert run(["audit", "adapter_weighting", "--show", "--run", "two", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert "$" not in shown

    with duckdb.connect(str(cases_ledger / "ledger.duckdb"), read_only=True) as connection:
        answer = pl.DataFrame(connection.sql(shown.rstrip().removesuffix(";")))
    assert answer.equals(pipeline.audit("adapter_weighting", cases_ledger, run="two", limit=1))


# --- checks -----------------------------------------------------------------------------------------------------------


def test_checks_of_a_right_ledger(cases_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--check", "--ledger", str(cases_ledger)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"{len(CHECKS)} checks: no offending row\n"

    assert run(["audit", "--check", *CHECKS[:2], "--ledger", str(cases_ledger), "--format", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == []
    assert told.err == "2 checks: no offending row\n"


def test_checks_of_a_doctored_ledger_exit_with_4_and_the_rows(
    doctored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "--check", "--ledger", str(doctored), "--format", "json"]) == 4

    told = capsys.readouterr()
    offending = json.loads(told.out)
    metrics = [row for row in offending if row["check"] == "published_metrics"]
    weights = [row for row in offending if row["check"] == "weights_sum_to_one"]
    assert len(metrics) + len(weights) == len(offending)
    assert {(row["scope"], row["published"], row["recomputed"]) for row in metrics} == {
        ("batch", 0.75, 0.5),
        ("adapter", 0.75, 1.0),
        ("adapter", 0.75, 0.0),
    }
    assert [(row["weight"], row["total"]) for row in weights] == [("weight_scoped", 1.5)]
    assert "4 offending rows" in told.err


def test_one_check_of_several(doctored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "advantages_sum_to_zero", "--check", "--ledger", str(doctored)]) == 0
    assert capsys.readouterr().out == ""
    assert run(["audit", "--check", "weights_sum_to_one", "--ledger", str(doctored)]) == 4
    assert capsys.readouterr().out.splitlines()[2].split()[0] == "weights_sum_to_one"
    assert run(["audit", "weights_sum_to_one", "--ledger", str(doctored)]) == 0


@pytest.mark.parametrize(
    ("relation", "column", "expression", "name"),
    [
        ("samples", "advantage", pl.lit(1.0), "siblings_share_advantage"),
        ("rollouts", "advantage", pl.lit(1.0), "advantages_sum_to_zero"),
        ("rollouts", "samples", pl.col("samples") + 1, "samples_in_one_rollout"),
        ("samples", "is_mainstream", ~pl.col("is_mainstream"), "samples_in_one_rollout"),
        ("samples", "prompt_group", pl.col("prompt_group") + 1, "samples_in_one_rollout"),
        ("prompt_groups", "samples", pl.col("samples") * 2, "counts_agree"),
        ("samples", "row", pl.col("row") // 2, "counts_agree"),
        ("samples", "raw_reward", pl.col("raw_reward") + 1e-7, "published_metrics"),
        ("metrics", "count", pl.col("count") + 1, "published_metrics"),
        ("metrics", "metric", pl.lit("new_metric"), "published_metrics"),
        ("adapters", "weight_macro", pl.lit(None, pl.Float64), "weights_sum_to_one"),
    ],
)
def test_every_check_finds_what_it_is_for(
    relation: str, column: str, expression: pl.Expr, name: str, tmp_path: Path
) -> None:
    ledger = published(tmp_path / "ledger", [train(*TWO_ADAPTERS)])
    assert check([name], ledger).height == 0

    rewrite(ledger, relation, expression, column)
    assert check([name], ledger).height > 0


# --- files, streams, time ---------------------------------------------------------------------------------------------


def test_an_answer_can_go_to_a_file_in_the_format_of_its_name(
    cases_ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ["audit", "identity_collisions", "--ledger", str(cases_ledger), "--run", "two"]
    for ending, start in ((".json", "[\n {"), (".csv", "run,split"), (".md", "| run |"), (".txt", "run  ")):
        file = tmp_path / f"answer{ending}"
        assert run([*ask, "--output", str(file)]) == 0
        assert file.read_text().startswith(start)
        assert file.read_text().endswith("\n")
    file = tmp_path / "answer.txt"
    assert run(["sql", "SELECT 1 AS one", "--ledger", str(cases_ledger), "--output", str(file), "--format", "csv"]) == 0
    assert file.read_text() == "one\n1\n"
    assert capsys.readouterr() == ("", "")

    assert run([*ask, "--output", str(tmp_path / "no" / "such.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_sql_takes_no_more_rows_than_asked_for(cases_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["sql", "SELECT * FROM range(5)", "--ledger", str(cases_ledger), "--format", "csv"]
    assert run([*ask, "--limit", "2"]) == 0
    assert capsys.readouterr() == ("range\n0\n1\n", "the first 2 rows; there are more\n")
    assert run([*ask, "--limit", "5"]) == 0
    assert capsys.readouterr().err == ""


def test_piped_it_is_plain_and_needs_no_terminal(cases_ledger: Path) -> None:
    command = [sys.executable, "-m", "pipeline", "audit", "adapter_weighting", "--ledger", str(cases_ledger)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "40"})

    widths = {len(line) for line in done.stdout.splitlines()[:2]}
    assert max(widths) > 200
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_a_statement_that_hears_no_interrupt_ends_the_command(cases_ledger: Path) -> None:
    statement = (
        "SELECT length(repeat('x', 1000000000)) + length(repeat('y', 1000000000)) AS n FROM range(40) ORDER BY n"
    )
    command = [sys.executable, "-m", "pipeline", "sql", statement, "--ledger", str(cases_ledger), "--timeout", "0.1"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "stopped after 0.1 s" in done.stderr
    assert time.monotonic() - began < watchdog.GRACE + 20


# --- the functions ----------------------------------------------------------------------------------------------------


def test_the_functions_give_polars_frames(cases_ledger: Path) -> None:
    answer = pipeline.audit("adapter_weighting", ledger=cases_ledger, run="two")
    assert isinstance(answer, pl.DataFrame)
    assert answer["weight_scoped"].to_list() == [0.5, 0.5]
    assert pipeline.sql("SELECT count(*) AS n FROM batches", ledger=cases_ledger).item() == 3
    assert pipeline.check([], cases_ledger).height == 0
    with pytest.raises(UsageError, match="has no parameter steps"):
        pipeline.audit("gaps", cases_ledger, steps=3)
    with pytest.raises(UsageError, match="expected BIGINT"):
        pipeline.audit("gaps", cases_ledger, from_step="three")


IMPORTS = [
    "import pipeline",
    "from pipeline import audit",
    "from pipeline.audit.query import sql; sql('SELECT 1', ledger); import pipeline",
    "import pipeline.audit.guard",
    "import pipeline; pipeline.sql('SELECT 1', ledger); import pipeline.audit.audits",
]


@pytest.mark.parametrize("program", IMPORTS)
def test_audit_is_a_room_and_a_verb_in_whatever_order_they_are_imported(program: str, cases_ledger: Path) -> None:
    asked = "audit('gaps', ledger)" if program.startswith("from pipeline import") else "pipeline.audit('gaps', ledger)"
    subprocess.run([sys.executable, "-c", f"ledger = {str(cases_ledger)!r}; {program}; {asked}"], check=True)


@pytest.mark.parametrize("move", [shutil.copytree, shutil.move], ids=["copied", "moved"])
def test_a_copied_or_moved_ledger_works_at_once(
    move: object, cases_ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second's place"
    shutil.copytree(cases_ledger, first)
    assert callable(move)
    move(first, second)
    shutil.rmtree(first, ignore_errors=True)

    assert run(["audit", "--check", "--ledger", str(second)]) == 0
    assert run(["audit", "adapter_weighting", "--ledger", str(second), "--format", "csv"]) == 0
    assert run(["sql", "SELECT count(*) AS n FROM samples", "--ledger", str(second), "--format", "csv"]) == 0
    assert capsys.readouterr().out.endswith("n\n12\n")
