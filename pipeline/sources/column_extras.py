"""Extras of columnar files: columns of any type become the canonical ones, null where they are not understood."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.sources import extras
from pipeline.sources.column_types import METADATA, is_text, struct_fields, token_count
from pipeline.sources.json_text import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.sources.column_types import Types

    Names = Mapping[str, tuple[str, ...]]

_VERSIONS = pl.Schema({"seen": pl.Int64(), "oldest": pl.Int64(), "newest": pl.Int64()})
_VERSION_FIELDS = ("weight_versions", "legacy_weight_versions")
_COUNTS: dict[str, Names] = {"prefix_cache_info": extras.PREFIX_CACHE, "spec_info": extras.SPECULATION}
_LARGE = ("response", "prompt")


def are_large(types: Types) -> bool:
    """Return whether raw columns hold whole texts, which are best read a piece at a time."""
    return any(name in types for name in _LARGE)


def parsed(types: Types) -> dict[str, pl.Expr]:
    """Return what Python has to look at, row by row, once: `__versions`, and counts given as JSON text."""
    found = {f"__{name}": _parsed_counts(name) for name in _COUNTS if is_text(types.get(name))}
    if any(name in types for name in _VERSION_FIELDS):
        rows = pl.struct([_without_places(name, types.get(name)).alias(name) for name in _VERSION_FIELDS])
        found["__versions"] = rows.map_batches(_versions, return_dtype=pl.Struct(_VERSIONS), is_elementwise=True)
    return found


def read(types: Types) -> dict[str, pl.Expr]:
    """Return what the raw columns say, as canonical columns; `tool_calls` of the prompt only."""
    found: dict[str, pl.Expr] = {}
    if any(name in types for name in _VERSION_FIELDS):
        versions = pl.col("__versions").struct
        found["versions_seen"] = versions.field("seen")
        found["version_oldest"], found["version_newest"] = versions.field("oldest"), versions.field("newest")
    for name in _COUNTS:
        if name in types:
            found |= _counts(name, types[name])
    if "non_generation_time" in types:
        found["non_generation_time"] = _seconds(pl.col("non_generation_time"), types["non_generation_time"])
    if is_text(types.get("response")):
        found["is_repetitive"] = _is_repetitive(pl.col("response").cast(pl.String))
    calls = _tool_calls_of_prompt(types)
    return found if calls is None else {**found, "tool_calls": calls}


def canonical(types: Types, found: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
    """Return the canonical columns, of which `found` have been read; metadata says more of the tools."""
    columns = {name: pl.col(name) for name in found}
    calls = _tool_calls_of_metadata(types)
    if calls is not None:
        columns["tool_calls"] = pl.coalesce(calls, columns.get("tool_calls", pl.lit(None, pl.Int64)))
    return columns


def _versions(rows: pl.Series) -> pl.Series:
    values = [rows.struct.field(name).to_list() for name in _VERSION_FIELDS]
    known: dict[str, extras.Versions] = {}
    found = []
    for row in zip(*values, strict=True):
        # Most samples of a batch come from the same few versions, and a look-up is several times quicker.
        key = repr(row)
        if key not in known:
            known[key] = extras.versions_of(*row)
        found.append(known[key])
    columns = [[versions[place] for versions in found] for place in range(len(_VERSIONS))]
    series = [pl.Series(name, column, dtype) for (name, dtype), column in zip(_VERSIONS.items(), columns, strict=True)]
    return pl.DataFrame(series).to_struct(rows.name)


def _without_places(name: str, dtype: pl.DataType | None) -> pl.Expr:
    """Return a column of versions; of spans, in which nearly all rows differ, only the versions."""
    if dtype is None:
        return pl.lit(None)
    calls = dtype.inner if isinstance(dtype, pl.List) else None
    spans = calls.inner if isinstance(calls, pl.List) else None
    if "version" not in struct_fields(spans):  # type: ignore[arg-type]
        return pl.col(name)
    return pl.col(name).list.eval(pl.element().list.eval(pl.element().struct.field("version")))


def _parsed_counts(name: str) -> pl.Expr:
    dtype = pl.Struct({column: pl.Int64() for column in _COUNTS[name]})

    def counts(texts: pl.Series) -> pl.Series:
        found = [extras.counts(_parsed(text), _COUNTS[name]) for text in texts]
        return pl.Series(texts.name, found, dtype=dtype)

    return pl.col(name).cast(pl.String).map_batches(counts, return_dtype=dtype, is_elementwise=True)


def _parsed(text: str | None) -> Any:
    try:
        return parse(text) if text is not None else None
    except (ValueError, RecursionError):
        return None


def _counts(name: str, dtype: pl.DataType) -> dict[str, pl.Expr]:
    if is_text(dtype):
        return {column: pl.col(f"__{name}").struct.field(column) for column in _COUNTS[name]}
    fields = struct_fields(dtype)
    return {
        column: _count(name, {field: fields[field] for field in known if field in fields})
        for column, known in _COUNTS[name].items()
    }


def _count(name: str, fields: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return the count in the first of some fields of a struct that holds anything."""
    found = pl.lit(None, pl.Int64)
    for field in reversed(list(fields)):
        value = pl.col(name).struct.field(field)
        found = pl.when(value.is_not_null()).then(token_count(value, fields[field])).otherwise(found)
    return found


