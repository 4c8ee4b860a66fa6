"""Statistics: each what makes one number of a measure, once for Polars and once for SQL.

Sums of whole numbers are exact in 64 bits. Sums of floats are those of `pipeline.expressions.sums`, prepared for each
key before it is grouped by, so that a mean's bits do not depend on the order of rows, on chunks or on the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from pipeline.expressions import sums
from pipeline.expressions.advantages import Votes

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["mean", "exact_mean", "std", "min", "max", "quantile", "total", "share", "ratio", "exact_ratio", "part"]
SQL_SCALE = 4_194_304
"""2^22: floats are divided by it while SQL adds them, so that the largest doubles of a batch cannot overflow."""
_LEAST_POWER = -1022


@dataclass(frozen=True)
class Columns:
    """The columns that a statistic is made of, by name.

    Args:
        of: the measure.
        over: what a ratio is divided by: a measure that is added as well.
        unit: what a measure is in units of, equal within a batch: in Polars the exponent of a power of two, in SQL the
            number itself.
    """

    of: str
    over: str | None = None
    unit: str | None = None


@dataclass(frozen=True)
class Statistic:
    """What is made of a measure.

    Args:
        kind: mean (of whole numbers or flags), exact_mean (of floats), std (unbiased, of floats), min, max, quantile,
            total (sum of whole numbers, or number of true flags), share (of a family's members among all), ratio (of
            two sums of whole numbers), exact_ratio (of a sum of floats and one of whole numbers), part (of the batch's
            sum of floats).
        level: of a quantile, between 0 and 1, linear between neighbours.
    """

    kind: Kind
    level: float = 0.5

    @property
    def is_count(self) -> bool:
        """Return whether the value is a whole number of things."""
        return self.kind == "total"

    @property
    def adds_floats(self) -> bool:
        """Return whether sums of floats have to be prepared with `sums.with_sums`."""
        return self.kind in ("exact_mean", "exact_ratio", "part")

    def aggregates(self, columns: Columns) -> dict[str, pl.Expr]:
        """Return what has to be aggregated over the key, by a name that equal aggregations share."""
        of, over = columns.of, columns.over
        found = {f"n:{of}": pl.col(of).count().cast(pl.Int64)}
        if self.kind in ("mean", "total", "ratio"):
            found[f"sum:{of}"] = pl.col(of).cast(pl.Int64).sum()
        if self.kind in ("ratio", "exact_ratio"):
            found[f"sum:{over}"] = pl.col(str(over)).cast(pl.Int64).sum()
        if self.kind == "quantile":
            # Nulls take no part in it anyway; among them it takes twice as long.
            values = pl.col(of).cast(pl.Float64).drop_nulls()
            found[f"{self.level}:{of}"] = values.quantile(self.level, interpolation="linear")
        if self.kind in ("min", "max"):
            extreme = pl.col(of).min() if self.kind == "min" else pl.col(of).max()
            found[f"{self.kind}:{of}"] = extreme.cast(pl.Float64)
        if self.kind == "exact_ratio" and columns.unit is not None:
            found[columns.unit] = pl.col(columns.unit).first()
        return found

    def combined(self, columns: Columns) -> dict[str, pl.Expr]:
        """Return those of the aggregates of a whole that are made of the aggregates of its parts."""
        ways: dict[str, Callable[[pl.Expr], pl.Expr]] = {
            "n": pl.Expr.sum,
            "sum": pl.Expr.sum,
            "min": pl.Expr.min,
            "max": pl.Expr.max,
        }
        names = [name for name in self.aggregates(columns) if name.partition(":")[0] in ways]
        return {name: ways[name.partition(":")[0]](pl.col(name)) for name in names}

    def value(self, columns: Columns) -> pl.Expr:
        """Return the value from what was aggregated; null where there is nothing to make it of."""
        of, over = columns.of, columns.over
        total, n = pl.col(f"sum:{of}"), pl.col(f"n:{of}")
        values: dict[Kind, Callable[[], pl.Expr]] = {
            "mean": lambda: pl.when(n > 0).then(sums.quotient(total, n)),
            "total": lambda: total.cast(pl.Float64),
            "ratio": lambda: _divided(total, pl.col(f"sum:{over}")),
            "exact_mean": lambda: sums.mean(of),
            "std": lambda: Votes(of).std,
            "exact_ratio": lambda: _exact_ratio(columns),
            "part": lambda: _part(columns),
            "quantile": lambda: pl.col(f"{self.level}:{of}"),
        }
        return values.get(self.kind, lambda: pl.col(f"{self.kind}:{of}"))()

    def sql(self, columns: Columns) -> str:
        """Return the aggregation in SQL, over a view that has columns of the same names."""
        of, over, unit = columns.of, columns.over, columns.unit
        texts: dict[Kind, str] = {
            "mean": f"avg(CAST({of} AS BIGINT))",
            "total": f"coalesce(CAST(sum(CAST({of} AS BIGINT)) AS DOUBLE), 0.0)",
            "ratio": f"CAST(sum({of}) AS DOUBLE) / nullif(sum({over}), 0)",
            "quantile": f"quantile_cont(CAST({of} AS DOUBLE), {self.level})",
            "exact_mean": f"favg({of} / {SQL_SCALE}) * {SQL_SCALE}",
            "std": f"deviation_of({of})",
            "exact_ratio": f"fsum({of}) / nullif(sum({over}), 0) * max({unit})",
            # Who has no part has a share of 0, not none: the shares of a batch add up to 1.
            "part": f"coalesce(fsum({of}), 0.0) / nullif(max({over}), 0)",
        }
        return texts.get(self.kind, f"CAST({self.kind}({of}) AS DOUBLE)")


def _exact_ratio(columns: Columns) -> pl.Expr:
    unit = sums.power_of_two(pl.col(columns.unit)) if columns.unit is not None else pl.lit(1.0)
    scaled = _divided(pl.col(f"{columns.of}_sum"), pl.col(f"sum:{columns.over}"))
    return scaled * sums.power_of_two(pl.col(f"{columns.of}_exp")) * unit


def _part(columns: Columns) -> pl.Expr:
    of, over = columns.of, columns.over
    distance = (pl.col(f"{of}_exp") - pl.col(f"{over}_exp")).clip(_LEAST_POWER, 0)
    return _divided(pl.col(f"{of}_sum"), pl.col(f"{over}_sum")) * sums.power_of_two(distance)


def _divided(dividend: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    return pl.when(divisor > 0).then(sums.quotient(dividend, divisor))


MEAN = Statistic("mean")
"""Mean of whole numbers; of flags the share of true ones."""
EXACT_MEAN = Statistic("exact_mean")
STD = Statistic("std")
MIN, MAX = Statistic("min"), Statistic("max")
MEDIAN, P25, P75, P95 = (Statistic("quantile", level) for level in (0.5, 0.25, 0.75, 0.95))
TOTAL = Statistic("total")
SHARE = Statistic("share")
RATIO = Statistic("ratio")
EXACT_RATIO = Statistic("exact_ratio")
PART = Statistic("part")
