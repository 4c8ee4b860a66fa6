"""Rewards of columnar files: a column of numbers, of structs, or of JSON text, becomes value, state and entries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.sources.column_types import struct_fields
from pipeline.sources.values import Reward, classify, number
from schemas.canonical import OBJECT_STATE, RewardPart
from schemas.frames import polars_type

if TYPE_CHECKING:
    from pipeline.sources.column_types import Types

JSON_TEXT = "reward_json"
"""Column of JSON text that holds rewards of mixed types, which one typed column cannot; where null, `reward` counts."""

_PARTS = pl.List(polars_type(RewardPart))
_REWARD = pl.Struct({"value": pl.Float64(), "state": pl.String(), "parts": _PARTS})
_RAW = pl.Struct({"present": pl.Boolean(), "value": pl.Float64(), "state": pl.String()})


def canonical(types: Types) -> dict[str, pl.Expr]:
    """Return the canonical reward columns."""
    value, state, parts = _reward(types)
    present, raw_value, raw_state = _raw_reward(types)
    return {
        "reward_value": value,
        "reward_value_state": state,
        "reward_parts": parts,
        "has_raw_reward": present,
        "raw_value": pl.when(present).then(raw_value),
        "raw_value_state": pl.when(present).then(raw_state).otherwise(pl.lit("missing")),
    }


def _reward(types: Types) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    value, state = _number(pl.col("reward"), types["reward"]) if "reward" in types else _missing()
    parts = _parts(types.get("reward"))
    if not isinstance(types.get(JSON_TEXT), pl.String):
        return value, state, parts
    parsed = pl.col(JSON_TEXT).map_batches(_classified, return_dtype=_REWARD, is_elementwise=True)
    given = pl.when(pl.col(JSON_TEXT).is_not_null())
    return (
        given.then(parsed.struct.field("value")).otherwise(value),
        given.then(parsed.struct.field("state")).otherwise(state),
        given.then(parsed.struct.field("parts")).otherwise(parts),
    )


def _raw_reward(types: Types) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return (present, value, state): of the column raw_reward, of metadata.raw_reward, present where it is not null."""
    value, state = _missing()
    present = pl.lit(value=False)
    if "raw_reward" in types:
        value, state = _number(pl.col("raw_reward"), types["raw_reward"])
        present = pl.col("raw_reward").is_not_null()
    fields = struct_fields(types.get("metadata"))
    if "raw_reward" in fields:
        column = pl.col("metadata").struct.field("raw_reward")
        own = pl.when(column.is_not_null())
        own_value, own_state = _number(column, fields["raw_reward"])
        value, state = own.then(own_value).otherwise(value), own.then(own_state).otherwise(state)
        present = present | column.is_not_null()
    if isinstance(types.get("metadata"), pl.String):
        parsed = pl.col("metadata").map_batches(_raw_of_text, return_dtype=_RAW, is_elementwise=True)
        own = pl.when(parsed.struct.field("present"))
        value, state = (
            own.then(parsed.struct.field("value")).otherwise(value),
            own.then(parsed.struct.field("state")).otherwise(state),
        )
        present = present | parsed.struct.field("present")
    if isinstance(types.get("has_raw_reward"), pl.Boolean):
        present = pl.coalesce("has_raw_reward", present)
    return present, value, state


def _missing() -> tuple[pl.Expr, pl.Expr]:
    return pl.lit(None, pl.Float64), pl.lit("missing")


def _number(column: pl.Expr, dtype: pl.DataType) -> tuple[pl.Expr, pl.Expr]:
    """Return (finite float64 or null, state) of a column of any type."""
    if isinstance(dtype, pl.Null):
        return _missing()
    absent = pl.when(column.is_null()).then(pl.lit("missing"))
    if isinstance(dtype, pl.Struct):
        # A struct of nulls only is how columnar files write "no dictionary" beside rows that have one.
        return pl.lit(None, pl.Float64), absent.otherwise(pl.lit(OBJECT_STATE))
    if not (dtype.is_numeric() or isinstance(dtype, pl.Boolean)):
        return pl.lit(None, pl.Float64), absent.otherwise(pl.lit("other"))
    number = column.cast(pl.Float64)
    state = absent.when(number.is_nan()).then(pl.lit("nan")).when(number.is_infinite()).then(pl.lit("inf"))
    # See values.number for the 0.0.
    return pl.when(number.is_finite()).then(number + 0.0), state.otherwise(pl.lit("ok"))


def _parts(dtype: pl.DataType | None) -> pl.Expr:
    fields = struct_fields(dtype)
    if not fields:
        return pl.lit(None, _PARTS)
    entries = [_part(name, fields[name]) for name in sorted(fields)]
    given = pl.concat_list(entries).list.drop_nulls()
    return pl.when(pl.col("reward").is_not_null()).then(given)


def _part(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col("reward").struct.field(name)
    value, state = _number(column, dtype)
    state = pl.when(state == OBJECT_STATE).then(pl.lit("other")).otherwise(state)
    text = column.str.slice(0, 200) if isinstance(dtype, pl.String) else pl.lit(None, pl.String)
    entry = pl.struct(key=pl.lit(name), value=value, state=state, text=text)
    return pl.when(column.is_not_null()).then(entry)


def _classified(texts: pl.Series) -> pl.Series:
    return pl.Series(texts.name, [_classify_text(text) for text in texts], dtype=_REWARD)


def _classify_text(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return classify(json.loads(text))._asdict()
    except (ValueError, RecursionError):
        return Reward(None, "other")._asdict()


def _raw_of_text(texts: pl.Series) -> pl.Series:
    return pl.Series(texts.name, [_raw_of(text) for text in texts], dtype=_RAW)


def _raw_of(text: str | None) -> dict[str, Any]:
    try:
        metadata = json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        metadata = None
    present = isinstance(metadata, dict) and "raw_reward" in metadata
    value, state = number(metadata["raw_reward"]) if present and metadata is not None else (None, "missing")
    return {"present": present, "value": value, "state": state}
