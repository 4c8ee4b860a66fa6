"""What a recompute tells: exit codes, one line, a summary file, metrics for Prometheus, events, the ledger's status."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli.app import run
from pipeline.cli.recompute import since_ns
from pipeline.errors import Exit, UsageError
from pipeline.store import durable, lock
from pipeline.store.layout import Layout
from tests.unattended.ledgers import ask, rewards, write


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Two good steps, a broken one, one being written, one that is gone: all that can be told."""
    folder = tmp_path / "dumps"
    for step in range(3):
        write(folder / f"{step}.jsonl", [1, 0])
    call(tmp_path)
    write(folder / "0.jsonl", [1, 1], age=900)
    write(folder / "1.jsonl", [1], response_length=-1, age=900)
    (folder / "2.jsonl").unlink()
    write(folder / "3.jsonl", [1, 0, 0])
    write(folder / "4.jsonl", [1], age=1)
    return folder


def call(tmp_path: Path, *options: object) -> int:
    return run(["recompute", str(tmp_path / "dumps"), "--ledger", str(tmp_path / "l"), *map(str, options)])


def gauges(path: Path) -> dict[str, float]:
    lines = path.read_text().splitlines()
    for line in lines:
        assert re.fullmatch(r'# (HELP|TYPE) rollout_ledger_\w+ .+|rollout_ledger_\w+(\{run="[^"]*"\})? [-+.e\d]+', line)
    values = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name.removeprefix("rollout_ledger_"): float(value) for name, value in values}


