"""Two columns, row by row: which values differ, which only moved within the tolerance, and by how much.

A value passes only if that is shown: the same state on both sides (null, NaN, +-infinity, number), and for numbers
|a - b| <= max(absolute, relative * max(|a|, |b|)). Whatever cannot be compared does not pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from schemas.snapshot import Tolerance

STATES = ("null", "NaN", "+inf", "-inf", "number")
_NUMBER = len(STATES) - 1
DIFFERS, WITHIN, SCORE, FROM, TO = "differs", "within", "score", "from", "to"


def compared(old: pl.Series, new: pl.Series, tolerance: Tolerance) -> pl.DataFrame:
    """Return a row for every pair of values: old, new, differs, within, score, from, to.

    `score` orders differences by size: infinite for a change of state, |new - old| between numbers. `from` and `to` are
    indices of STATES.
    """
    if old.dtype != new.dtype:
        old, new = old.cast(pl.Float64), new.cast(pl.Float64)
    pair = pl.DataFrame([old.alias("old"), new.alias("new")])
    state = _float_state if old.dtype.is_float() else _null_state
    pair = pair.with_columns(state("old").alias(FROM), state("new").alias(TO))
    return pair.with_columns(
        _differs(tolerance, numeric=old.dtype.is_numeric()).alias(DIFFERS),
        _score(numeric=old.dtype.is_numeric()).alias(SCORE),
    ).with_columns((~pl.col(DIFFERS) & pl.col("old").ne_missing(pl.col("new"))).alias(WITHIN))


def _differs(tolerance: Tolerance, *, numeric: bool) -> pl.Expr:
    same_state = pl.col(FROM) == pl.col(TO)
    if not numeric:
        return pl.col("old").ne_missing(pl.col("new"))
    # Integers are compared as such: a difference of 1 beyond 2^53 is one, too.
    equal = pl.col("old") == pl.col("new")
    near = _distance() <= pl.max_horizontal(
        pl.lit(tolerance.absolute), tolerance.relative * pl.max_horizontal(_magnitude("old"), _magnitude("new"))
    )
    exact = tolerance.absolute == 0 and tolerance.relative == 0
    close = equal if exact else (equal | near)
    shown = same_state & ((pl.col(FROM) != _NUMBER) | close)
    return ~shown.fill_null(value=False)


def _score(*, numeric: bool) -> pl.Expr:
    size = _distance().fill_null(0.0).fill_nan(float("inf")) if numeric else pl.lit(1.0)
    return pl.when(pl.col(FROM) != pl.col(TO)).then(float("inf")).otherwise(size)


def _distance() -> pl.Expr:
    return (pl.col("new").cast(pl.Float64) - pl.col("old").cast(pl.Float64)).abs()


def _magnitude(side: str) -> pl.Expr:
    return pl.col(side).cast(pl.Float64).abs()


def _float_state(side: str) -> pl.Expr:
    value = pl.col(side)
    return (
        pl.when(value.is_null())
        .then(0)
        .when(value.is_nan())
        .then(1)
        .when(value == float("inf"))
        .then(2)
        .when(value == float("-inf"))
        .then(3)
        .otherwise(_NUMBER)
    ).cast(pl.Int8)


def _null_state(side: str) -> pl.Expr:
    return pl.when(pl.col(side).is_null()).then(0).otherwise(_NUMBER).cast(pl.Int8)
