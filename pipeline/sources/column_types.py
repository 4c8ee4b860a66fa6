"""Column checks of the input contract: which rows may be taken as they are, and their canonical values.

A row that is not certainly right is left to `SampleRecord`, which words what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.sources.extras import tool_messages
from pipeline.sources.json_text import parse
from pipeline.sources.values import number, readable
from schemas.table import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.sources.gathering import BatchKey

    Types = Mapping[str, pl.DataType]

_NULL = pl.lit(None)
_WHOLE = ("rollout_id", "index", "group_index", "prompt_group", "step", "adapter_slot")
_TOKENS = ("response_length", "trainable_tokens")
_TEXT = ("run", "status", "adapter_name")
_FLAGS = ("remove_sample", "has_raw_reward")
_INT64_LIMIT = 2.0**63
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
METADATA = "__metadata"
"""Column of what metadata given as JSON text says."""
_METADATA_TYPE = pl.Struct(
    {
        "is_valid": pl.Boolean(),
        "registration_id": pl.String(),
        "has_raw_reward": pl.Boolean(),
        "raw_value": pl.Float64(),
        "raw_state": pl.String(),
        "tool_calls": pl.Int64(),
    }
)


def keys(types: Types, default: BatchKey) -> dict[str, pl.Expr]:
    """Return run, split and step of every row as `__run`, `__split`, `__step`: its own, or the file's."""
    split = _text(types, "split")
    return {
        "__run": pl.coalesce(_text(types, "run"), pl.lit(default.run)),
        "__split": pl.when(split.is_in(["train", "eval"])).then(split).otherwise(pl.lit(default.split)),
        "__step": pl.coalesce(_whole(types, "step"), pl.lit(default.step, pl.Int64)),
    }


def parsed(types: Types) -> dict[str, pl.Expr]:
    """Return what JSON text has to be parsed for, once, before the checks."""
    if not is_text(types.get("metadata")):
        return {}
    text = pl.col("metadata").cast(pl.String)
    return {METADATA: text.map_batches(_read_metadata, return_dtype=_METADATA_TYPE, is_elementwise=True)}


def checked(types: Types) -> dict[str, pl.Expr]:
    """Return, for every column of the contract, whether a row's value is not certainly right (`__bad_NAME`)."""
    bad: dict[str, pl.Expr] = {}
    for names, convert in ((_WHOLE, _whole), (_TOKENS, _tokens), (_TEXT, _text), (_FLAGS, _flag)):
        for name in names:
            if name in types:
                bad[f"__bad_{name}"] = pl.col(name).is_not_null() & convert(types, name).is_null()
    if "split" in types:
        known = _text(types, "split").is_in(["train", "eval"]).fill_null(value=False)
        bad["__bad_split"] = pl.col("split").is_not_null() & ~known
    if "adapter" in types:
        bad["__bad_adapter"] = _bad_adapter(types)
    if "loss_mask" in types:
        bad["__bad_loss_mask"] = _bad_mask(types)
    if "metadata" in types:
        bad["__bad_metadata"] = _bad_metadata(types)
    bad["__bad_lengths"] = _no_length(types)
    if "adapter_slot" in types:
        nameless = _text(types, "adapter_name").is_null() & (_adapter(types)[0]).is_null()
        bad["__bad_slot"] = pl.col("adapter_slot").is_not_null() & nameless
    return bad


def canonical(types: Types) -> dict[str, pl.Expr]:
    """Return the canonical columns, rewards apart, of rows that have passed the checks."""
    name, slot = _adapter(types)
    own_name, own_slot = _text(types, "adapter_name"), _whole(types, "adapter_slot")
    has_adapter = name.is_not_null()
    mask, length = _mask(types)
    return {
        "run": pl.col("__run"),
        "split": pl.col("__split"),
        "step": pl.col("__step"),
        "row": pl.col("row"),
        "adapter_name": pl.when(has_adapter).then(name).otherwise(own_name),
        "adapter_slot": pl.when(has_adapter).then(slot).otherwise(own_slot),
        "registration_id": _registration(types),
        "rollout_id": _whole(types, "rollout_id"),
        "sample_index": _whole(types, "index"),
        "group_index": _whole(types, "group_index"),
        "explicit_group": _whole(types, "prompt_group"),
        "response_length": pl.coalesce(_tokens(types, "response_length"), length),
        "mask_tokens": pl.coalesce(mask, _tokens(types, "trainable_tokens")),
        "remove_sample": _flag(types, "remove_sample").fill_null(value=False),
        "status": _text(types, "status"),
    }


def _whole(types: Types, name: str) -> pl.Expr:
    return _whole_of(pl.col(name), types[name]) if name in types else _NULL.cast(pl.Int64)