def test_one_line_says_what_was_done(dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert call(tmp_path) == Exit.REFUSED
    told = capsys.readouterr()
    assert told.out == ""
    line = next(line for line in told.err.splitlines() if "batches" in line)
    assert line.startswith("2 batches, 5 samples, 5 rollouts; 1 refused, 1 pending, 1 vanished, 1 errors, 1 warnings; ")
    assert line.endswith(str(tmp_path / "l" / "ledger.duckdb"))
    assert "[replaced_batch]" in told.err

    assert call(tmp_path) == Exit.DONE
    assert capsys.readouterr().err.startswith("nothing to do; 0 refused, 1 pending, 3 unchanged;")


def test_the_summary_file(dumps: Path, tmp_path: Path) -> None:
    call(tmp_path, "--summary", tmp_path / "summary.json")

    told = json.loads((tmp_path / "summary.json").read_text())
    seconds = told.pop("seconds")
    assert 0 < seconds < 60
    assert told == {
        "ledger": str(tmp_path / "l"),
        "exit_code": 6,
        "error": None,
        "generation": 2,
        "published": True,
        "batches": 2,
        "samples": 5,
        "rollouts": 5,
        "refused": 1,
        "pending": 1,
        "unchanged": 0,
        "vanished": 1,
        "errors": 1,
        "warnings": 1,
        "failed_runs": [],
        "reasons": {"changed": 2, "new": 1},
        "stopped": False,
    }
    assert {path.name for path in tmp_path.iterdir()} == {"dumps", "l", "summary.json"}


def test_metrics_for_prometheus(dumps: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.prom"
    start = time.time()
    call(tmp_path, "--metrics-textfile", path)

    found = gauges(path)
    for name in ("last_run_timestamp_seconds", "last_success_timestamp_seconds"):
        assert start <= found.pop(name) <= time.time()
    assert 0 < found.pop("last_run_duration_seconds") < 60
    assert found == {
        "last_run_exit_code": 6,
        "last_run_batches": 2,
        "last_run_samples": 5,
        "last_run_refused": 1,
        "last_run_pending": 1,
        "generation": 2,
        'last_step{run="dumps"}': 3,
        'pending{run="dumps"}': 1,
        'refused{run="dumps"}': 1,
        'stale{run="dumps"}': 1,
        'vanished{run="dumps"}': 1,
        'replaced{run="dumps"}': 1,
    }
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_events_are_one_json_object_a_line(dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    call(tmp_path, "--log-format", "json")

    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(event["event"], event["level"]) for event in events] == [
        ("finding", "error"),
        ("finding", "warning"),
        ("recomputed", "info"),
    ]
    assert {"timestamp", "code", "message", "source", "run", "split", "step", "row", "field"} <= events[0].keys()
    assert (events[-1]["batches"], events[-1]["exit_code"]) == (2, 6)


def test_status_has_the_same_facts(dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(tmp_path)
    capsys.readouterr()
    assert run(["status", "--ledger", str(tmp_path / "l"), "--format", "json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    assert row.pop("published_at").startswith("20")
    assert row.pop("storage_bytes") == sum(
        path.stat().st_size for path in (tmp_path / "l").rglob("*") if path.is_file()
    )
    assert row == {
        "run": "dumps",
        "train_batches": 4,
        "eval_batches": 0,
        "samples": 9,
        "last_step": 3,
        "stale": 1,
        "refused": 1,
        "pending": 1,
        "vanished": 1,
        "replaced": 1,
        "warnings": 1,
    }


def test_the_plan_on_stdout(dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    before = sorted((tmp_path / "l").rglob("*"))

    assert call(tmp_path, "--dry-run") == 0

    told = capsys.readouterr()
    rows = [re.split(r"  +", line.strip()) for line in told.out.splitlines()[2:]]
    assert [(row[-1].rsplit("/", 1)[-1], row[-3], row[-2]) for row in rows] == [
        ("0.jsonl", "read", "changed"),
        ("1.jsonl", "read", "changed"),
        ("3.jsonl", "read", "new"),
        ("4.jsonl", "pending", "new, changed less than 10 s ago"),
        ("2.jsonl", "keep", "vanished"),
    ]
    assert sorted((tmp_path / "l").rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        (("--from", 2), [2, 3, 4]),
        (("--to", 1), [0, 1]),
        (("--from", 1, "--to", 1), [1]),
        (("--split", "eval"), []),
        (("--since", "30m"), [4]),
        (("--run", "other"), [0, 1, 2, 3, 4]),
    ],
)
def test_options_that_restrict(options: tuple[object, ...], steps: list[int], tmp_path: Path) -> None:
    for step in range(5):
        write(tmp_path / "dumps" / f"{step}.jsonl", [1], age=3_600 if step < 4 else 600)
    write(tmp_path / "dumps" / "eval_0.jsonl", [1])

    assert call(tmp_path, *options) == Exit.DONE
    assert list(rewards(tmp_path / "l")) == steps
    assert call(tmp_path, *options, "--force", "--verify") == Exit.DONE
    assert ask(tmp_path / "l", "SELECT generation FROM ledger_info") == [(2,)]
    if "other" in options:
        assert ask(tmp_path / "l", "SELECT DISTINCT run FROM batches") == [("other",)]


# --- when it fails ---


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(durable, "sync_file", fail)


def test_failures_are_told_to_files_and_machines_too(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ("--summary", tmp_path / "summary.json", "--metrics-textfile", tmp_path / "ledger.prom")
    call(tmp_path, *files)
    succeeded = gauges(tmp_path / "ledger.prom")["last_success_timestamp_seconds"]
    write(dumps / "5.jsonl", [1])
    fails(monkeypatch, OSError(28, "No space left on device"))
    capsys.readouterr()

    assert call(tmp_path, *files, "--log-format", "json") == Exit.BUG

    (event,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (event["event"], event["level"], event["exit_code"]) == ("failed", "error", 1)
    assert "No space left" in event["error"]
    assert "traceback" not in event
    assert "No space left" in json.loads((tmp_path / "summary.json").read_text())["error"]
    found = gauges(tmp_path / "ledger.prom")
    assert found["last_run_exit_code"] == 1
    # An alert on the age of the last success must not lose it.
    assert found["last_success_timestamp_seconds"] == succeeded
    assert found["last_run_timestamp_seconds"] > succeeded
    assert call(tmp_path, *files) == Exit.BUG
    assert capsys.readouterr().err.startswith("error: ")


def test_a_bug_is_told_with_its_trace(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, ZeroDivisionError("division by zero"))
    capsys.readouterr()

    assert call(tmp_path, "--log-format", "json") == Exit.BUG
    (event,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert event["traceback"].startswith("Traceback")

    assert call(tmp_path) == Exit.BUG
    assert "a bug of rollout-ledger" in capsys.readouterr().err


def test_a_held_ledger_is_exit_5_and_names_the_holder(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lock.writing(Layout(tmp_path / "l")):
        assert call(tmp_path, "--summary", tmp_path / "summary.json") == Exit.LOCKED
        assert run(["gc", "--ledger", str(tmp_path / "l")]) == Exit.LOCKED

    told = json.loads((tmp_path / "summary.json").read_text())
    assert told["exit_code"] == 5
    assert re.search(rf"process {os.getpid()} on .* since 20", told["error"])


def test_an_empty_directory_is_exit_3_before_and_after(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dumps").mkdir()
    assert call(tmp_path) == Exit.NO_INPUT
    path = write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    assert call(tmp_path) == Exit.DONE
    path.unlink()

    for _ in range(2):
        assert call(tmp_path) == Exit.NO_INPUT

    assert "1 were there before" in capsys.readouterr().err
    assert rewards(tmp_path / "l") == {0: ("ok", 0.5)}


@pytest.mark.parametrize("option", ["--summary", "--metrics-textfile"])
def test_a_file_that_cannot_be_written_is_told_before_the_work(
    option: str, dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tmp_path, option, tmp_path / "nowhere" / "file") == Exit.USAGE
    assert option in capsys.readouterr().err
    assert ask(tmp_path / "l", "SELECT generation FROM ledger_info") == [(1,)]

    (tmp_path / "directory").mkdir()
    assert call(tmp_path, option, tmp_path / "directory") == Exit.BUG
    assert "the ledger is as it should be" in capsys.readouterr().err
    assert ask(tmp_path / "l", "SELECT generation FROM ledger_info") == [(2,)]


def test_several_runs_in_one_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "one" / "0.jsonl", [1, 0])
    write(tmp_path / "two" / "0.jsonl", [1], response_length=-1)
    write(tmp_path / "three" / "0.jsonl", [1, 1])
    config = tmp_path / "ledger.toml"
    runs = "".join(f'[[runs]]\nname = "{name}"\nsource = "{name}"\n' for name in ("one", "two", "three", "missing"))
    config.write_text(f'ledger = "l"\n{runs}')

    assert run(["recompute", "--config", str(config)]) == Exit.REFUSED
    assert "missing: no such file" in capsys.readouterr().err
    assert ask(tmp_path / "l", "SELECT run FROM batches ORDER BY run") == [("one",), ("three",)]

    assert run(["recompute", "--config", str(config), "--run", "one"]) == Exit.DONE
    write(tmp_path / "two" / "0.jsonl", [1], age=900)
    assert run(["recompute", "--config", str(config), "--run", "two"]) == Exit.DONE
    assert ask(tmp_path / "l", "SELECT count(*) FROM findings") == [(0,)]


# --- since ---

NOW = 1_800_000_000 * 10**9


@pytest.mark.parametrize(("age", "seconds"), [("30s", 30), ("90m", 5_400), ("12h", 43_200), ("7d", 604_800)])
def test_an_age(age: str, seconds: int) -> None:
    assert since_ns(age, NOW) == NOW - seconds * 10**9


def test_a_time() -> None:
    assert since_ns("2026-08-21T12:00+00:00", NOW) == 1_787_313_600 * 10**9


@pytest.mark.parametrize("text", ["", "m", "yesterday", "-5m", "5 m", "1e3s"])
def test_neither_an_age_nor_a_time(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        since_ns(text, NOW)


@pytest.mark.parametrize(("option", "value"), [("--still", -1), ("--keep", 0), ("--keep-for", -1), ("--since", "soon")])
def test_options_that_make_no_sense(option: str, value: Any, tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1])
    assert call(tmp_path, option, value) == Exit.USAGE
