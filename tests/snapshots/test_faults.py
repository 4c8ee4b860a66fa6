"""Each of many faults in the accounting is found, named and, if it is a known one, explained; no other is suspected."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import RunPlan, Settings, recompute
from pipeline.cli.app import run as command
from pipeline.recomputing.options import Options
from pipeline.sources.record_writers import write_json_lines
from tests.snapshots import rich_dumps
from tests.snapshots.faults import FAULTS, Fault, put_in

if TYPE_CHECKING:
    from pathlib import Path

AT_ONCE = Options(still_seconds=0.0)


def recomputed(
    sources: tuple[str, ...], ledger: Path, options: Options = AT_ONCE, settings: Settings | None = None
) -> Path:
    recompute([RunPlan(sources, settings or Settings(), "rich")], ledger, options)
    return ledger


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rich_dumps.write(tmp_path_factory.mktemp("rich") / "dumps")


@pytest.fixture(scope="module")
def right(dumps: Path) -> Path:
    """The ledger without a fault, with the snapshots `all` and `default` of it."""
    ledger = recomputed((str(dumps),), dumps.parent / "ledger")
    for name, options in (("all", ["--rows", "--table", *_tables("prompt_groups")]), ("default", [])):
        assert command(["snapshot", "save", name, "--ledger", str(ledger), *options]) == 0
    return ledger


def _tables(*more: str) -> list[str]:
    first, *rest = ("metrics", "adapters", "batches", *more)
    return [first, *(word for name in rest for word in ("--table", name))]


def checked(ledger: Path, right: Path, name: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    arguments = ["snapshot", "check", name, "--ledger", str(ledger), "--snapshots", str(right / "snapshots")]
    code = command([*arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_named_and_explained(
    fault: Fault, dumps: Path, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with put_in(fault):
        ledger = recomputed((str(dumps),), tmp_path / "ledger")

    code, told = checked(ledger, right, "all", capsys)

    assert code == 4
    assert told["verdict"] == "fail"
    named = {(moved["table"], moved["metric"]) for moved in told["metrics"]}
    assert fault.moves in named | {(rows["table"], rows["metric"]) for rows in told["rows"]}
    if fault.hint is None:
        assert told["hints"] == []
    else:
        assert any(fault.hint in hint for hint in told["hints"]), told["hints"]


def test_faults_leave_no_trace(dumps: Path, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for fault in FAULTS:
        with put_in(fault):
            pass

    ledger = recomputed((str(dumps),), tmp_path / "ledger")

    assert checked(ledger, right, "all", capsys)[0] == 0


# --- what must not matter ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"chunk_rows": 1}, {"engine": "streaming"}, {"force": True}], ids=str)
def test_chunk_size_and_engine_do_not_matter(
    options: dict[str, Any], dumps: Path, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = recomputed((str(dumps),), tmp_path / "ledger", Options(still_seconds=0.0, **options))

    assert checked(ledger, right, "all", capsys)[0] == 0


def test_the_order_of_files_and_their_place_do_not_matter(
    dumps: Path, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "another machine" / "dumps"
    shutil.copytree(dumps, moved)

    ledger = recomputed(tuple(str(moved / name) for name in reversed(rich_dumps.FILES)), tmp_path / "ledger")

    assert checked(ledger, right, "all", capsys)[0] == 0


def test_several_recomputes_and_a_moved_ledger_do_not_matter(
    dumps: Path, right: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (*rich_dumps.FILES, *rich_dumps.FILES):
        recomputed((str(dumps / name),), tmp_path / "ledger", Options(still_seconds=0.0, force=True))
    (tmp_path / "ledger").rename(tmp_path / "moved")

    assert checked(tmp_path / "moved", right, "all", capsys)[0] == 0


def test_the_order_of_samples_does_not_matter_to_metrics(
    dumps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of the mainstream sample left out, which on ties is the first."""
    anyhow = Settings(metrics=["accounting", "inference", "lengths", "versions"])
    directory = tmp_path / "turned"
    directory.mkdir()
    for name, samples in rich_dumps.FILES.items():
        write_json_lines(directory / name, reversed(samples()))
    right = recomputed((str(dumps),), tmp_path / "right", settings=anyhow)
    assert command(["snapshot", "save", "default", "--ledger", str(right)]) == 0

    ledger = recomputed((str(directory),), tmp_path / "ledger", settings=anyhow)

    assert checked(ledger, right, "default", capsys)[0] == 0
