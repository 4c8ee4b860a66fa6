"""The project's own baseline: every figure of the example ledger is what it was when its snapshot was committed.

Where a figure moved for a good reason, the new one is accepted, and the commit shows it:

    rollout-ledger recompute --config examples/ledger.toml --ledger demo-ledger
    rollout-ledger snapshot accept three-adapters --reason TEXT --ledger demo-ledger --snapshots examples/snapshots
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli.app import run

EXAMPLES = Path(__file__).parents[2] / "examples"
SNAPSHOTS = sorted(path.name for path in (EXAMPLES / "snapshots").iterdir())


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("example") / "ledger"
    assert run(["recompute", "--config", str(EXAMPLES / "ledger.toml"), "--ledger", str(directory)]) == 0
    return directory


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_every_figure_of_the_example_is_what_it_was(
    name: str, ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()

    code = run(["snapshot", "check", name, "--ledger", str(ledger), "--snapshots", str(EXAMPLES / "snapshots")])

    told = capsys.readouterr()
    assert code == 0, f"{told.out}{told.err}{__doc__}"


def test_the_snapshots_of_the_example_are_small_enough_to_commit() -> None:
    assert sum(path.stat().st_size for path in (EXAMPLES / "snapshots").rglob("*")) < 200_000
