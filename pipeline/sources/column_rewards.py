"""Rewards of columnar files: a column of numbers, of structs, or of JSON text, becomes value, state and entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.expressions.rewards import STATES
from pipeline.sources.column_types import METADATA, is_text, struct_fields
from pipeline.sources.json_text import parse
from pipeline.sources.values import MAX_TEXT, Reward, classify
from schemas.canonical import OBJECT_STATE, RewardPart, RewardState
from schemas.frames import polars_type

if TYPE_CHECKING:
    from pipeline.sources.column_types import Types

JSON_TEXT = "reward_json"
"""Column of JSON text that holds rewards of mixed types, which one typed column cannot; where null, `reward` counts."""

_PARTS = pl.List(polars_type(RewardPart))
_REWARD = pl.Struct({"value": pl.Float64(), "state": STATES, "parts": _PARTS})


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
        "raw_value_state": pl.when(present).then(raw_state).otherwise(_state("missing")),
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
    """Return (present, value, state) of the column raw_reward or of metadata.raw_reward, present where not null."""
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
    if is_text(types.get("metadata")):
        own_value, own_state, own_present = (
            pl.col(METADATA).struct.field(name) for name in ("raw_value", "raw_state", "has_raw_reward")
        )
        own = pl.when(own_present)
        value, state = own.then(own_value).otherwise(value), own.then(own_state.cast(STATES)).otherwise(state)
        present = present | own_present
    if isinstance(types.get("has_raw_reward"), pl.Boolean):
        present = pl.coalesce("has_raw_reward", present)
    # A dictionary is no number here: reward_key is not applied to raw rewards.
    return present, value, pl.when(state == OBJECT_STATE).then(_state("other")).otherwise(state)


def _state(word: RewardState) -> pl.Expr:
    return pl.lit(word, STATES)


def _missing() -> tuple[pl.Expr, pl.Expr]:
    return pl.lit(None, pl.Float64), _state("missing")


def _number(column: pl.Expr, dtype: pl.DataType) -> tuple[pl.Expr, pl.Expr]:
    """Return (finite float64 or null, state) of a column of any type."""
    if isinstance(dtype, pl.Null):
        return _missing()
    absent = pl.when(column.is_null()).then(_state("missing"))
    if isinstance(dtype, pl.Struct):
        # A struct of nulls only is how columnar files write "no dictionary" beside rows that have one.
        return pl.lit(None, pl.Float64), absent.otherwise(_state(OBJECT_STATE))
    if not (dtype.is_numeric() or isinstance(dtype, pl.Boolean)):
        return pl.lit(None, pl.Float64), absent.otherwise(_state("other"))
    number = column.cast(pl.Float64)
    state = absent.when(number.is_nan()).then(_state("nan")).when(number.is_infinite()).then(_state("inf"))
    # -0.0 becomes 0.0, as everywhere (see values.number). Adding 0.0 would not do it: the engine leaves that out.
    finite = pl.when(number == 0).then(pl.lit(0.0)).when(number.is_finite()).then(number)
    return finite, state.otherwise(_state("ok"))


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
    state = pl.when(state == OBJECT_STATE).then(_state("other")).otherwise(state)
    text = column.cast(pl.String).str.slice(0, MAX_TEXT) if is_text(dtype) else pl.lit(None, pl.String)
    entry = pl.struct(key=pl.lit(name), value=value, state=state.cast(pl.String), text=text)
    return pl.when(column.is_not_null()).then(entry)


def _classified(texts: pl.Series) -> pl.Series:
    return pl.Series(texts.name, [_classify_text(text) for text in texts], dtype=_REWARD)


def _classify_text(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return classify(parse(text))._asdict()
    except (ValueError, RecursionError):
        return Reward(None, "other")._asdict()
