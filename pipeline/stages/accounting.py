"""The whole accounting of some batches: canonical samples in, every published table out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from pipeline.expressions import catalogue, sums
from pipeline.expressions.catalogue.accounting import FAMILY as OWN_FAMILY
from pipeline.stages import catalogue as metrics
from pipeline.stages import samples as stage
from pipeline.stages import tables, units, warnings
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


def settled_by(engine: Engine) -> sums.Settle:
    """Return what works a frame out at once. A plan over a frame that is there is planned in a tenth of the time."""
    return lambda frame: frame.collect(engine=engine).lazy()


def account(samples: pl.LazyFrame, batches: pl.LazyFrame, settings: Settings, engine: Engine = "in-memory") -> Accounts:
    """Return every table for whole batches of canonical samples.

    What the tables share is worked out here; each table when it is collected.

    Args:
        samples: one row a sample, columns of `CanonicalSample`; all samples of a batch must be there.
        batches: one row a batch, columns of `CanonicalBatch`; also batches without samples.
        settings: how rewards become advantages.
        engine: what works the shared frames out.

    Returns:
        Lazy frames. `samples` keeps the canonical columns beside the published ones; `batches` has no state, settings
        and time of publication yet; `findings` has `code`, key and row of what the accounting noticed.
    """
    settle = settled_by(engine)
    identified = settle(stage.identified(stage.in_order(settle(samples)), settings))
    chosen = catalogue.selected(settings.metrics)
    is_measured = any(metric.family != OWN_FAMILY for metric in chosen)
    stretches = settle(stage.stretches(identified, settings, units.OF_STRETCHES if is_measured else {}, settle))
    stretches = settle(stage.with_rollouts(stretches, settle))
    stretches, votes = stage.with_advantages(stretches, settings, settle)
    stretches = settle(stage.with_episode_rewards(stretches, settle))
    wide = settle(stage.with_results(identified, stretches))
    weighed = settle(tables.weighed(stretches, settle))
    in_batches = tables.batches(wide, stretches, weighed, batches)
    own = tables.metrics(in_batches, weighed, {metric.name for metric in chosen})
    evaluated = metrics.evaluated(wide, stretches, settings, chosen, settle)
    return Accounts(
        batches=in_batches,
        samples=tables.stored_samples(wide),
        rollouts=tables.rollouts(stretches, settings),
        prompt_groups=tables.prompt_groups(stretches, votes),
        adapters=tables.adapters(weighed),
        metrics=pl.concat([own, evaluated.metrics]).sort(MetricRow.grain),
        absent_metrics=evaluated.absent.sort(AbsentMetricRow.grain),
        findings=warnings.noticed(wide, stretches, settings),
    )
