"""The means that the whole accounting is about: `episode_raw_reward`, and what earlier definitions would have said.

They are made on the way to the adapters' weights (`pipeline.stages.tables.weighed`), which is why the columns that they
are read from are named here. With nothing to average a batch's value is 0.0 with count 0, as trainers log it.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from pipeline.expressions import sums
from pipeline.expressions.catalogue.record import Metric
from pipeline.expressions.catalogue.statistics import EXACT_MEAN, TOTAL

FAMILY = "accounting"
_MEAN_PARTS = ("n", "exp", "sum")


@dataclass(frozen=True)
class Prepared:
    """Where the value and the count of a metric lie.

    `batch` and `adapter` name the column whose mean the metric is (as `sums.with_sums` prepared it), or null where the
    metric has no meaning in that scope. A count is its column itself.
    """

    name: str
    batch: str | None = None
    adapter: str | None = None
    is_count: bool = False

    @property
    def scopes(self) -> tuple[str, ...]:
        """Return the scopes in which the metric is published."""
        return tuple(scope for scope in ("batch", "adapter") if getattr(self, scope) is not None)

    def value(self, scope: str) -> pl.Expr:
        """Return the metric's value; with nothing to average 0.0 for a batch, as trainers log it, else null."""
        column = getattr(self, scope)
        if self.is_count:
            return pl.col(column)
        return sums.mean(column).fill_null(0.0) if scope == "batch" else sums.mean(column)

    def count(self, scope: str) -> pl.Expr:
        """Return the number of things that the value is a mean of."""
        column = getattr(self, scope)
        return pl.col(column) if self.is_count else pl.col(f"{column}_n")

    def batch_columns(self) -> tuple[str, ...]:
        """Return the prepared columns that the batch's value is made of."""
        if self.batch is None or self.is_count:
            return ()
        return tuple(f"{self.batch}_{part}" for part in _MEAN_PARTS)


PREPARED: tuple[Prepared, ...] = (
    Prepared("num_training_samples", batch="samples", adapter="a_samples", is_count=True),
    Prepared("episode_raw_reward", batch="batch_episode", adapter="a_episode"),
    Prepared("row_mean_raw_reward", batch="batch_row", adapter="a_row"),
    Prepared("unscoped_raw_reward", batch="batch_unscoped"),
    Prepared("adapter_macro_raw_reward", batch="batch_macro"),
)
"""Where the metrics of this family lie."""

_MILES = "miles, rollout metrics"

METRICS: tuple[Metric, ...] = (
    Metric(
        "num_training_samples",
        FAMILY,
        "sample",
        TOTAL,
        "samples",
        meaning="samples of the batch",
        count_of="samples",
        tracker="rollout/num_training_samples",
        source=_MILES,
    ),
    Metric(
        "episode_raw_reward",
        FAMILY,
        "episode",
        EXACT_MEAN,
        "episode_reward",
        meaning="mean over rollouts of the mean of their ok raw rewards, ids scoped by adapter",
        count_of="scored rollouts",
        direction="higher",
        tracker="rollout/episode_raw_reward",
        differs="the trainer's key has no adapter: equal ids of several adapters are one rollout there",
        source=_MILES,
    ),
    Metric(
        "row_mean_raw_reward",
        FAMILY,
        "sample",
        EXACT_MEAN,
        "raw_reward",
        meaning="mean over ok samples: fan-out votes",
        count_of="ok samples",
        direction="higher",
        compare="rollout/raw_reward",
        differs="what trainers logged before rollouts were the unit",
        source="slime and older miles, raw_reward",
    ),
    Metric(
        "unscoped_raw_reward",
        FAMILY,
        "episode",
        EXACT_MEAN,
        "bucket_reward",
        meaning="episode_raw_reward without the adapter in the key: equal ids of different adapters merge",
        count_of="merged buckets",
        direction="higher",
        compare="rollout/episode_raw_reward",
        differs="the trainer's figure in a batch of several adapters, but for a rollout_id that is another's index",
        source=_MILES,
        scopes=("batch",),
    ),
    Metric(
        "adapter_macro_raw_reward",
        FAMILY,
        "episode",
        EXACT_MEAN,
        "adapter_reward",
        meaning="mean of the adapters' own episode_raw_reward: every adapter one vote",
        count_of="scored adapters",
        direction="higher",
        scopes=("batch",),
    ),
)
"""The records of this family."""

NAMES: tuple[str, ...] = tuple(metric.name for metric in METRICS)
"""Their names: definitions of one thing, which can be held against one another."""
