"""Accounting again for batches that are published, from their canonical samples, without reading a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.expressions import versions
from pipeline.expressions.keys import BATCH
from pipeline.recomputing.chunk import compute_frames
from pipeline.store import segments
from pipeline.store.publication import SEGMENT
from schemas.canonical import CanonicalBatch, CanonicalSample
from schemas.frames import polars_schema

if TYPE_CHECKING:
    import polars as pl

    from pipeline.recomputing.work import Work
    from schemas.settings import Settings


def reasons(batches: pl.DataFrame) -> list[str]:
    """Return why each published batch is computed again."""
    same_code = versions.current()
    return ["settings" if computed_by == same_code else "metric version" for computed_by in batches["versions"]]


def account_again(work: Work, batches: pl.DataFrame, settings: Settings) -> int:
    """Compute published batches with other settings, or by another version of the code.

    Args:
        work: what gathers the results.
        batches: rows of the batches as stored.
        settings: what to compute them with.

    Returns:
        Number of batches that were computed before the work was told to stop.
    """
    done = 0
    for part in batches.partition_by(SEGMENT, maintain_order=True):
        if work.options.stop():
            break
        segment = part[SEGMENT][0]
        samples = segments.read_segment(work.layout, segment, "samples").select(list(polars_schema(CanonicalSample)))
        samples = samples.join(part.select(BATCH).lazy(), on=list(BATCH), how="semi")
        computed = compute_frames(
            samples.collect(), part.select(list(polars_schema(CanonicalBatch))), settings, work.options.engine
        )
        work.keep(computed, settings)
        work.accounted_again |= dict.fromkeys(part.select("run", "source").iter_rows(), settings.as_json())
        work.reasons_again.update(reasons(part))
        done += part.height
    return done
