"""The metrics, declared as data: each a mean with its count, over the batch or over one adapter."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from pipeline.expressions import sums

_MEAN_PARTS = ("n", "exp", "sum")


@dataclass(frozen=True)
class Metric:
    """One metric.

    `batch` and `adapter` name the column whose mean the metric is (as `sums.with_sums` prepared it), or null where the
    metric has no meaning in that scope. `counts` names a column that is the value itself, for metrics that are counts.
    """

    name: str
    meaning: str
    count_of: str
    batch: str | None = None
    adapter: str | None = None
    is_count: bool = False
    version: int = 1

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


METRICS: tuple[Metric, ...] = (
    Metric(
        "num_training_samples",
        "samples of the batch",
        "samples",
        batch="samples",
        adapter="a_samples",
        is_count=True,
    ),
    Metric(
        "episode_raw_reward",
        "mean over rollouts of the mean of their ok raw rewards, ids scoped by adapter",
        "scored rollouts",
        batch="batch_episode",
        adapter="a_episode",
    ),
    Metric(
        "row_mean_raw_reward",
        "mean over ok samples: fan-out votes",
        "ok samples",
        batch="batch_row",
        adapter="a_row",
    ),
    Metric(
        "unscoped_raw_reward",
        "episode_raw_reward without the adapter in the key: equal ids of different adapters merge",
        "merged buckets",
        batch="batch_unscoped",
    ),
    Metric(
        "adapter_macro_raw_reward",
        "mean of the adapters' own episode_raw_reward: every adapter one vote",
        "scored adapters",
        batch="batch_macro",
    ),
)
"""Every published metric."""
