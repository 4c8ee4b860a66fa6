"""The whole accounting of some batches: canonical samples in, every published table out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from pipeline.expressions import catalogue
from pipeline.stages import catalogue as metrics
from pipeline.stages import samples as stage
from pipeline.stages import tables, warnings
from schemas.tables import AbsentMetricRow, MetricRow

if TYPE_CHECKING:
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
    absent_metrics: pl.LazyFrame
    findings: pl.LazyFrame


Settle = Callable[[pl.LazyFrame], pl.LazyFrame]
"""What makes a frame that several tables are made from be worked out once."""


def settled_by(engine: Engine) -> Settle:
    """Return what works a frame out at once. A plan over a frame that is there is planned in a tenth of the time."""
    return lambda frame: frame.collect(engine=engine).lazy()


def account(
    samples: pl.LazyFrame, batches: pl.LazyFrame, settings: Settings, settle: Settle = pl.LazyFrame.cache
) -> Accounts:
    """Return every table for whole batches of canonical samples.

    Args:
        samples: one row a sample, columns of `CanonicalSample`; all samples of a batch must be there.
        batches: one row a batch, columns of `CanonicalBatch`; also batches without samples.
        settings: how rewards become advantages.
        settle: what makes a shared frame be worked out once; by default when the tables are.

    Returns:
        Lazy frames. `samples` keeps the canonical columns beside the published ones; `batches` has no state, settings
        and time of publication yet; `findings` has `code`, key and row of what the accounting noticed.
    """
    wide = stage.with_rollouts(stage.identified(samples, settings))
    wide = stage.with_episode_rewards(stage.with_advantages(wide, settings))
    wide = settle(wide.drop("^(row_vote|in_episode|in_bucket)_.*$", "^rollout_vote_(sum|squares)$"))
    weighed = settle(tables.weighed(wide))
    counted = tables.batches(wide, weighed, batches)
    chosen = catalogue.selected(settings.metrics)
    own = tables.metrics(counted, weighed, {metric.name for metric in chosen})
    evaluated = metrics.evaluated(wide, settings, chosen, settle)
    return Accounts(
        batches=counted,
        samples=tables.stored_samples(wide),
        rollouts=tables.rollouts(wide, settings),
        prompt_groups=tables.prompt_groups(wide),
        adapters=tables.adapters(weighed),
        metrics=pl.concat([own, evaluated.metrics]).sort(MetricRow.grain),
        absent_metrics=evaluated.absent.sort(AbsentMetricRow.grain),
        findings=warnings.noticed(wide, settings),
    )
