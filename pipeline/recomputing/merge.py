"""A new generation from the last one and what was read: replace, keep, or mark stale; nothing lost, nothing doubled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.keys import BATCH
from pipeline.recomputing.chunk import ACCOUNTING_CODES
from pipeline.recomputing.decisions import is_selected
from pipeline.recomputing.options import Selection
from pipeline.recomputing.ownership import FileKey, is_of
from pipeline.recomputing.replaced import CODE as REPLACED
from pipeline.store import segments
from pipeline.store.publication import SEGMENT, STORED_BATCHES, Publication
from schemas.tables import SourceRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.store.layout import Layout

Keys = frozenset[tuple[str, str, int]]
"""(run, split, step) of batches."""
_KEY = list(BATCH)
_KEY_SCHEMA = {name: STORED_BATCHES[name] for name in BATCH}
_PLACE = [*BATCH, "source"]
_PLACE_SCHEMA = pl.Schema({name: STORED_BATCHES[name] for name in _PLACE})


@dataclass(frozen=True)
class Update:
    """What a recompute has found. Files are named by (run, path).

    Args:
        accepted: new batches, rows as stored; those that `refused` or `gone` name among them are not published.
        refused: batches that were refused.
        missing: published batches that a file which is broken in part no longer shows: stale.
        gone: published batches that their file, which is whole, no longer holds.
        findings: rows of all findings of this recompute.
        settled: files whose earlier findings these ones replace.
        again: batches computed again from their samples, key and source: the accounting's findings are replaced.
        settled_errors: files that are gone, and their errors with them.
        settled_runs: runs whose earlier findings about the run as such are replaced.
        selection: which batches were looked at; findings of others stay.
        sources: rows of all source files, as they are now.
    """

    accepted: pl.DataFrame
    refused: Keys
    findings: pl.DataFrame
    sources: pl.DataFrame
    missing: Keys = frozenset()
    gone: Keys = frozenset()
    settled: frozenset[FileKey] = frozenset()
    again: pl.DataFrame = field(default_factory=_PLACE_SCHEMA.to_frame)
    settled_errors: frozenset[FileKey] = frozenset()
    settled_runs: frozenset[str] = frozenset()
    selection: Selection = field(default_factory=Selection)

    @property
    def kept(self) -> pl.DataFrame:
        """Return the accepted batches without those that another source claims as well, or that are gone."""
        return self.accepted.join(_keys(self.refused | self.gone), on=_KEY, how="anti")

    def findings_after(self, before: Publication, batches: pl.DataFrame) -> pl.DataFrame:
        """Return the findings of the next publication; those of a file that is forgotten go with it."""
        findings, sources = before.findings, before.sources
        if findings.is_empty():
            return self.findings
        duplicated = self.findings.filter(code="duplicate_batch")
        read = is_of(findings, self.settled, sources) & is_selected(findings, self.selection)
        claimed = (findings["code"] == "duplicate_batch") & _is_in(findings, duplicated)
        claimed |= findings["code"].is_in(ACCOUNTING_CODES) & _is_in(findings, duplicated, _PLACE)
        of_run = findings["source"].is_null() & findings["run"].is_in(sorted(self.settled_runs)).fill_null(value=False)
        kept = self.sources_after(batches).select("run", "source")
        forgotten = sources.join(kept, on=["run", "source"], how="anti").select("run", "source").iter_rows()
        settled = read | claimed | of_run | is_of(findings, forgotten, sources) | self._is_outdated(before)
        # That a batch was replaced is history: it is told until it happens again, or the batch is gone.
        is_history = findings["code"] == REPLACED
        is_over = _is_in(findings, self.findings.filter(code=REPLACED)) | _is_in(findings, _keys(self.gone))
        return pl.concat([findings.filter(~((settled & ~is_history) | (is_history & is_over))), self.findings])

    def _is_outdated(self, before: Publication) -> pl.Series:
        """Return which findings are of an accounting that was done again, or are errors of a file that is gone.

        What the accounting says of a batch that is published stands, also when the file is gone.
        """
        findings, sources = before.findings, before.sources
        of_accounting = findings["code"].is_in(ACCOUNTING_CODES)
        again = _is_in(findings, self.again, _PLACE) & of_accounting
        of_gone = is_of(findings, self.settled_errors, sources) & (findings["severity"] == "error")
        return again | (of_gone & ~(of_accounting & _is_in(findings, before.batches, _PLACE)))

    def sources_after(self, batches: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of source files; of a file that is not there any more only as long as it has a batch."""
        has_batch = pl.col("source").is_in(batches["source"].unique().to_list())
        return self.sources.filter((pl.col("state") != "vanished") | has_batch)

    def changes(self, before: Publication) -> bool:
        """Return whether there is anything to publish. Times at which the same was seen again are nothing."""
        if before.number == 0 or self.gone or not self.accepted.is_empty():
            return True
        sources = self.sources_after(before.batches)
        return not (
            _same(sources.drop("seen_at"), before.sources.drop("seen_at"), SourceRow.grain)
            and _same(self.findings_after(before, before.batches), before.findings, tuple(before.findings.columns))
            and _with_stale(before.batches, self).equals(before.batches)
        )


def merged(layout: Layout, before: Publication, update: Update) -> Publication:
    """Return the next publication; segments that change are written anew."""
    new = _rewritten(layout, update.accepted, _keys(update.refused | update.gone))
    old = _rewritten(layout, before.batches, pl.concat([new.select(_KEY), _keys(update.gone)]).unique())
    batches = pl.concat([_with_stale(old, update), new])
    findings = update.findings_after(before, batches)
    return Publication(before.number + 1, batches, findings, update.sources_after(batches))


def _keys(keys: Keys) -> pl.DataFrame:
    return pl.DataFrame(sorted(keys), schema=_KEY_SCHEMA, orient="row")


def _is_in(rows: pl.DataFrame, batches: pl.DataFrame, columns: Sequence[str] = _KEY) -> pl.Series:
    """Return which rows are of one of the batches."""
    keys = batches.select(columns).unique().to_struct("keys").implode()
    return rows.select(pl.struct(columns).is_in(keys).fill_null(value=False)).to_series()


def _same(one: pl.DataFrame, other: pl.DataFrame, grain: tuple[str, ...]) -> bool:
    return one.height == other.height and one.sort(grain).equals(other.select(one.columns).sort(grain))


def _with_stale(batches: pl.DataFrame, update: Update) -> pl.DataFrame:
    stale = _is_in(batches, _keys(update.refused | update.missing))
    return batches.with_columns(state=pl.when(stale).then(pl.lit("stale")).otherwise("state"))


def _rewritten(layout: Layout, batches: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """Return the batches that are not gone, in segments that no longer hold rows of those that are."""
    left = batches.join(gone, on=_KEY, how="anti")
    going = batches.join(gone, on=_KEY, how="semi")
    remaining = set(left[SEGMENT])
    renamed = {
        segment: segments.without(layout, segment, gone)
        for segment in going[SEGMENT].unique(maintain_order=True)
        if segment in remaining
    }
    return left.with_columns(pl.col(SEGMENT).replace(renamed)) if renamed else left
