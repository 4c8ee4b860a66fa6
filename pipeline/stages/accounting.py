"""The whole accounting of some batches: canonical samples in, every published table out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline.stages import samples as stage
from pipeline.stages import tables, warnings

if TYPE_CHECKING:
    import polars as pl

    from schemas.settings import Settings

Engine = Literal["in-memory", "streaming"]
"""Engine that runs a plan. Chunks fit in memory, where the in-memory engine is the faster one; results are the same."""


@dataclass(frozen=True)
class Accounts:
    """The tables of some batches, as lazy or collected frames of the same names."""

    batches: pl.LazyFrame
    samples: pl.LazyFrame
    rollouts: pl.LazyFrame
    prompt_groups: pl.LazyFrame
    adapters: pl.LazyFrame
    metrics: pl.LazyFrame
    findings: pl.LazyFrame


def account(samples: pl.LazyFrame, batches: pl.LazyFrame, settings: Settings) -> Accounts:
    """Return every table for whole batches of canonical samples.

    Args:
        samples: one row a sample, columns of `CanonicalSample`; all samples of a batch must be there.
        batches: one row a batch, columns of `CanonicalBatch`; also batches without samples.
        settings: how rewards become advantages.

    Returns:
        Lazy frames. `samples` keeps the canonical columns beside the published ones; `batches` has no state, settings
        and time of publication yet; `findings` has `code`, key and row of what the accounting noticed.
    """
    wide = stage.with_rollouts(stage.identified(samples, settings))
    wide = stage.with_episode_rewards(stage.with_advantages(wide, settings))
    wide = wide.cache()
    weighed = tables.weighed(wide).cache()
    counted = tables.batches(wide, weighed, batches)
    return Accounts(
        batches=counted,
        samples=tables.stored_samples(wide),
        rollouts=tables.rollouts(wide, settings),
        prompt_groups=tables.prompt_groups(wide),
        adapters=tables.adapters(weighed),
        metrics=tables.metrics(counted, weighed),
        findings=warnings.noticed(wide, settings),
    )