def _whole_of(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    if dtype.is_float():
        column = column.cast(pl.Float64)
        fits = (column == column.floor()) & (column >= -_INT64_LIMIT) & (column < _INT64_LIMIT)
        return pl.when(fits).then(column).cast(pl.Int64, strict=False)
    return _NULL.cast(pl.Int64)


def _tokens(types: Types, name: str) -> pl.Expr:
    return token_count(pl.col(name), types[name]) if name in types else _NULL.cast(pl.Int64)


def token_count(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return the whole numbers in [0, 2**40) of a column of any type, nulls for everything else."""
    value = _whole_of(column, dtype)
    return pl.when((value >= 0) & (value < MAX_TOKENS)).then(value)


def _text(types: Types, name: str) -> pl.Expr:
    return _text_of(pl.col(name), types[name]) if name in types else _NULL.cast(pl.String)


def _text_of(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    return column.cast(pl.String) if is_text(dtype) else _NULL.cast(pl.String)


def _flag(types: Types, name: str) -> pl.Expr:
    return pl.col(name) if isinstance(types.get(name), pl.Boolean) else _NULL.cast(pl.Boolean)


def _adapter(types: Types) -> tuple[pl.Expr, pl.Expr]:
    """Return (name, slot) of the struct column `adapter`, nulls where there is none."""
    name, slot = _adapter_part(types, "name", _text_of), _adapter_part(types, "slot", _whole_of)
    return name.cast(pl.String), slot.cast(pl.Int64)


def _adapter_part(types: Types, part: str, convert: Callable[[pl.Expr, pl.DataType], pl.Expr]) -> pl.Expr:
    fields = struct_fields(types.get("adapter"))
    return convert(pl.col("adapter").struct.field(part), fields[part]) if part in fields else _NULL


def _bad_adapter(types: Types) -> pl.Expr:
    fields = struct_fields(types["adapter"])
    if not fields:
        return pl.col("adapter").is_not_null()
    name, slot = _adapter(types)
    given = {part: pl.col("adapter").struct.field(part).is_not_null() for part in ("name", "slot") if part in fields}
    has_name, has_slot = (given.get(part, pl.lit(value=False)) for part in ("name", "slot"))
    return (has_name & name.is_null()) | (has_slot & (slot.is_null() | name.is_null()))


def _mask(types: Types) -> tuple[pl.Expr, pl.Expr]:
    """Return (sum, length) of the loss mask, nulls where there is none."""
    dtype = types.get("loss_mask")
    if not isinstance(dtype, (pl.List, pl.Array)):
        return _NULL.cast(pl.Int64), _NULL.cast(pl.Int64)
    mask = pl.col("loss_mask").cast(pl.List(dtype.inner))
    if isinstance(dtype.inner, pl.Null):
        return pl.when(mask.is_not_null()).then(pl.lit(0, pl.Int64)), mask.list.len().cast(pl.Int64)
    return mask.cast(pl.List(pl.Int64)).list.sum(), mask.list.len().cast(pl.Int64)


def _bad_mask(types: Types) -> pl.Expr:
    dtype = types["loss_mask"]
    mask = pl.col("loss_mask")
    if not isinstance(dtype, (pl.List, pl.Array)):
        return mask.is_not_null()
    inner: pl.DataType = dtype.inner  # type: ignore[assignment]
    mask = mask.cast(pl.List(inner))
    length = mask.list.len().cast(pl.Int64)
    wrong_length = (length != _tokens(types, "response_length")).fill_null(value=False)
    if isinstance(inner, pl.Null):
        return wrong_length | (length > 0).fill_null(value=False)
    if not (inner.is_numeric() or isinstance(inner, pl.Boolean)):
        return mask.is_not_null()
    numbers = mask.cast(pl.List(pl.Float64))
    negative = (numbers.list.min() < 0).fill_null(value=False)
    absurd = (numbers.list.sum() >= MAX_TOKENS).fill_null(value=False)
    holes = mask.list.count_matches(None).fill_null(0) > 0
    fractions = pl.lit(value=False)
    if inner.is_float():
        whole = mask.list.eval((pl.element() == pl.element().floor()) & (pl.element().abs() < MAX_TOKENS)).list.all()
        fractions = ~whole.fill_null(value=True)
    return wrong_length | negative | absurd | holes | fractions


def _no_length(types: Types) -> pl.Expr:
    given = [
        pl.col(name).is_not_null() for name in ("response_length", "loss_mask", "trainable_tokens") if name in types
    ]
    return ~pl.any_horizontal(given) if given else pl.lit(value=True)


def _bad_metadata(types: Types) -> pl.Expr:
    dtype = types["metadata"]
    if is_text(dtype):
        return ~pl.col(METADATA).struct.field("is_valid")
    is_readable = isinstance(dtype, (pl.Struct, pl.Null))
    return pl.lit(value=False) if is_readable else pl.col("metadata").is_not_null()


def _read_metadata(texts: pl.Series) -> pl.Series:
    return pl.Series(texts.name, [_metadata(text) for text in texts], dtype=_METADATA_TYPE)


def _metadata(text: str | None) -> dict[str, Any]:
    try:
        metadata = parse(text) if text is not None else None
    except (ValueError, RecursionError):
        metadata = text
    entries = metadata if isinstance(metadata, dict) else {}
    registration = entries.get("registration_id")
    value, state = number(entries.get("raw_reward"))
    return {
        "is_valid": metadata is None or isinstance(metadata, dict),
        "registration_id": readable(registration) if isinstance(registration, str) else None,
        "has_raw_reward": "raw_reward" in entries,
        "raw_value": value,
        "raw_state": state,
        "tool_calls": tool_messages(entries.get("messages")),
    }


def _registration(types: Types) -> pl.Expr:
    if is_text(types.get("metadata")):
        return pl.col(METADATA).struct.field("registration_id")
    fields = struct_fields(types.get("metadata"))
    if "registration_id" not in fields:
        return _NULL
    return _text_of(pl.col("metadata").struct.field("registration_id"), fields["registration_id"])


def is_text(dtype: pl.DataType | None) -> bool:
    """Return whether a type is one of texts."""
    return isinstance(dtype, _TEXTS)


def struct_fields(dtype: pl.DataType | None) -> dict[str, pl.DataType]:
    """Return the fields of a struct type; nothing for any other type."""
    return {field.name: field.dtype for field in dtype.fields} if isinstance(dtype, pl.Struct) else {}  # type: ignore[misc]
