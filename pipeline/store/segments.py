"""Segments: the published rows of some whole batches, immutable once they are in place."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.keys import BATCH
from pipeline.store import durable
from pipeline.store.layout import SEGMENT_TABLES
from schemas.frames import stored_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipeline.store.layout import Layout


_TEXTS = ("run", "split")
"""Texts that are the same in all rows of most segments."""
_CAST = {
    table.relation: {
        name: dtype for name, dtype in stored_schema(table).items() if name in _TEXTS or isinstance(dtype, pl.Enum)
    }
    for table in SEGMENT_TABLES
}
"""Columns that lie in files as texts or as enumerations, whichever was quicker to write; both are texts to SQL."""


def write_segment(layout: Layout, tables: Mapping[str, pl.DataFrame | pl.LazyFrame]) -> str:
    """Write the tables of a new segment and return its name. It is not part of any publication yet.

    Rows are written in the order in which they come: that of batches and rows, which the accounting leaves. Sorting
    them by names once more would take as long as writing them.
    """
    segment = uuid.uuid4().hex[:16]
    directory = layout.staging / segment
    directory.mkdir(parents=True)
    for table in SEGMENT_TABLES:
        durable.write_parquet(_quick(tables[table.relation]), directory / f"{table.relation}.parquet")
    durable.sync_directory(directory)
    layout.segment(segment).parent.mkdir(parents=True, exist_ok=True)
    durable.replace(directory, layout.segment(segment))
    return segment


def _quick(frame: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame | pl.LazyFrame:
    """Return rows with texts that are the same in all of them as enumerations of one word: a third of the time."""
    if isinstance(frame, pl.LazyFrame) or frame.is_empty():
        return frame
    words = {name: frame[name][0] for name in _TEXTS if (frame[name] == frame[name][0]).all()}
    return frame.with_columns(pl.lit(word, pl.Enum([word])).alias(name) for name, word in words.items())


def read_segment(layout: Layout, segment: str, relation: str) -> pl.LazyFrame:
    """Return a table of a segment, its columns of the types of the schema."""
    stored = pl.scan_parquet(layout.segment_file(segment, relation), glob=False, hive_partitioning=False)
    return stored.with_columns(pl.col(name).cast(dtype) for name, dtype in _CAST[relation].items())


def joined(layout: Layout, names: Sequence[str]) -> str:
    """Write one segment with the rows of several and return its name."""
    tables = {
        table.relation: pl.concat([read_segment(layout, name, table.relation) for name in names])
        for table in SEGMENT_TABLES
    }
    return write_segment(layout, tables)


def without(layout: Layout, segment: str, keys: pl.DataFrame) -> str:
    """Write a copy of a segment without some batches and return its name.

    Args:
        layout: paths of the ledger.
        segment: the segment to copy.
        keys: run, split and step of the batches to leave out.
    """
    gone = pl.struct(BATCH).is_in(keys.select(BATCH).unique().to_struct("keys").implode())
    tables = {table.relation: read_segment(layout, segment, table.relation).filter(~gone) for table in SEGMENT_TABLES}
    return write_segment(layout, tables)
