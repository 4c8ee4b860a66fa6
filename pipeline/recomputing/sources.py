"""What the next publication says of source files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.expressions import versions
from pipeline.recomputing.decisions import Known
from pipeline.sources.stamps import Stamp
from schemas.frames import empty_frame, polars_schema
from schemas.tables import SourceRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from pipeline.recomputing.decisions import Decided
    from pipeline.recomputing.ownership import FileKey
    from pipeline.recomputing.taking import Taken
    from pipeline.recomputing.work import Work
    from pipeline.sources.batch import SourceFile
    from pipeline.store.publication import Publication
    from schemas.settings import Settings

Rows = dict[tuple[str, str], dict[str, Any]]
"""Rows of files by run and path."""


def source_rows(
    work: Work, decided: Sequence[Decided], before: Publication, now: datetime, renamed: Mapping[str, str]
) -> pl.DataFrame:
    """Return the rows of all source files after this recompute; rows of files that it did not touch are as before.

    Args:
        work: what was done.
        decided: what was decided.
        before: the last publication.
        now: when.
        renamed: former names of files, by their new ones.
    """
    known = Known(before)
    rows: Rows = {}
    for one in decided:
        for run, source in one.vanished:
            row = known.row(run, source) or {}
            _put(rows, {**row, "state": "vanished", "reason": "not there any more", "seen_at": now})
        for decision in one.of("pending"):
            _put(rows, _pending(decision.file, decision.reason, known, now))
    for taken in work.pending:
        _put(rows, _pending(taken.file, taken.pending or "", known, now))
    _put_taken(rows, work, renamed, now)
    _put_judged(rows, work, known)
    gone = {(taken.file.run, renamed[taken.file.name]) for taken, _ in work.taken if taken.file.name in renamed}
    gone |= {key for key, row in rows.items() if row["state"] == "vanished" and row["versions"] is None}
    return _updated(before.sources, {key: row for key, row in rows.items() if key not in gone}, gone)


def _put_taken(rows: Rows, work: Work, renamed: Mapping[str, str], now: datetime) -> None:
    errors = _errors(work)
    for taken, settings in work.taken:
        name = taken.file.name
        reason = f"renamed from {renamed[name]}" if name in renamed else taken.reason
        part = work.options.selection.words if taken.is_partial else ""
        _put(rows, _taken(taken, settings, reason + part, now, is_refused=_is_refused(taken, errors)))


def _put_judged(rows: Rows, work: Work, known: Known) -> None:
    """Put the rows of files that were not read now: computed again, or found to be claimed by another file as well."""
    errors = _errors(work)
    for (run, source), settings in work.accounted_again.items():
        row = rows.get((run, source)) or known.row(run, source)
        if row is not None:
            is_refused = row["state"] != "vanished" and (run, source) in errors
            _put(rows, {**row, "settings": settings, "state": "refused" if is_refused else row["state"]})
    for finding in work.duplicated:
        key = (finding.run or "", finding.source or "")
        judged = rows.get(key) or known.row(*key)
        if judged is not None and judged["state"] != "vanished":
            _put(rows, {**judged, "state": "refused", "reason": "its batch is also claimed by another source"})


def _updated(before: pl.DataFrame, rows: Rows, gone: set[tuple[str, str]]) -> pl.DataFrame:
    touched = pl.DataFrame([*rows, *gone], schema={"run": pl.String, "source": pl.String}, orient="row")
    new = pl.DataFrame(list(rows.values()), schema=polars_schema(SourceRow)) if rows else empty_frame(SourceRow)
    return pl.concat([before.join(touched, on=["run", "source"], how="anti"), new])


def _put(rows: Rows, row: dict[str, Any]) -> None:
    rows[row["run"], row["source"]] = row


def renames(work: Work, decided: Sequence[Decided], before: Publication) -> Iterator[tuple[str, str]]:
    """Yield (new name, old name) of files that are not there any more under the old name, with the same content.

    Only of files that were taken as a whole: what they hold replaces what was published of them under the old name.
    """
    if not work.taken:
        return
    errors = _errors(work)
    gone = {key for one in decided for key in one.vanished}
    names = zip(before.sources["run"], before.sources["source"], strict=True)
    is_gone = pl.Series([key in gone for key in names], dtype=pl.Boolean) | (before.sources["state"] == "vanished")
    lost = before.sources.filter(is_gone & before.sources["digest"].is_not_null()).sort("source")
    by_digest = {(run, digest): source for run, digest, source in lost.select("run", "digest", "source").iter_rows()}
    known = set(before.sources.filter(pl.col("versions").is_not_null())["source"])
    for taken, _ in work.taken:
        old = by_digest.pop((taken.file.run, taken.digest or ""), None)
        is_whole = not taken.is_partial and not _is_refused(taken, errors)
        if old is not None and taken.file.name not in known and is_whole:
            yield taken.file.name, old


def _errors(work: Work) -> set[FileKey]:
    """Return (run, path) of every error, the run being the batch's."""
    return {(finding.run or "", finding.source or "") for finding in work.errors}


def _is_refused(taken: Taken, errors: set[FileKey]) -> bool:
    return any((batch.run, batch.source) in errors for batch in taken.batches)


def _stamped(file: SourceFile) -> dict[str, Any]:
    stamp = file.stamp or Stamp(0, 0)
    return {"run": file.run, "source": file.name, "size": stamp.size, "modified_ns": stamp.modified_ns}


def _taken(taken: Taken, settings: Settings, reason: str, now: datetime, *, is_refused: bool) -> dict[str, Any]:
    state = "partial" if taken.is_partial else "refused" if is_refused else "taken"
    return {
        **_stamped(taken.file),
        "state": state,
        "reason": reason,
        "batches": len(taken.batches),
        "digest": taken.digest,
        "versions": versions.canonical(),
        "settings": settings.as_json(),
        "seen_at": now,
    }


def _pending(file: SourceFile, reason: str, known: Known, now: datetime) -> dict[str, Any]:
    before = known.row(file.run, file.name)
    row = {**_stamped(file), "state": "pending", "reason": reason, "seen_at": now}
    if before is None:
        return {**row, "batches": 0, "digest": None, "versions": None, "settings": None}
    if before["state"] == "pending" and (before["size"], before["modified_ns"]) == (row["size"], row["modified_ns"]):
        return {**before, "reason": before["reason"]}
    return {**before, **row}
