"""Parquet and Arrow IPC: one record a sample. Columns are checked as columns; only rows that fail become objects.

Columns may come in any order and of any numeric type; a column that is missing or all null is absent.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import SourceError
from pipeline.expressions.keys import BATCH, continues
from pipeline.sources import column_extras, column_rewards, column_types
from pipeline.sources.contract import check_records, not_listed
from pipeline.sources.extras import RAW_FIELDS
from pipeline.sources.gathering import BatchKey, Gathering
from pipeline.sources.json_text import parse
from schemas.canonical import CanonicalSample
from schemas.findings import Finding
from schemas.frames import polars_schema
from schemas.record import SampleRecord
from schemas.table import MAX_ROWS_IN_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Literal

    from pipeline.sources.batch import BatchRead, SourceFile
    from pipeline.sources.column_types import Types

_KEYS = tuple(f"__{name}" for name in BATCH)
_ROWS_AT_ONCE = 2**20
_MAX_FAILING = 1_000
"""Rows that fail and are worded one by one; the rest is counted."""


def read_parquet(source: SourceFile) -> Iterator[BatchRead]:
    """Yield the batches of a Parquet file.

    Raises:
        SourceError: the file cannot be read.
    """
    yield from _read(source, pl.scan_parquet(source.path, glob=False, hive_partitioning=False), "parquet")


def read_ipc(source: SourceFile) -> Iterator[BatchRead]:
    """Yield the batches of an Arrow IPC file (also a stream).

    Raises:
        SourceError: the file cannot be read.
    """
    with source.path.open("rb") as file:
        is_stream = not file.read(6).startswith(b"ARROW1")
    frame = pl.read_ipc_stream(source.path).lazy() if is_stream else pl.scan_ipc(source.path, glob=False)
    yield from _read(source, frame, "ipc")


def _read(source: SourceFile, frame: pl.LazyFrame, format: str) -> Iterator[BatchRead]:
    schema = frame.collect_schema()
    known = [name for name in (*SampleRecord.model_fields, "reward_json") if name in schema and name not in RAW_FIELDS]
    types = {name: schema[name] for name in known}
    raw = {name: schema[name] for name in RAW_FIELDS if name in schema and not isinstance(schema[name], pl.Null)}
    frame = frame.select(*known, *raw)
    default = Gathering(source, format).default_key()
    keyed = frame.with_columns(**column_types.keys(types, default)) if known else frame
    total = frame.select(pl.len()).collect().item()
    if total == 0 or not known:
        if not known and schema:
            message = f"no column of a sample (found {', '.join(list(schema)[:8])}); expected reward, …"
            raise SourceError("payload_shape", message)
        yield from Gathering(source, format).batches(at_least_one=True)
        return
    extras = column_extras.read(raw)
    for part in _parts(keyed, total):
        gathering = Gathering(source, format)
        rows = part.with_columns(**column_extras.parsed(raw)).select(*_KEYS, *known, **extras)
        # Whole texts are not wanted, only what is said of them: no more of them are to be held at once than need be.
        engine: Literal["streaming", "auto"] = "streaming" if column_extras.are_large(raw) else "auto"
        _gather(gathering, rows.collect(engine=engine), types, extras)
        yield from gathering.batches()


def _parts(keyed: pl.LazyFrame, total: int) -> Iterator[pl.LazyFrame]:
    """Yield the rows of some whole batches at a time, so that a file of many steps is not held at once."""
    if total <= _ROWS_AT_ONCE:
        yield keyed
        return
    sizes = keyed.group_by(_KEYS, maintain_order=True).agg(pl.len()).collect()
    largest = sizes.select(pl.col("len").max()).item()
    if largest >= MAX_ROWS_IN_BATCH:
        message = f"a batch has {largest} samples; at most {MAX_ROWS_IN_BATCH - 1} are taken: split the step"
        raise SourceError("payload_shape", message)
    sizes = sizes.with_columns(part=pl.col("len").cum_sum() // _ROWS_AT_ONCE)
    for part in sizes.partition_by("part", maintain_order=True):
        yield keyed.join(part.lazy(), on=_KEYS, how="semi", nulls_equal=True, maintain_order="left")


def _gather(gathering: Gathering, part: pl.DataFrame, types: Types, extras: Mapping[str, pl.Expr]) -> None:
    part, batches = _numbered(part)
    parsed = part.lazy().with_columns(**column_types.parsed(types))
    checked = parsed.with_columns(**column_types.checked(types)).collect()
    good, suspicious = checked, checked.filter(pl.any_horizontal("^__bad_.*$"))
    if not suspicious.is_empty():
        _refuse(gathering, suspicious, list(types))
        good = checked.filter(~pl.any_horizontal("^__bad_.*$"))
    for run, split, step in batches.iter_rows():
        gathering.next_row(BatchKey(run, split, step))
    gathering.add(_canonical(good, types, extras))


def _numbered(part: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return samples with their `row` in their batch, and the keys of the batches."""
    place = pl.int_range(pl.len(), dtype=pl.Int64)
    marked = part.select(first=pl.when(~continues(_KEYS)).then(place))
    batches = part.select(_KEYS).filter(marked["first"].is_not_null())
    if batches.is_duplicated().any():
        return part.with_columns(row=place.over(_KEYS)), batches.unique()
    # Batches lie one after another, as in nearly every file: a row is counted from where its batch begins.
    row = marked.select(row=place - pl.col("first").forward_fill()).to_series()
    return part.with_columns(row), batches


def _refuse(gathering: Gathering, rows: pl.DataFrame, names: list[str]) -> None:
    """Let the contract word what is wrong with the rows that the column checks did not pass."""
    for row in rows.head(_MAX_FAILING).iter_rows(named=True):
        key = BatchKey(row["__run"], row["__split"], row["__step"])
        _, problems = check_records([_record(row, names)])
        for problem in problems or [_unworded(row)]:
            gathering.refuse(key, problem.model_copy(update={"row": row["row"]}))
    if rows.height > _MAX_FAILING:
        for run, split, step, count in (
            rows.slice(_MAX_FAILING).group_by("__run", "__split", "__step").agg(pl.len()).iter_rows()
        ):
            gathering.refuse(BatchKey(run, split, step), not_listed(count))


def _record(row: dict[str, object], names: list[str]) -> dict[str, object]:
    record = {name: row[name] for name in names if row[name] is not None}
    if isinstance(record.get("metadata"), str):
        with suppress(ValueError, RecursionError):
            record["metadata"] = parse(str(record["metadata"]))
    return record


def _unworded(row: dict[str, object]) -> Finding:
    fields = ", ".join(name.removeprefix("__bad_") for name, bad in row.items() if name.startswith("__bad_") and bad)
    return Finding(code="invalid_value", message=f"{fields}: not of the type that the contract asks for", field=fields)


def _canonical(good: pl.DataFrame, types: Types, extras: Mapping[str, pl.Expr]) -> pl.DataFrame:
    columns = {
        **column_types.canonical(types),
        **column_rewards.canonical(types),
        **column_extras.canonical(types, extras),
    }
    selected = good.lazy().select(
        columns.get(name, pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in polars_schema(CanonicalSample).items()
    )
    return selected.collect()
