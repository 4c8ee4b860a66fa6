"""Few segments, however many publications: small ones are joined, a bounded number of rows at a time.

A tick adds a segment of one batch. Sixteen small segments become one middling one, sixteen middling ones a large one; a
large one is never touched again but to replace a batch of it. So a reader opens some hundred files for ten thousand
batches, and no publication rewrites more than `LARGE_ROWS` samples for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.keys import BATCH
from pipeline.store import segments
from pipeline.store.publication import SEGMENT, Publication

if TYPE_CHECKING:
    from pipeline.store.layout import Layout

FAN_IN = 16
"""Segments that are joined at once."""
LARGE_ROWS = 2**20
"""Samples of a segment that is not joined any more."""
LARGE_BATCHES = FAN_IN**2
"""Batches of a segment that is not joined any more."""


def compacted(layout: Layout, publication: Publication) -> Publication:
    """Return the publication with at most one more segment joined from small ones; the rows are the same."""
    chosen = _chosen(publication.batches)
    if not chosen:
        return publication
    joined = segments.joined(layout, chosen)
    batches = publication.batches.with_columns(pl.col(SEGMENT).replace(dict.fromkeys(chosen, joined)))
    return Publication(publication.number, batches, publication.findings, publication.sources)


def _chosen(batches: pl.DataFrame) -> list[str]:
    """Return the segments to join: the oldest `FAN_IN` of the smallest size of which there are as many."""
    sizes = batches.group_by(SEGMENT).agg(pl.len().alias("batches"), pl.col("samples").sum(), pl.col(BATCH).min())
    for low, high in ((1, FAN_IN), (FAN_IN, LARGE_BATCHES)):
        of_size = sizes.filter(pl.col("batches").is_between(low, high, closed="left")).sort(*BATCH, SEGMENT)
        fitting = of_size.filter(
            pl.col("samples") < LARGE_ROWS // FAN_IN if low == 1 else pl.col("samples") < LARGE_ROWS
        )
        candidates = fitting.head(FAN_IN)
        if candidates.height == FAN_IN and candidates["samples"].sum() <= LARGE_ROWS:
            return candidates[SEGMENT].to_list()
    return []
