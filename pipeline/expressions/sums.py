"""Sums whose bits depend on the summands alone: not on row order, chunking, threads or engine.

Floating-point addition is not associative, and an engine may add in any order. Each summand x of a key is therefore
split on two grids that are the same for the whole key: with 2^e <= max|x| < 2^(e+1) and n < 2^b,

    coarse = round(x * 2^-e * 2^(51-b)),  fine = round((x * 2^-e - coarse * 2^(b-51)) * 2^(102-2b))

are whole numbers of at most 52-b bits, so that adding n of either is exact in any order. The sum of x is
(sum(coarse) + sum(fine) * 2^(b-51)) * 2^(b-51) * 2^e, off by at most n * 2^(2b-103) * 2^e: for 8,192 summands about
2^-60 of the largest one, which is finer than adding them in float64.
Scaling by 2^e also keeps finite values from overflowing.

The idea is that of reproducible summation (Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", 2013).
"""

from __future__ import annotations

import polars as pl

_MIN_EXPONENT, _MAX_EXPONENT = -960, 1023
_GRID_BITS = 51
_SQUARE_EXPONENT = 2
"""Squares of values below 2 are below 2^2."""


def exponent(largest: pl.Expr) -> pl.Expr:
    """Return e with 2^e <= `largest` < 2^(e+1), up to the rounding of the logarithm; 0 for 0 or null."""
    logarithm = largest.log(2.0).floor().clip(_MIN_EXPONENT, _MAX_EXPONENT)
    return pl.when(largest > 0).then(logarithm).otherwise(0.0)


def spare_bits(count: pl.Expr) -> pl.Expr:
    """Return b with count < 2^b."""
    return (count.cast(pl.Float64) + 1.0).log(2.0).ceil() + 1.0


def power_of_two(exponent: pl.Expr) -> pl.Expr:
    """Return 2^exponent, exactly."""
    return pl.lit(2.0).pow(exponent)


def scaled(value: pl.Expr, exponent: pl.Expr) -> pl.Expr:
    """Return value * 2^-exponent: exact, of magnitude below 2."""
    return value * power_of_two(-exponent)


def coarse(scaled_value: pl.Expr, bits: pl.Expr) -> pl.Expr:
    """Return the scaled value in whole units of the coarse grid 2^(b-51)."""
    return (scaled_value * power_of_two(_GRID_BITS - bits)).round(mode="half_to_even")


def fine(scaled_value: pl.Expr, bits: pl.Expr) -> pl.Expr:
    """Return what the coarse grid leaves of the scaled value, in whole units of the fine grid 2^(2b-102)."""
    rest = scaled_value - coarse(scaled_value, bits) * power_of_two(bits - _GRID_BITS)
    return (rest * power_of_two(2.0 * (_GRID_BITS - bits))).round(mode="half_to_even")


def combined(coarse_sum: pl.Expr, fine_sum: pl.Expr, bits: pl.Expr) -> pl.Expr:
    """Return the sum of the scaled values from the sums of their two parts."""
    unit = power_of_two(bits - _GRID_BITS)
    return (coarse_sum + fine_sum * unit) * unit


def with_sums(frame: pl.LazyFrame, columns: tuple[str, ...], key: str) -> pl.LazyFrame:
    """Add, for every column c, `c_n` (non-null values), `c_exp` and `c_sum`: the sum over `key` is c_sum * 2^c_exp.

    Shapes: one value a row, equal within `key`. Nulls take no part. A key with nothing to add has n = 0 and sum 0.
    """
    frame = frame.with_columns(
        expression.over(key)
        for c in columns
        for expression in (pl.col(c).abs().max().alias(f"{c}_abs"), pl.col(c).count().cast(pl.Int64).alias(f"{c}_n"))
    )
    frame = frame.with_columns(exponent(pl.col(f"{c}_abs")).alias(f"{c}_exp") for c in columns)
    for c in columns:
        frame = with_scaled_sum(frame, scaled(pl.col(c), pl.col(f"{c}_exp")), key, out=f"{c}_sum", count=f"{c}_n")
    return frame.drop(f"{c}_abs" for c in columns)


def with_scaled_sum(frame: pl.LazyFrame, value: pl.Expr, key: str, *, out: str, count: str) -> pl.LazyFrame:
    """Add `out`, the sum over `key` of values of magnitude below 2, of which `count` are not null."""
    bits = spare_bits(pl.col(count))
    frame = frame.with_columns(__value=value).with_columns(
        __coarse=coarse(pl.col("__value"), bits), __fine=fine(pl.col("__value"), bits)
    )
    frame = frame.with_columns(pl.col("__coarse", "__fine").sum().over(key))
    total = combined(pl.col("__coarse"), pl.col("__fine"), bits)
    return frame.with_columns(total.alias(out)).drop("__value", "__coarse", "__fine")


def mean(column: str) -> pl.Expr:
    """Return the mean from the columns that `with_sums` made; null where there is nothing to average."""
    n = pl.col(f"{column}_n")
    value = pl.col(f"{column}_sum") / n * power_of_two(pl.col(f"{column}_exp"))
    return pl.when(n > 0).then(value)
