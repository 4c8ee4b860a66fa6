"""The pytest fixture `ledger_snapshot`: a test that says what a ledger said when it was written.

    def test_rewards(ledger_snapshot, tmp_path):
        recompute([RunPlan(("dumps",), Settings())], tmp_path / "ledger")
        ledger_snapshot(tmp_path / "ledger")

The snapshot lies in `ledger_snapshots/` beside the test's file. `pytest --update-ledger-snapshots` writes it anew;
without the flag nothing is ever written, and a snapshot that is not there fails the test.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.snapshots.compare import Rules
    from schemas.snapshot import Selection, TableName

_FLAG = "--update-ledger-snapshots"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag that writes snapshots anew."""
    group = parser.getgroup("rollout-ledger")
    group.addoption(_FLAG, action="store_true", default=False, help="write the snapshots of ledger_snapshot anew")


class LedgerSnapshot:
    """Compares ledgers with snapshots that are kept beside the tests.

    Args:
        directory: where the snapshots are.
        name: name of a snapshot that is given none.
        update: whether to write instead of to compare.
    """

    def __init__(self, directory: Path, name: str, *, update: bool) -> None:
        self.directory, self.name, self.update = directory, name, update

    def __call__(
        self,
        ledger: Path | str,
        name: str | None = None,
        *,
        tables: Sequence[TableName] = (),
        rows: bool = False,
        runs: Sequence[str] = (),
        tolerance: Sequence[str] = (),
        allow_new: bool = False,
        strict: bool = False,
    ) -> None:
        """Compare a ledger with its snapshot, or write the snapshot if the flag is given.

        Args:
            ledger: directory of the ledger.
            name: name of the snapshot; by default the test's. A test that compares several ledgers names them.
            tables: tables kept; by default metrics, adapters and batches.
            rows: keep samples and rollouts as well.
            runs: runs kept; by default all.
            tolerance: each `METRIC=ABS,REL`.
            allow_new: rows that only the ledger has are no difference.
            strict: an integer that became the equal float is a difference.

        Raises:
            AssertionError: something differs, or nothing could be compared; the message is the report.
        """
        __tracebackhide__ = True
        from pipeline.snapshots import baselines
        from pipeline.snapshots.compare import Rules
        from pipeline.snapshots.tolerance import tolerances
        from schemas.snapshot import DEFAULT_TABLES, ROW_TABLES, Selection

        chosen = name or self.name
        kept = tuple(dict.fromkeys((*(tables or DEFAULT_TABLES), *(ROW_TABLES if rows else ()))))
        if self.update:
            selection = Selection(runs=tuple(sorted(runs)), tables=kept)
            baselines.save(chosen, Path(ledger), self.directory, selection, force=True)
            return
        rules = Rules(tolerances(tolerance), allow_new, strict)
        told = self._told(chosen, Path(ledger), rules, Selection(runs=tuple(sorted(runs)), tables=kept))
        if told is not None:
            raise AssertionError(told)

    def _told(self, name: str, ledger: Path, rules: Rules, selection: Selection) -> str | None:
        """Return what is wrong; null where nothing is."""
        from pipeline.errors import NoInputError
        from pipeline.snapshots import baselines, report

        try:
            if baselines.shown(name, self.directory).header.selection != selection:
                return f"snapshot {name} was made of other tables or runs than this test asks for; run pytest {_FLAG}"
            found = baselines.check(name, ledger, self.directory, rules)
        except NoInputError as error:
            return f"{error}\nTo write it from what the ledger says now: pytest {_FLAG}"
        if found.verdict == "pass":
            return None
        return f"{report.render(found)}\nIf the new figures are right: pytest {_FLAG}"


@pytest.fixture
def ledger_snapshot(request: pytest.FixtureRequest) -> LedgerSnapshot:
    """Return a function that compares a ledger with the snapshot of this test (see `LedgerSnapshot`)."""
    path: Path = request.node.path
    name = re.sub(r"[^A-Za-z0-9._-]+|\.{2,}", "-", f"{path.stem}.{request.node.name}")[:100].rstrip(".-")
    return LedgerSnapshot(path.parent / "ledger_snapshots", name, update=request.config.getoption(_FLAG))
