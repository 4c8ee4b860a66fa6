"""Statistics in exact arithmetic; each figure is the float64 nearest to the exact one, beside what it is made of."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.reference import mean, nearest, nearest_or_none, square_root, variance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

Number = float | Fraction
Figure = tuple[float | None, int]
"""Value and count."""
Found = dict[str, "Figure | dict[str, Figure] | None"]
"""By the name in the catalogue: a figure, the figures of a family by their names, or null where it is absent."""
DECIMALS_UP_TO = 1e15


def averaged(values: Iterable[Number]) -> Figure:
    """The mean; of flags it is the share of true ones."""
    given = list(values)
    return nearest_or_none(mean(given)), len(given)


def counted(flags: Iterable[bool]) -> Figure:
    """How many are true, of how many."""
    given = list(flags)
    return float(sum(given)), len(given)


def smallest(values: Sequence[Number]) -> Number | None:
    return min(values, default=None)


def largest(values: Sequence[Number]) -> Number | None:
    return max(values, default=None)


def deviation(values: Sequence[Number]) -> Fraction | None:
    """Unbiased; exactly 0 where all are equal, which the exact variance is as well."""
    return square_root(variance(values)) if len(values) > 1 else None


def quantile(level: Fraction) -> Callable[[Sequence[Number]], Fraction | None]:
    """Linear between neighbours."""

    def of(values: Sequence[Number]) -> Fraction | None:
        if not values:
            return None
        ordered = [Fraction(value) for value in sorted(values)]
        place = level * (len(ordered) - 1)
        below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
        return below + (above - below) * (place - math.floor(place))

    return of


STATISTICS: Mapping[str, Callable[[Sequence[Number]], Number | None]] = {
    "mean": mean,
    "std": deviation,
    "min": smallest,
    "p25": quantile(Fraction(1, 4)),
    "median": quantile(Fraction(1, 2)),
    "p75": quantile(Fraction(3, 4)),
    "p95": quantile(Fraction(95, 100)),
    "max": largest,
}


def described(prefix: str, values: Sequence[Number], names: Iterable[str], *, given: bool = True) -> Found:
    """`prefix/name` for each statistic; all of them absent unless `given`."""
    return {f"{prefix}/{name}": figure(values, name) if given else None for name in names}


def figure(values: Sequence[Number], statistic: str) -> Figure:
    value = STATISTICS[statistic](values)
    return None if value is None else nearest(Fraction(value)), len(values)


def label(value: float) -> str:
    """A number as part of a name."""
    text = f"{value:.1f}" if abs(value) < DECIMALS_UP_TO else f"{value:.0e}"
    return "0.0" if text == "-0.0" else text
