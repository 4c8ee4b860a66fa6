"""Large tables of a snapshot as Parquet: whole batches by grain, cut by their rows alone, named by their bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import NoInputError
from pipeline.expressions.keys import continues
from pipeline.snapshots import content as contents
from pipeline.snapshots import fingerprint
from pipeline.store import durable
from schemas.snapshot import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from pipeline.snapshots.content import TableContent

PART_ROWS = 2**19
"""Rows from which a part is full; its last batch is never cut."""
_GROUP_ROWS = 2**17
_LEVEL = 3
_PLACE = "__place"


def write(content: TableContent, directory: Path, shown: Callable[[pl.DataFrame], pl.DataFrame]) -> list[Part]:
    """Write a table's rows as parts, `shown` applied to each; the same content gives the same files."""
    parts = []
    for number, batches in enumerate(contents.chunks(content.sizes, PART_ROWS)):
        rows = in_order(content, content.read(batches, content.schema.names()))
        stem = f"{content.table.relation}-{number:04d}"
        parts.append(_write_part(shown(rows).rechunk(), directory, stem))
    durable.sync_directory(directory)
    return parts


def _write_part(rows: pl.DataFrame, directory: Path, stem: str) -> Part:
    staged = directory / f".{stem}.writing"
    with staged.open("wb") as file:
        rows.write_parquet(file, compression="zstd", compression_level=_LEVEL, row_group_size=_GROUP_ROWS)
        file.flush()
        os.fsync(file.fileno())
    digest = fingerprint.of_file(staged)
    name = f"{stem}-{digest[:12]}.parquet"
    staged.replace(directory / name)
    return Part(file=name, rows=rows.height, sha256=digest)


def read(parts: Sequence[Part], directory: Path) -> tuple[pl.LazyFrame, ...]:
    """Return the parts as lazy frames.

    Raises:
        ValueError: a part is not there, or is not what was written.
    """
    for part in parts:
        path = directory / part.file
        if not path.exists() or fingerprint.of_file(path) != part.sha256:
            message = f"{part.file} is missing, or is not what was written"
            raise ValueError(message)
    return tuple(pl.scan_parquet(directory / part.file, glob=False, hive_partitioning=False) for part in parts)


def remove_others(directory: Path, kept: Collection[str]) -> None:
    """Remove parts of earlier snapshots, and what a dead writer left."""
    for path in [*directory.glob("*.parquet"), *directory.glob(".*.writing")]:
        if path.name not in kept:
            path.unlink(missing_ok=True)


def in_order(content: TableContent, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in the order of their key.

    Raises:
        NoInputError: a key occurs twice.
    """
    keys = rows.select(content.grain).with_row_index(_PLACE).sort(content.grain, nulls_last=False)
    # Segments are in order, and a large batch is better not copied.
    ordered = rows if keys[_PLACE].is_sorted() else rows[keys[_PLACE]]
    keys = keys.drop(_PLACE)
    if keys.height > 1:
        repeated = keys.select(continues(tuple(content.grain))).to_series()[1:]
        if repeated.any():
            key = keys[1:].filter(repeated).row(0, named=True)
            message = f"{content.table.relation}: two rows of one key {key}; no snapshot can be made of them"
            raise NoInputError(message)
    return ordered
