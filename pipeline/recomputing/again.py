"""Accounting again for batches that are published, from their canonical samples, without reading a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import versions
from pipeline.expressions.keys import BATCH
from pipeline.recomputing.chunk import compute_frames
from pipeline.recomputing.decisions import is_selected
from pipeline.store import segments
from pipeline.store.publication import SEGMENT
from schemas.canonical import CanonicalBatch, CanonicalSample
from schemas.frames import polars_schema

if TYPE_CHECKING:
    from pipeline.recomputing.work import Work
    from schemas.settings import Settings


def reasons(batches: pl.DataFrame) -> list[str]:
    """Return why each published batch is computed again."""
    same_code = versions.current()
    return ["settings" if computed_by == same_code else "metric version" for computed_by in batches["versions"]]


def account_again(work: Work, batches: pl.DataFrame, claimed: pl.DataFrame, settings: Settings) -> None:
    """Compute published batches with other settings, or by another version of the code.

    Args:
        work: what gathers the results.
        batches: rows of the batches as stored, also of those that are not selected.
        claimed: keys of batches that files claim which were read now; these are computed already.
        settings: what to compute them with.
    """
    done = batches.join(claimed, on=list(BATCH), how="semi")
    left = batches.join(claimed, on=list(BATCH), how="anti")
    selected = left.filter(is_selected(left, work.options.selection))
    # Stale ones first: the settings noted with their file say whether they were judged.
    for part in selected.sort("state", descending=True, maintain_order=True).partition_by("state", SEGMENT):
        if work.options.stop():
            break
        segment = part[SEGMENT][0]
        samples = segments.read_segment(work.layout, segment, "samples").select(list(polars_schema(CanonicalSample)))
        samples = samples.join(part.select(BATCH).lazy(), on=list(BATCH), how="semi")
        computed = compute_frames(
            samples.collect(), part.select(list(polars_schema(CanonicalBatch))), settings, work.options.engine
        )
        work.keep(computed, settings)
        work.again.append(part.select(*BATCH, "source"))
        work.reasons_again.update(reasons(part))
        done = pl.concat([done, part])
        left = left.join(part, on=list(BATCH), how="anti")
    judged = done.join(left.filter(state="stale"), on=["run", "source"], how="anti")
    work.accounted_again |= dict.fromkeys(judged.select("run", "source").iter_rows(), settings.as_json())
