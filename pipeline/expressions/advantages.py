"""Advantages: a reward against the other votes of its prompt group.

advantage = (reward - m) / (s + EPSILON), or reward - m where the estimator does not divide, exactly 0.0 where all votes
are equal. m is the mean of the n votes, s their unbiased deviation (n - 1). One rollout one vote, its mainstream
sample's reward; for the row-level rule every sample votes.

Source: miles, reward normalisation by rollout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from pipeline.expressions import sums

EPSILON = 1e-6
"""Added to the standard deviation before dividing, as the trainers do."""


@dataclass(frozen=True)
class Votes:
    """The votes of a prompt group, by column names: `name` holds a sample's vote, null where it has none."""

    name: str

    @property
    def is_constant(self) -> pl.Expr:
        """Whether all votes of the group are equal, decided by comparing; null where there is none."""
        return pl.col(f"{self.name}_min") == pl.col(f"{self.name}_max")

    @property
    def mean(self) -> pl.Expr:
        """Mean of the votes; of equal votes that very value."""
        value = self._scaled_mean * sums.power_of_two(self._exp)
        return pl.when(self.is_constant).then(pl.col(f"{self.name}_min")).otherwise(value)

    @property
    def spread(self) -> pl.Expr:
        """Largest distance of a vote from the mean, in units of 2^exp."""
        low, high = (sums.scaled(pl.col(f"{self.name}_{end}"), self._exp) for end in ("min", "max"))
        return pl.max_horizontal(high - self._scaled_mean, self._scaled_mean - low)

    def deviation_scale(self) -> pl.Expr:
        """Exponent that brings distances from the mean below 2, on top of 2^exp."""
        return sums.exponent(self.spread)

    @property
    def std(self) -> pl.Expr:
        """Unbiased standard deviation (n - 1); 0.0 for equal votes, null for fewer than two."""
        n = pl.col(f"{self.name}_n")
        value = self._scaled_std * sums.power_of_two(self._exp)
        return pl.when(n > 1).then(pl.when(self.is_constant).then(0.0).otherwise(value))

    def square(self) -> pl.Expr:
        """Squared distance of a sample's vote from the mean, below 1, in units of 4^(exp + deviation_scale + 1).

        Over the vote and its `factors`.
        """
        distance = pl.col(self.name) * pl.col(f"__exp_{self.name}") - pl.col(f"__mean_{self.name}")
        return (distance * pl.col(f"__half_{self.name}")) ** 2

    @property
    def factors(self) -> dict[str, pl.Expr]:
        """What the squares need of the group."""
        return {
            f"__exp_{self.name}": sums.power_of_two(-self._exp),
            f"__mean_{self.name}": self._scaled_mean,
            f"__half_{self.name}": sums.power_of_two(-self._scale) * 0.5,
        }

    def centred(self, value: pl.Expr) -> pl.Expr:
        """Distance of `value` from the mean, in units of 2^exp."""
        return sums.scaled(value, self._exp) - self._scaled_mean

    def advantage(self, value: pl.Expr, *, divide: bool) -> pl.Expr:
        """Advantage of a reward `value` among the votes; null where `value` is, 0.0 in a constant group."""
        unscale = sums.power_of_two(self._exp)
        result = self.centred(value) * unscale
        if divide:
            several = pl.col(f"{self.name}_n") > 1
            divisor = self._scaled_std + EPSILON * sums.power_of_two(-self._exp)
            divided = sums.quotient(self.centred(value), divisor)
            result = pl.when(several).then(divided).otherwise(result)
        return pl.when(value.is_not_null()).then(pl.when(self.is_constant).then(0.0).otherwise(result))

    @property
    def _exp(self) -> pl.Expr:
        return pl.col(f"{self.name}_exp")

    @property
    def _scale(self) -> pl.Expr:
        return pl.col(f"{self.name}_scale")

    @property
    def _scaled_mean(self) -> pl.Expr:
        return pl.col(f"{self.name}_scaled_mean")

    @property
    def _scaled_std(self) -> pl.Expr:
        return pl.col(f"{self.name}_scaled_std")

    def scaled_mean(self) -> pl.Expr:
        """Mean of the votes in units of 2^exp; null where there is none."""
        n = pl.col(f"{self.name}_n")
        return pl.when(n > 0).then(sums.quotient(pl.col(f"{self.name}_sum"), n))

    def scaled_std(self) -> pl.Expr:
        """Unbiased standard deviation in units of 2^exp; null for fewer than two votes."""
        n = pl.col(f"{self.name}_n")
        variance = sums.quotient(pl.col(f"{self.name}_squares"), n - 1)
        return pl.when(n > 1).then(variance.sqrt() * 2.0 * sums.power_of_two(self._scale))


def counted(
    frame: pl.LazyFrame,
    names: tuple[str, ...],
    key: str,
    settle: sums.Settle,
    weights: sums.Weights = MappingProxyType({}),
) -> pl.LazyFrame:
    """Return one row a key with what `Votes` needs of every column of votes: n, sum, min, max and sum of squares."""
    steps = _steps(names)
    frame = settle(frame.select(key, *dict.fromkeys((*names, *weights.values()))))
    found = sums.summed(frame, names, key, settle, weights)
    # Columns, not expressions, from here on: each of these is used many times over.
    found = settle(found.with_columns(steps.means).with_columns(steps.scales))
    found = sums.with_scaled_sums(
        frame, found, key, "squares", values=steps.squares, factors=steps.factors, weights=weights
    )
    return settle(found.with_columns(steps.stds))


class _Steps(NamedTuple):
    """The expressions of `counted`, in the order in which they are needed."""

    means: list[pl.Expr]
    scales: list[pl.Expr]
    squares: dict[str, pl.Expr]
    factors: dict[str, pl.Expr]
    stds: list[pl.Expr]


# The same ones for every chunk: see `keys`.
@cache
def _steps(names: tuple[str, ...]) -> _Steps:
    votes = {name: Votes(name) for name in names}
    return _Steps(
        means=[vote.scaled_mean().alias(f"{name}_scaled_mean") for name, vote in votes.items()],
        scales=[vote.deviation_scale().alias(f"{name}_scale") for name, vote in votes.items()],
        squares={name: vote.square() for name, vote in votes.items()},
        factors={name: factor for vote in votes.values() for name, factor in vote.factors.items()},
        stds=[vote.scaled_std().alias(f"{name}_scaled_std") for name, vote in votes.items()],
    )
