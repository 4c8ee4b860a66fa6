"""Faults that others met on live directories and with stores, by the number under which they were collected."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest

from pipeline import RunPlan, Settings, recompute
from pipeline.cli.app import run
from pipeline.errors import StorageError
from pipeline.recomputing import Options
from pipeline.store import durable
from tests.fixture_dumps import FIXTURES
from tests.unattended.ledgers import (
    aged,
    ask,
    assert_same_figures,
    codes,
    files,
    published,
    rewards,
    tick,
    write,
    write_steps,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DUMP = FIXTURES / "miles" / "single_run" / "rollout_data" / "0.pt"


@pytest.mark.parametrize("age_of_lines", [5.0, 3_600.0])
def test_case_43_a_file_still_being_written(age_of_lines: float, tmp_path: Path) -> None:
    dumps, ledger = tmp_path / "dumps", tmp_path / "l"
    dumps.mkdir()
    aged(Path(shutil.copy(DUMP, dumps / "0.pt")), 3_600)
    (dumps / "1.pt").write_bytes(DUMP.read_bytes()[: DUMP.stat().st_size // 2])
    pl.DataFrame({"reward": [1.0] * 100, "response_length": [1] * 100}).write_parquet(tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    (dumps / "2.parquet").write_bytes(whole[: len(whole) // 2])
    (dumps / "3.parquet").write_bytes(b"")
    lines = write_steps(dumps / "4.jsonl", {40: [1, 0], 41: [1, 1]})
    lines.write_bytes(lines.read_bytes()[:-9])
    for name, age in (("1.pt", 0.0), ("2.parquet", 3_600.0), ("3.parquet", 3_600.0), ("4.jsonl", age_of_lines)):
        aged(dumps / name, age)

    tick(dumps, ledger)

    is_old = age_of_lines > 60
    assert {name: state for name, (state, _) in files(ledger).items()} == {
        "0.pt": "taken",
        "1.pt": "pending",
        "2.parquet": "refused",
        "3.parquet": "refused",
        "4.jsonl": "refused" if is_old else "pending",
    }
    # What is whole of the lines is read; the batch whose last line is cut off is not published in half.
    assert list(rewards(ledger)) == ([0, 40] if is_old else [0])
    assert codes(ledger) == [*(["torn_line"] if is_old else []), "unreadable_file", "unreadable_file"]

    # What was pending is taken when it is complete; what is corrupt is not read again until it is written again.
    aged(Path(shutil.copy(DUMP.with_name("1.pt"), dumps / "1.pt")), 15)
    assert tick(dumps, ledger).reasons == {"new": 1}
    assert 1 in rewards(ledger)


def test_case_47_evaluation_dumps_beside_training_dumps(tmp_path: Path) -> None:
    dumps, ledger = tmp_path / "dumps", tmp_path / "l"
    for name, values in (("0", [0, 0]), ("eval_0", [1, 1]), ("9", [0]), ("10", [0])):
        write(dumps / f"{name}.jsonl", values)
    shutil.copy(DUMP, dumps / "eval_x.pt")

    tick(dumps, ledger)

    assert ask(
        ledger,
        "SELECT split, value FROM metrics "
        "WHERE metric = 'episode_raw_reward' AND step = 0 AND scope = 'batch' ORDER BY ALL",
    ) == [
        ("eval", 1.0),
        ("train", 0.0),
    ]
    assert ask(ledger, "SELECT step FROM batches WHERE split = 'train'") == [(0,), (9,), (10,)]
    assert codes(ledger) == ["foreign_name"]


def test_case_54_parquet_files_whose_schema_drifts(tmp_path: Path) -> None:
    rows = {"response_length": [1, 1], "index": [0, 1], "group_index": [0, 0]}
    one = {name: values[:1] for name, values in rows.items()}
    frames = (
        pl.DataFrame({"reward": [1, 0], **rows}),
        pl.DataFrame({"reward": [0.5, 0.25], **rows}),
        pl.DataFrame({"reward": [None, None], **rows}),
        pl.DataFrame({"reward": [1.0], **one, "adapter_name": ["north"]}),
    )
    orders: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3), (2, 3, 1, 0))
    for order in orders:
        for step in order:
            (tmp_path / "dumps").mkdir(exist_ok=True)
            frames[step].write_parquet(tmp_path / "dumps" / f"{step}.parquet")
            tick(tmp_path / "dumps", tmp_path / f"l{order[0]}", still_seconds=0)
        shutil.copytree(tmp_path / "dumps", tmp_path / f"kept{order[0]}")

    found = ask(tmp_path / "l0", "SELECT reward, adapter_name FROM samples ORDER BY step, row")
    assert [reward for reward, _ in found] == [1, 0, 0.5, 0.25, None, None, 1.0]
    assert [name for _, name in found] == [*[None] * 6, "north"]
    assert ask(tmp_path / "l0", "SELECT avg(reward) FROM samples") == [(0.55,)]
    assert_same_figures(tmp_path / "l0", tmp_path / "l2")


def test_case_55_engines_and_orders_give_the_same_bits(tmp_path: Path) -> None:
    small, large = [0.1, 0.2, 0.3], [1e16, 0.1, -1e16, 0.3, 7e-9, 1 / 3]
    write(tmp_path / "dumps" / "0.jsonl", small)
    write_steps(tmp_path / "dumps" / "many.jsonl", {step: large * (20 + step) for step in range(1, 4)})
    plan = [RunPlan((str(tmp_path / "dumps"),), Settings(), "a")]

    recompute(plan, tmp_path / "l", Options())
    recompute(plan, tmp_path / "again", Options())
    recompute(plan, tmp_path / "streaming", Options(engine="streaming"))
    recompute(plan, tmp_path / "chunks", Options(engine="streaming", chunk_rows=1))

    for other in ("again", "streaming", "chunks"):
        assert_same_figures(tmp_path / "l", tmp_path / other)


HOLDING = (
    "import duckdb, sys\nwith duckdb.connect(sys.argv[1], read_only=sys.argv[2] == 'ro') as c:\n"
    "    print(c.execute('SELECT count(*) FROM samples').fetchone()[0], flush=True)\n    sys.stdin.readline()\n"
    "    print(c.execute('SELECT count(*) FROM samples').fetchone()[0], flush=True)"
)


@pytest.fixture
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the ledger's file open, for reading or (as DuckDB's shell does) for writing."""
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    tick(tmp_path / "dumps", tmp_path / "l")
    call = [sys.executable, "-c", HOLDING, str(tmp_path / "l" / "ledger.duckdb"), request.param]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("held", ["ro", "rw"], indirect=True)
