"""A new generation from the last one and what was read: replace, keep, or mark stale; nothing lost, nothing doubled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.keys import BATCH
from pipeline.store import segments
from pipeline.store.publication import SEGMENT, STORED_BATCHES, Publication

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
        refused_sources: files of which not even the steps could be read.
        findings: rows of all findings of this recompute.
        sources: files that were looked at: their earlier findings are settled.
    """

    accepted: pl.DataFrame
    refused: frozenset[tuple[str, str, int | None]]
    refused_sources: frozenset[str]
    findings: pl.DataFrame
    sources: frozenset[str]

    @property
    def refused_keys(self) -> pl.DataFrame:
        """Return the refused batches' keys as a frame."""
        known = [key for key in self.refused if key[2] is not None]
        return pl.DataFrame(known, schema=_KEY_SCHEMA, orient="row")

    @property
    def kept(self) -> pl.DataFrame:
        """Return the accepted batches without those that another source claims as well."""
        return self.accepted.join(self.refused_keys, on=_KEY, how="anti")


def merged(layout: Layout, before: Publication, update: Update) -> Publication:
    """Return the next publication; segments that change are written anew."""
    new = _rewritten(layout, update.accepted, update.refused_keys)
    replaced = new.select(_KEY)
    old = _rewritten(layout, before.batches, replaced)
    old = _with_stale(old, update)
    findings = before.findings.filter(~pl.col("source").is_in(sorted(update.sources)).fill_null(value=False))
    return Publication(before.number + 1, pl.concat([old, new]), pl.concat([findings, update.findings]))


def _with_stale(batches: pl.DataFrame, update: Update) -> pl.DataFrame:
    refused = pl.struct(_KEY).is_in(update.refused_keys.to_struct("keys").implode())
    unreadable = pl.col("source").is_in(sorted(update.refused_sources))
    state = pl.when(refused | unreadable).then(pl.lit("stale")).otherwise("state")
    return batches.with_columns(state=state)


def _rewritten(layout: Layout, batches: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """Return the batches that are not gone, in segments that no longer hold rows of those that are."""
    left = batches.join(gone, on=_KEY, how="anti")
    going = batches.join(gone, on=_KEY, how="semi")
    renamed = {
        segment: segments.without(layout, segment, gone)
        for segment in going[SEGMENT].unique()
        if segment in left[SEGMENT]
    }
    return left.with_columns(pl.col(SEGMENT).replace(renamed)) if renamed else left
