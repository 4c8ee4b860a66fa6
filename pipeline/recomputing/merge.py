"""A new generation from the last one and what was read: replace, keep, or mark stale; nothing lost, nothing doubled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.keys import BATCH
from pipeline.recomputing.chunk import ACCOUNTING_CODES
from pipeline.store import segments
from pipeline.store.publication import SEGMENT, STORED_BATCHES, Publication
from schemas.tables import SourceRow

if TYPE_CHECKING:
    from pipeline.store.layout import Layout

_KEY = list(BATCH)
_KEY_SCHEMA = {name: STORED_BATCHES[name] for name in BATCH}


@dataclass(frozen=True)
class Update:
    """What a recompute has found.

    Args:
        accepted: new batches, rows as stored; their segments may hold batches that `refused` names as well.
        refused: (run, split, step) of batches that were refused.
        refused_sources: files of which not even the batches are known.
        findings: rows of all findings of this recompute.
        settled: files whose earlier findings these ones replace.
        settled_accounting: files of which only the findings of the accounting are replaced.
        settled_runs: runs whose earlier findings about the run as such are replaced.
        sources: rows of all source files, as they are now.
    """

    accepted: pl.DataFrame
    refused: frozenset[tuple[str, str, int]]
    refused_sources: frozenset[str]
    findings: pl.DataFrame
    settled: frozenset[str]
    settled_accounting: frozenset[str]
    settled_runs: frozenset[str]
    sources: pl.DataFrame

    @property
    def refused_keys(self) -> pl.DataFrame:
        """Return the refused batches' keys as a frame."""
        return pl.DataFrame(sorted(self.refused), schema=_KEY_SCHEMA, orient="row")

    @property
    def kept(self) -> pl.DataFrame:
        """Return the accepted batches without those that another source claims as well."""
        return self.accepted.join(self.refused_keys, on=_KEY, how="anti")

    def findings_after(self, before: Publication) -> pl.DataFrame:
        """Return the findings of the next publication."""
        read = pl.col("source").is_in(sorted(self.settled))
        again = pl.col("source").is_in(sorted(self.settled_accounting)) & pl.col("code").is_in(ACCOUNTING_CODES)
        of_run = pl.col("source").is_null() & pl.col("run").is_in(sorted(self.settled_runs))
        settled = pl.any_horizontal(read, again, of_run).fill_null(value=False)
        return pl.concat([before.findings.filter(~settled), self.findings])

    def changes(self, before: Publication) -> bool:
        """Return whether there is anything to publish. Times at which the same was seen again are nothing."""
        if before.number == 0 or not self.accepted.is_empty():
            return True
        return not (
            _same(self.sources.drop("seen_at"), before.sources.drop("seen_at"), SourceRow.grain)
            and _same(self.findings_after(before), before.findings, tuple(before.findings.columns))
            and _with_stale(before.batches, self).equals(before.batches)
        )


def merged(layout: Layout, before: Publication, update: Update) -> Publication:
    """Return the next publication; segments that change are written anew."""
    new = _rewritten(layout, update.accepted, update.refused_keys)
    old = _rewritten(layout, before.batches, new.select(_KEY))
    batches = pl.concat([_with_stale(old, update), new])
    return Publication(before.number + 1, batches, update.findings_after(before), update.sources)


def _same(one: pl.DataFrame, other: pl.DataFrame, grain: tuple[str, ...]) -> bool:
    return one.height == other.height and one.sort(grain).equals(other.select(one.columns).sort(grain))


def _with_stale(batches: pl.DataFrame, update: Update) -> pl.DataFrame:
    refused = pl.struct(_KEY).is_in(update.refused_keys.to_struct("keys").implode())
    unreadable = pl.col("source").is_in(sorted(update.refused_sources))
    state = pl.when(refused | unreadable).then(pl.lit("stale")).otherwise("state")
    return batches.with_columns(state=state)


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
