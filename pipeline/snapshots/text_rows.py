"""Rows as lines of text: one JSON array a row, floats exact, the same content always the same text.

JSON has no NaN and no infinity: in a column of floats they are the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NAMES: dict[str, pl.DataType] = {
    "bool": pl.Boolean(),
    "int": pl.Int64(),
    "float": pl.Float64(),
    "str": pl.String(),
}
"""Column types as a snapshot names them."""
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def type_name(dtype: pl.DataType) -> str:
    """Return how a snapshot names a column's type."""
    return next(name for name, known in NAMES.items() if known == dtype)


def lines(frame: pl.DataFrame) -> Iterator[str]:
    """Yield the rows of a frame as lines."""
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for row in frame.iter_rows():
        try:
            yield encoder.encode(row)
        except ValueError:
            yield encoder.encode([_worded(value) for value in row])


def frame(rows: Iterable[list[Any]], columns: dict[str, str]) -> pl.DataFrame:
    """Return rows as a frame.

    Raises:
        ValueError: a row has another length, or a value of another type than its column.
    """
    schema = {name: NAMES[kind] for name, kind in columns.items()}
    floats = [place for place, kind in enumerate(columns.values()) if kind == "float"]
    checked = [_read(row, len(columns), floats) for row in rows]
    try:
        return pl.DataFrame(checked, schema=schema, orient="row", strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ValueError(str(error)) from error


def _worded(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _read(row: list[Any], width: int, floats: list[int]) -> list[Any]:
    if not isinstance(row, list) or len(row) != width:
        message = f"expected {width} values, found {json.dumps(row)[:80]}"
        raise ValueError(message)
    for place in floats:
        if isinstance(row[place], str):
            row[place] = _WORDS.get(row[place], row[place])
    return row
