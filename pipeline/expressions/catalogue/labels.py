"""Numbers as parts of names: `1.0`, `-0.5`, rounded to one decimal as trainers name their counts."""

from __future__ import annotations

import polars as pl

DECIMALS_UP_TO = 1e15
"""Larger magnitudes are written with an exponent and one digit."""


def label(value: float) -> str:
    """Return a number as it stands in a name: correctly rounded to one decimal, never `-0.0`."""
    text = f"{value:.1f}" if abs(value) < DECIMALS_UP_TO else f"{value:.0e}"
    return "0.0" if text == "-0.0" else text


def labelled(values: pl.Expr) -> pl.Expr:
    """Return the labels of numbers; Polars' own rounding is not that of decimals (0.15 is nearer to 0.1)."""
    return values.map_batches(_labels, return_dtype=pl.String, is_elementwise=True)


def _labels(values: pl.Series) -> pl.Series:
    known = {value: label(value) for value in values.drop_nulls().unique().to_list()}
    return pl.Series(values.name, [None if value is None else known[value] for value in values], dtype=pl.String)