def test_case_60_neither_readers_nor_the_writer_wait(held: subprocess.Popen[str], tmp_path: Path) -> None:
    assert held.stdout is not None
    assert held.stdin is not None
    assert held.stdout.readline() == "2\n"
    ledger = str(tmp_path / "l")

    write(tmp_path / "dumps" / "1.jsonl", [1])
    assert run(["recompute", str(tmp_path / "dumps"), "--run", "a", "--ledger", ledger]) == 0
    assert run(["status", "--ledger", ledger]) == 0

    with duckdb.connect(f"{ledger}/ledger.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM samples").fetchone() == (3,)
    held.stdin.write("\n")
    held.stdin.flush()
    # Whoever opened it before keeps what was there then.
    assert held.stdout.readline() == "2\n"


@pytest.mark.parametrize("held", ["rw"], indirect=True)
def test_case_60_a_reader_beside_somebody_who_opened_the_newest_for_writing(
    held: subprocess.Popen[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert held.stdout is not None
    held.stdout.readline()

    assert run(["sql", "SELECT count(*) AS n FROM samples", "--ledger", str(tmp_path / "l"), "--format", "csv"]) == 0

    assert capsys.readouterr().out == "n\n2\n"


def test_case_60_no_ledger_is_told_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--ledger", str(tmp_path / "nowhere")]) == 3
    assert "no ledger there" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"", b"no database", b"\0" * 10_000])
def test_case_61_the_file_is_made_again_from_parquet_alone(content: bytes | None, tmp_path: Path) -> None:
    dumps, ledger = tmp_path / "dumps", tmp_path / "l"
    for step in range(3):
        write(dumps / f"{step}.jsonl", [step])
        tick(dumps, ledger)
    (dumps / "1.jsonl").unlink()
    tick(dumps, ledger)
    before = published(ledger)
    (ledger / "ledger.duckdb").unlink()
    if content is not None:
        (ledger / "ledger.duckdb").write_bytes(content)

    assert tick(dumps, ledger).reasons == {}

    after = published(ledger)
    assert all(after[name].equals(before[name]) for name in before)


def test_case_61_a_failure_while_it_is_made_again_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "dumps" / "0.jsonl", [1])
    write(tmp_path / "dumps" / "1.jsonl", [1])
    tick(path.parent, tmp_path / "l")
    path.unlink()
    (tmp_path / "l" / "ledger.duckdb").unlink()

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(durable, "sync_file", full)
        with pytest.raises(StorageError):
            tick(path.parent, tmp_path / "l")
    tick(path.parent, tmp_path / "l")

    assert rewards(tmp_path / "l") == {0: ("ok", 1.0), 1: ("ok", 1.0)}


def test_case_61_a_file_that_is_no_ledger_is_told_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1])
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "ledger.duckdb").write_bytes(b"no database" * 1_000)

    assert run(["recompute", str(tmp_path / "dumps"), "--ledger", str(tmp_path / "l")]) == 3

    assert "not a readable ledger" in capsys.readouterr().err


def test_case_61_the_file_says_what_wrote_it_and_keeps_an_old_format(tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1])
    tick(tmp_path / "dumps", tmp_path / "l")

    assert ask(tmp_path / "l", "SELECT generation, schema_version FROM ledger_info") == [(1, 1)]
    found = ask(tmp_path / "l", "SELECT tags FROM duckdb_databases() WHERE database_name = 'ledger'")
    assert "v1.0" in found[0][0]["storage_version"]