def _seconds(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if not dtype.is_numeric():
        return pl.lit(None, pl.Float64)
    seconds = column.cast(pl.Float64)
    # -0.0 becomes 0.0, as everywhere (see values.number).
    return pl.when(seconds == 0).then(pl.lit(0.0)).when(seconds.is_finite() & (seconds > 0)).then(seconds)


def _is_repetitive(text: pl.Expr) -> pl.Expr:
    is_long = text.str.len_chars() > extras.REPETITIVE_CHARACTERS
    tail = pl.when(is_long).then(text.str.tail(extras.REPETITIVE_CHARACTERS))
    found = tail.map_batches(_compress_tenfold, return_dtype=pl.Boolean(), is_elementwise=True)
    return pl.when(is_long).then(found).otherwise(is_long)


def _compress_tenfold(tails: pl.Series) -> pl.Series:
    found = [None if tail is None else extras.compresses_tenfold(tail) for tail in tails]
    return pl.Series(tails.name, found, dtype=pl.Boolean())


def _tool_calls_of_metadata(types: Types) -> pl.Expr | None:
    dtype = types.get("metadata")
    if is_text(dtype):
        return pl.col(METADATA).struct.field("tool_calls")
    messages = struct_fields(dtype).get("messages")
    return _tool_messages(pl.col("metadata").struct.field("messages"), messages)


def _tool_calls_of_prompt(types: Types) -> pl.Expr | None:
    dtype = types.get("prompt")
    if not isinstance(dtype, (pl.List, pl.Array)) or not isinstance(dtype.inner, pl.Struct):
        return None
    messages = pl.col("prompt").cast(pl.List(dtype.inner))
    return pl.when(messages.list.drop_nulls().list.len() > 0).then(_tool_messages(messages, dtype))


def _tool_messages(messages: pl.Expr, dtype: pl.DataType | None) -> pl.Expr | None:
    """Return the messages of role `tool` in a column of lists; null for a column of anything else."""
    if not isinstance(dtype, (pl.List, pl.Array)):
        return None
    inner: pl.DataType = dtype.inner  # type: ignore[assignment]
    messages = messages.cast(pl.List(inner))
    if not is_text(struct_fields(inner).get("role")):
        return pl.when(messages.is_not_null()).then(pl.lit(0, pl.Int64))
    is_of_tool = pl.element().struct.field("role").cast(pl.String) == "tool"
    return messages.list.eval(is_of_tool).list.sum().cast(pl.Int64)
