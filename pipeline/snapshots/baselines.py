"""Save, check, diff, list, show and accept: what the verbs of `rollout-ledger snapshot` do, for Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.errors import LedgerError, NoInputError, StorageError, UsageError
from pipeline.snapshots import histories, ledger_content, names, stored
from pipeline.snapshots.compare import Rules, compare
from pipeline.snapshots.report_of_machines import plain_summary
from schemas.snapshot import Selection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pipeline.snapshots.content import Content
    from pipeline.snapshots.facts import Diff
    from schemas.snapshot import SnapshotHeader, TableHeader

GENERATION = "generation:"
_ACCEPTED = "accepted.jsonl"


@dataclass(frozen=True)
class Shown:
    """What a stored snapshot says of itself, and how its baseline was moved."""

    name: str
    header: SnapshotHeader
    tables: list[TableHeader]
    accepted: list[dict[str, Any]]


def save(
    name: str, ledger: Path, snapshots: Path, selection: Selection | None = None, *, force: bool = False
) -> SnapshotHeader:
    """Keep what a ledger says.

    Args:
        name: letters, digits, '.', '_' and '-'.
        ledger: directory of the ledger.
        snapshots: directory of the snapshots, made if need be.
        selection: batches and tables; by default metrics, adapters and batches of everything.
        force: replace a snapshot of that name.

    Raises:
        UsageError: the name is not safe, or taken.
        NoInputError: there is no ledger, or it has none of the batches.
        StorageError: the snapshot cannot be written.
    """
    directory = snapshots / names.checked(name)
    names.check_is_new(snapshots, name)
    if (directory / stored.FILE).exists() and not force:
        message = f"snapshot {name} is there already: move it with `snapshot accept {name}`, or replace it with --force"
        raise UsageError(message)
    content = _content_of(ledger, selection or Selection())
    return _written(content, selection or Selection(), directory)


def check(name: str, ledger: Path, snapshots: Path, rules: Rules | None = None) -> Diff:
    """Compare a ledger with a snapshot, by what the snapshot was selected by.

    Raises:
        NoInputError: one of the two is not there, or they cannot be compared.
    """
    header, old = stored.read(snapshots / names.checked(name))
    return compare(old, ledger_content.of_ledger(ledger, _like(header.selection, old)), rules)


def diff(
    old: str,
    new: str,
    *,
    snapshots: Path | None = None,
    ledger: Path | None = None,
    selection: Selection | None = None,
    rules: Rules | None = None,
) -> Diff:
    """Compare two snapshots, or two publications of one ledger, or one of each.

    Args:
        old: a snapshot's name, or `generation:N`.
        new: the same.
        snapshots: directory of the snapshots, where one is named.
        ledger: directory of the ledger, where a generation is named.
        selection: what to compare of generations; by default what the other side was selected by.
        rules: what counts as a difference.

    Raises:
        UsageError: a directory is not given.
        NoInputError: a side is not there, or they cannot be compared.
    """
    read = {side: _snapshot(side, snapshots) for side in (old, new) if not side.startswith(GENERATION)}
    if selection is None:
        selection = next((_like(header.selection, content) for header, content in read.values()), None)
    sides = [
        read[side][1] if side in read else _generation(side, ledger, selection or Selection()) for side in (old, new)
    ]
    return compare(sides[0], sides[1], rules)


def accept(name: str, ledger: Path, snapshots: Path, reason: str, by: str | None = None) -> dict[str, Any] | None:
    """Make what the ledger says now the baseline, and keep who did so, when, why, and what differed.

    The entry is written before the snapshot is: no baseline moves without one.

    Returns:
        The entry; null where nothing differs, so that nothing was done.

    Raises:
        UsageError: there is no reason.
        NoInputError: the snapshot or the ledger is not there.
    """
    if not reason.strip():
        message = "a baseline is moved for a reason: give --reason TEXT"
        raise UsageError(message)
    directory = snapshots / names.checked(name)
    before, old = stored.read(directory)
    new = _content_of(ledger, before.selection)
    told = _differences(old, new)
    entries: list[dict[str, Any]] = []

    def note(header: SnapshotHeader) -> bool:
        if header == before:
            return False
        marks = {"from": before.fingerprint, "to": header.fingerprint}
        entries.append({**histories.signed(by), "reason": reason.strip(), **marks, "differences": told})
        histories.append(directory / _ACCEPTED, entries[0])
        return True

    _written(new, before.selection, directory, note)
    return entries[0] if entries else None


def listed(snapshots: Path) -> list[dict[str, Any]]:
    """Return a row for every snapshot: name, state, counts, fingerprint, and when it was last moved."""
    return [_row(snapshots / name) for name in names.stored(snapshots)]


def shown(name: str, snapshots: Path) -> Shown:
    """Return what a snapshot says of itself.

    Raises:
        NoInputError: it is not there, or cannot be read.
    """
    directory = snapshots / names.checked(name)
    header, tables = stored.read_header(directory)
    return Shown(name, header, tables, histories.read(directory / _ACCEPTED))


def _row(directory: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": directory.name, "state": "ok"}
    counts = ("runs", "batches", "samples", "rollouts")
    try:
        header, tables = stored.read_header(directory)
        row |= {name: header.counts.get(name) for name in counts}
        row |= {"tables": " ".join(table.table for table in tables), "rows": sum(table.rows for table in tables)}
        row |= {"fingerprint": header.fingerprint[:12]}
        accepted = histories.read(directory / _ACCEPTED)
        row |= {"accepted": len(accepted), "last_accepted": accepted[-1].get("at") if accepted else None}
    except LedgerError:
        row["state"] = "unreadable"
    return row


def _written(
    content: Content, selection: Selection, directory: Path, wanted: Callable[[SnapshotHeader], bool] | None = None
) -> SnapshotHeader:
    try:
        return stored.write(content, selection, directory, wanted or (lambda _header: True))
    except OSError as error:
        message = f"{directory} cannot be written ({error.strerror or error}); an earlier snapshot stays as it was"
        raise StorageError(message) from error


def _content_of(ledger: Path, selection: Selection) -> Content:
    content = ledger_content.of_ledger(ledger, selection)
    if content.counts["batches"] == 0:
        message = f"{ledger}: no batch there is selected; see `rollout-ledger status --ledger {ledger}`"
        raise NoInputError(message)
    return content


def _like(selection: Selection, content: Content) -> Selection:
    """Return a selection with exactly the tables that a snapshot has."""
    return selection.model_copy(update={"tables": tuple(content.tables)})


def _snapshot(name: str, snapshots: Path | None) -> tuple[SnapshotHeader, Content]:
    if snapshots is None:
        message = f"snapshot {name}: give the directory of the snapshots, --snapshots DIR"
        raise UsageError(message)
    return stored.read(snapshots / names.checked(name))


def _generation(side: str, ledger: Path | None, selection: Selection) -> Content:
    number = side.removeprefix(GENERATION)
    if ledger is None or not number.isdecimal():
        message = f"{side}: expected {GENERATION}N with the number of a publication, and --ledger DIR"
        raise UsageError(message)
    return ledger_content.of_ledger(ledger, selection, int(number))


def _differences(old: Content, new: Content) -> dict[str, Any]:
    try:
        return plain_summary(compare(old, new, Rules()))
    except NoInputError as error:
        return {"verdict": "not comparable", "headline": str(error)}
