"""Whether two columns of figures say the same: what hints are decided by."""

from __future__ import annotations

import polars as pl

CLOSE = 1e-9


def close(left: pl.Expr, right: pl.Expr, relative: float = CLOSE, absolute: float = 1e-12) -> pl.Expr:
    """Return whether two numbers agree; false where one of them is null or no number."""
    distance = (left - right).abs()
    bound = pl.max_horizontal(pl.lit(absolute), relative * pl.max_horizontal(left.abs(), right.abs()))
    return (distance <= bound).fill_null(value=False)


def all_rows(frame: pl.DataFrame, condition: pl.Expr) -> bool:
    """Return whether there is a row, and every row meets the condition."""
    return frame.height > 0 and bool(frame.select(condition.fill_null(value=False).all()).item())


def numbers(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the rows in which a column differs between two finite numbers, as `a` (old) and `b` (new)."""
    if f"differs:{column}" not in frame.columns or not all(
        frame.schema[f"{side}:{column}"].is_numeric() for side in ("old", "new")
    ):
        return pl.DataFrame(schema={"a": pl.Float64, "b": pl.Float64})
    a, b = pl.col(f"old:{column}").cast(pl.Float64), pl.col(f"new:{column}").cast(pl.Float64)
    rows = frame.filter(pl.col(f"differs:{column}")).with_columns(a=a, b=b)
    return rows.filter(pl.col("a").is_finite() & pl.col("b").is_finite())
