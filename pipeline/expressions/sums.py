"""Sums whose bits depend on the summands alone: not on row order, chunking, threads or engine.

Floating-point addition is not associative, and an engine may add in any order. Each summand x of a key is therefore
split on two grids that are the same for the whole key: with 2^e <= max|x| < 2^(e+1) and n < 2^b,

    coarse = round(x * 2^-e * 2^(50-b)),  fine = round((x * 2^-e - coarse * 2^(b-50)) * 2^(100-2b))

are whole numbers of less than 53-b bits, so that adding n of either is exact in any order. The sum of x is
(sum(coarse) + sum(fine) * 2^(b-50)) * 2^(b-50) * 2^e, off by at most n * 2^(2b-101) * 2^e: for 8,192 summands about
2^-60 of the largest one, which is finer than adding them in float64. Scaling by 2^e also keeps finite values from
overflowing. A value that counts several times is multiplied on the grid, which gives the very bits that adding it as
many times does. Exponents and powers of two are taken from and put into the bits of a float, so that they are exact on
every machine.

The idea is that of reproducible summation (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

Weights = Mapping[str, str]
"""By the name of a column the one that says how many times each of its values counts; a whole number, at least 1."""

Settle = Callable[[pl.LazyFrame], pl.LazyFrame]
"""Works a frame out, if that is not done yet. What several frames are made from is settled before: their plans would
else be planned as often as there are ways through them."""

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


def summed(
    frame: pl.LazyFrame, columns: Sequence[str], key: str, settle: Settle, weights: Weights = MappingProxyType({})
) -> pl.LazyFrame:
    """Return one row a key with, for every column c, `c_n`, `c_min`, `c_max`, `c_exp` and `c_sum`.

    Keys come in the order of their first rows; the sum over a key is c_sum * 2^c_exp. Nulls take no part. A key with
    nothing to add has n = 0 and sum 0.
    """
    expressions = [expression for c in columns for expression in _extremes(c, weights.get(c))]
    used = dict.fromkeys((*columns, *(weights[c] for c in columns if c in weights)))
    frame = settle(frame.select(key, *used))
    scales = (
        frame.group_by(key, maintain_order=True)
        .agg(expressions)
        .with_columns(_exponent(c).alias(f"{c}_exp") for c in columns)
    )
    factors = {f"__to_{c}": _factor(c) for c in columns}
    values = {c: _value(c) for c in columns}
    return with_scaled_sums(frame, settle(scales), key, "sum", values=values, factors=factors, weights=weights)


def with_scaled_sums(
    frame: pl.LazyFrame,
    scales: pl.LazyFrame,
    key: str,
    suffix: str,
    *,
    values: Mapping[str, pl.Expr],
    factors: Mapping[str, pl.Expr],
    weights: Weights = MappingProxyType({}),
) -> pl.LazyFrame:
    """Add to one row a key `c_suffix` for every c: the sum of values of magnitude below 4, `c_n` of which are not null.

    Args:
        frame: what is added.
        scales: one row a key, in the order of their first rows in `frame`.
        key: column of both.
        suffix: what the sums are called.
        values: expressions over the columns of `frame` and over `factors`.
        factors: expressions over `scales`.
        weights: how many times values count.
    """
    beside = scales.select(key, **factors, **{f"__up_{c}": _fineness(c) for c in values})
    parts = (
        looked_up(frame, beside, key)
        .with_columns((value * pl.col(f"__up_{c}")).alias(f"__value_{c}") for c, value in values.items())
        .with_columns(_coarse(c) for c in values)
        .with_columns(_fine(c) for c in values)
        .with_columns(part for c in values for part in _weighed(c, weights.get(c)))
    )
    added = parts.group_by(key, maintain_order=True).agg(pl.col("^__(coarse|fine)_.*$").sum()).drop(key)
    # Keys come in the order of their first rows on both sides.
    found = pl.concat([scales, added], how="horizontal")
    return found.with_columns(_combined(c).alias(f"{c}_{suffix}") for c in values).drop("^__(coarse|fine)_.*$")


def looked_up(frame: pl.LazyFrame, found: pl.LazyFrame, key: str) -> pl.LazyFrame:
    """Return `frame` with the columns of `found`, which has one row a key. Both are to be settled.

    A join would copy every column of the frame; only those that are looked up are new.
    """
    new = frame.select(key).join(found, on=key, how="left", maintain_order="left").drop(key)
    return pl.concat([frame, new], how="horizontal")


# Expressions are values: the same ones for every chunk, and to build them takes a tenth of the time of using them.
@cache
def _extremes(c: str, weight: str | None) -> tuple[pl.Expr, ...]:
    is_there = pl.col(c).is_not_null()
    count = pl.col(c).count().cast(pl.Int64) if weight is None else pl.when(is_there).then(weight).sum()
    return count.alias(f"{c}_n"), pl.col(c).min().alias(f"{c}_min"), pl.col(c).max().alias(f"{c}_max")


@cache
def _factor(c: str) -> pl.Expr:
    """Return what brings the values of a key below 2."""
    return power_of_two(-pl.col(f"{c}_exp"))


@cache
def _value(c: str) -> pl.Expr:
    return pl.col(c) * pl.col(f"__to_{c}")


@cache
def _exponent(c: str) -> pl.Expr:
    """Return the scale of a column over its key, from its extremes."""
    return exponent(pl.max_horizontal(pl.col(f"{c}_max").abs(), pl.col(f"{c}_min").abs()))


@cache
def _fineness(c: str) -> pl.Expr:
    """Return how many units of the coarse grid make 1; the fine grid has the square of it."""
    return power_of_two(_GRID_BITS - spare_bits(pl.col(f"{c}_n")))


@cache
def _weighed(c: str, weight: str | None) -> tuple[pl.Expr, ...]:
    """Return both parts as many times as the value counts."""
    return () if weight is None else tuple(pl.col(part) * pl.col(weight) for part in (f"__coarse_{c}", f"__fine_{c}"))


@cache
def _coarse(c: str) -> pl.Expr:
    """Return the value in whole units of the coarse grid."""
    return pl.col(f"__value_{c}").round(mode="half_to_even").alias(f"__coarse_{c}")


@cache
def _fine(c: str) -> pl.Expr:
    """Return what the coarse grid leaves of the value, in whole units of the fine grid."""
    rest = (pl.col(f"__value_{c}") - pl.col(f"__coarse_{c}")) * pl.col(f"__up_{c}")
    return rest.round(mode="half_to_even").alias(f"__fine_{c}")


@cache
def _combined(c: str) -> pl.Expr:
    """Return the sum of the scaled values from the sums of their two parts."""
    up = _fineness(c)
    return (pl.col(f"__coarse_{c}") + pl.col(f"__fine_{c}") / up) / up


@cache
def mean(column: str) -> pl.Expr:
    """Return the mean from the columns that `summed` made; null where there is nothing to average."""
    n = pl.col(f"{column}_n")
    value = quotient(pl.col(f"{column}_sum"), n) * power_of_two(pl.col(f"{column}_exp"))
    return pl.when(n > 0).then(value)
