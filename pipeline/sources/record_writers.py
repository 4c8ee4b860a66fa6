"""Writes samples in the record formats, one record a sample: for tests, examples and benchmarks.

Nothing is inferred from the first records: columns and their types are fixed, and what a typed column cannot hold is
written as JSON text beside it.
"""

from __future__ import annotations

import gzip
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from pipeline.sources import extras
from pipeline.sources.column_rewards import JSON_TEXT
from pipeline.sources.values import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Record = Mapping[str, Any]
    Compression = Literal["gzip", "zstd"]

SCHEMA: Final = pl.Schema(
    {
        "run": pl.String(),
        "split": pl.String(),
        "step": pl.Int64(),
        "adapter": pl.Struct({"name": pl.String(), "slot": pl.Int64()}),
        "adapter_name": pl.String(),
        "adapter_slot": pl.Int64(),
        "rollout_id": pl.Int64(),
        "index": pl.Int64(),
        "group_index": pl.Int64(),
        "prompt_group": pl.Int64(),
        "reward": pl.Float64(),
        JSON_TEXT: pl.String(),
        "metadata": pl.String(),
        "raw_reward": pl.Float64(),
        "has_raw_reward": pl.Boolean(),
        "response_length": pl.Int64(),
        "loss_mask": pl.List(pl.Int64()),
        "trainable_tokens": pl.Int64(),
        "remove_sample": pl.Boolean(),
        "status": pl.String(),
        "weight_versions": pl.List(pl.String()),
        "prefix_cache_info": pl.Struct({"cached_tokens": pl.Int64(), "total_prompt_tokens": pl.Int64()}),
        "spec_info": pl.Struct({names[0]: pl.Int64() for names in extras.SPECULATION.values()}),
        "non_generation_time": pl.Float64(),
        "response": pl.String(),
    }
)
"""Columns of the columnar files. `metadata` and `reward_json` are JSON text; `weight_versions` have no spans."""


def write_json_lines(path: Path, records: Iterable[Record], *, compression: Compression | None = None) -> None:
    """Write records as JSON Lines, every field as it is; NaN and Infinity are the literals that Python writes.

    Equal records give equal bytes.

    Args:
        path: the file, replaced if it exists.
        records: samples with JSON values only; `adapter` is null or a dictionary of `name` and `slot`.
        compression: of the whole file.
    """
    with _opened(path, compression) as file:
        for record in records:
            file.write(json.dumps(dict(record), separators=(",", ":")).encode() + b"\n")


def write_parquet(path: Path, records: Iterable[Record]) -> None:
    """Write records as Parquet with the columns of `SCHEMA`; fields that it does not name are left out."""
    frame(records).write_parquet(path)


def write_ipc(path: Path, records: Iterable[Record]) -> None:
    """Write records as an Arrow IPC file with the columns of `SCHEMA`; fields that it does not name are left out."""
    frame(records).write_ipc(path)


def frame(records: Iterable[Record]) -> pl.DataFrame:
    """Return records as a frame with the columns of `SCHEMA`."""
    rows = [_row(record) for record in records]
    columns = [pl.Series(name, [row.get(name) for row in rows], dtype=dtype) for name, dtype in SCHEMA.items()]
    return pl.DataFrame(columns)


@contextmanager
def _opened(path: Path, compression: Compression | None) -> Iterator[Any]:
    with path.open("wb") as file:
        if compression == "gzip":
            # No name and no time in the header, so that equal records give equal bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                yield packed
        elif compression == "zstd":
            import zstandard

            with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packer:
                yield packer
        else:
            yield file


def _row(record: Record) -> dict[str, Any]:
    row = dict(record)
    metadata = row.get("metadata")
    row["reward"], row[JSON_TEXT] = _split(row.get("reward"))
    if "raw_reward" in row:
        row["raw_reward"], text = _split(row["raw_reward"])
        row["has_raw_reward"] = row.get("has_raw_reward", True)
        if text is not None:
            metadata = {"raw_reward": record["raw_reward"], **(metadata or {})}
    row["metadata"] = None if metadata is None else json.dumps(metadata)
    return row | _extras(record)


def _extras(record: Record) -> dict[str, Any]:
    """Return the fields beside the contract as far as they are understood, since typed columns can hold no others."""
    versions = extras.version_names(record.get("weight_versions"), record.get("legacy_weight_versions"))
    response = record.get("response")
    return {
        "weight_versions": [readable(version) for version in versions] or None,
        "prefix_cache_info": _counts(record.get("prefix_cache_info"), extras.PREFIX_CACHE),
        "spec_info": _counts(record.get("spec_info"), extras.SPECULATION),
        "non_generation_time": extras.seconds(record.get("non_generation_time")),
        "response": readable(response) if isinstance(response, str) else None,
    }


def _counts(value: object, names: Mapping[str, tuple[str, ...]]) -> dict[str, int | None] | None:
    found = extras.counts(value, names)
    is_empty = not any(known is not None for known in found.values())
    return None if is_empty else {names[column][0]: known for column, known in found.items()}


def _split(value: object) -> tuple[float | None, str | None]:
    """Return a value as (number, JSON text), one of the two: null and numbers within float64 are numbers."""
    if value is None:
        return None, None
    if isinstance(value, (bool, int, float)):
        try:
            return float(value), None
        except OverflowError:
            pass
    return None, json.dumps(value)
