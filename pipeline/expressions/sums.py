"""Sums whose bits depend on the summands alone: not on row order, chunking, threads or engine.

Floating-point addition is not associative, and an engine may add in any order. Each summand x of a key is therefore
split on two grids that are the same for the whole key: with 2^e <= max|x| < 2^(e+1) and n < 2^b,

    coarse = round(x * 2^-e * 2^(50-b)),  fine = round((x * 2^-e - coarse * 2^(b-50)) * 2^(100-2b))

are whole numbers of less than 53-b bits, so that adding n of either is exact in any order. The sum of x is
(sum(coarse) + sum(fine) * 2^(b-50)) * 2^(b-50) * 2^e, off by at most n * 2^(2b-101) * 2^e: for 8,192 summands about
2^-60 of the largest one, which is finer than adding them in float64. Scaling by 2^e also keeps finite values from
overflowing. A value that counts several times is multiplied on the grid, which gives the very bits that adding it as many
times does. Exponents and powers of two are taken from and put into the bits of a float, so that they are exact on
every machine.

The idea is that of reproducible summation (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

Weights = Mapping[str, str]
"""By the name of a column the one that says how many times each of its values counts; a whole number, at least 1."""

_MIN_EXPONENT, _MAX_EXPONENT = -960, 1022
"""Within these, powers of two and their inverses are normal numbers; what is below is added on the lowest's grid."""
_MANTISSA, _BIAS, _EXPONENT_MASK = 2**52, 1023, 2**11
_GRID_BITS = 50
_INT_BITS = 64


def exponent(largest: pl.Expr) -> pl.Expr:
    """Return e with 2^e <= `largest` < 2^(e+1), kept within what can be inverted; the lowest for 0 or null."""
    biased = largest.reinterpret(dtype=pl.Int64) // _MANTISSA % _EXPONENT_MASK
    return (biased - _BIAS).clip(_MIN_EXPONENT, _MAX_EXPONENT).fill_null(_MIN_EXPONENT)


def power_of_two(exponent: pl.Expr) -> pl.Expr:
    """Return 2^exponent for a whole exponent from -1022 to 1023, exactly."""
    return ((exponent + _BIAS) * _MANTISSA).reinterpret(dtype=pl.Float64)


def spare_bits(count: pl.Expr) -> pl.Expr:
    """Return b with count < 2^b."""
    return _INT_BITS - count.bitwise_leading_zeros().cast(pl.Int64)


def quotient(dividend: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """Return dividend / divisor, rounded correctly, also where there is one row only.

    Polars multiplies by the reciprocal where it finds a divisor of one row, which is off in the last bit: the same
    batch would get other bits alone than in company.
    """
    operands = [dividend.cast(pl.Float64), divisor.cast(pl.Float64)]
    return pl.map_batches(operands, _divided, return_dtype=pl.Float64, is_elementwise=True)


def _divided(operands: Sequence[pl.Series]) -> pl.Series:
    dividend, divisor = operands
    if len(divisor) != 1:
        return dividend / divisor
    return (pl.concat([dividend, dividend]) / pl.concat([divisor, divisor])).head(1)


def scaled(value: pl.Expr, exponent: pl.Expr) -> pl.Expr:
    """Return value * 2^-exponent: exact, of magnitude below 4."""
    return value * power_of_two(-exponent)


def extremes(columns: Sequence[str], key: str, weights: Weights = MappingProxyType({})) -> list[pl.Expr]:
    """Return `c_n` (non-null values), `c_min` and `c_max` over `key` for every column c."""
    return [
        expression.over(key)
        for c in columns
        for expression in (
            _count(c, weights.get(c)).alias(f"{c}_n"),
            pl.col(c).min().alias(f"{c}_min"),
            pl.col(c).max().alias(f"{c}_max"),
        )
    ]


def _count(c: str, weight: str | None) -> pl.Expr:
    if weight is None:
        return pl.col(c).count().cast(pl.Int64)
    return pl.when(pl.col(c).is_not_null()).then(weight).sum()


def exponents(columns: Sequence[str]) -> list[pl.Expr]:
    """Return `c_exp`, the scale of every column c over its key, from its extremes."""
    return [
        exponent(pl.max_horizontal(pl.col(f"{c}_max").abs(), pl.col(f"{c}_min").abs())).alias(f"{c}_exp")
        for c in columns
    ]


def with_sums(
    frame: pl.LazyFrame, columns: Sequence[str], key: str, weights: Weights = MappingProxyType({})
) -> pl.LazyFrame:
    """Add, for every column c, `c_sum`: the sum over `key` is c_sum * 2^c_exp. Also its n, min, max and exponent.

    Shapes: one value a row, equal within `key`. Nulls take no part. A key with nothing to add has n = 0 and sum 0.
    """
    frame = frame.with_columns(extremes(columns, key, weights)).with_columns(exponents(columns))
    values = {c: scaled(pl.col(c), pl.col(f"{c}_exp")) for c in columns}
    return with_scaled_sums(frame, values, key, suffix="sum", weights=weights)


def with_scaled_sums(
    frame: pl.LazyFrame,
    values: dict[str, pl.Expr],
    key: str,
    *,
    suffix: str,
    weights: Weights = MappingProxyType({}),
) -> pl.LazyFrame:
    """Add `c_suffix` for every c: the sum over `key` of values of magnitude below 4, of which `c_n` are not null."""
    parts = [part for c in values for part in _parts(c)]
    units = {c: spare_bits(pl.col(f"{c}_n")) - _GRID_BITS for c in values}
    return (
        frame.with_columns(value.alias(f"__value_{c}") for c, value in values.items())
        .with_columns(_coarse(c, units[c]) for c in values)
        .with_columns(_fine(c, units[c]) for c in values)
        .with_columns(_weighed(part, weights.get(c)).sum().over(key) for c in values for part in _parts(c))
        .with_columns(_combined(c, units[c]).alias(f"{c}_{suffix}") for c in values)
        .drop(parts, [f"__value_{c}" for c in values])
    )


def _parts(c: str) -> tuple[str, str]:
    return f"__coarse_{c}", f"__fine_{c}"


def _weighed(part: str, weight: str | None) -> pl.Expr:
    return pl.col(part) if weight is None else pl.col(part) * pl.col(weight)


def _coarse(c: str, unit: pl.Expr) -> pl.Expr:
    """Return the value in whole units of the coarse grid 2^unit."""
    return (pl.col(f"__value_{c}") * power_of_two(-unit)).round(mode="half_to_even").alias(f"__coarse_{c}")


def _fine(c: str, unit: pl.Expr) -> pl.Expr:
    """Return what the coarse grid leaves of the value, in whole units of the fine grid 4^unit."""
    rest = pl.col(f"__value_{c}") - pl.col(f"__coarse_{c}") * power_of_two(unit)
    return (rest * power_of_two(-2 * unit)).round(mode="half_to_even").alias(f"__fine_{c}")


def _combined(c: str, unit: pl.Expr) -> pl.Expr:
    """Return the sum of the scaled values from the sums of their two parts."""
    grid = power_of_two(unit)
    return (pl.col(f"__coarse_{c}") + pl.col(f"__fine_{c}") * grid) * grid


def mean(column: str) -> pl.Expr:
    """Return the mean from the columns that `with_sums` made; null where there is nothing to average."""
    n = pl.col(f"{column}_n")
    value = quotient(pl.col(f"{column}_sum"), n) * power_of_two(pl.col(f"{column}_exp"))
    return pl.when(n > 0).then(value)
