"""Segments of an older version, brought to the tables of this one: new columns are null, new tables empty.

What an older version published stays published until it is computed again, and beside segments of this version it has
to be of the same shape: SQL reads all segments as one table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import versions
from pipeline.store import segments
from pipeline.store.layout import SEGMENT_TABLES
from pipeline.store.publication import SEGMENT, Publication
from schemas.frames import empty_frame, stored_schema

if TYPE_CHECKING:
    from pipeline.store.layout import Layout
    from schemas.table import Table


def upgraded(layout: Layout, publication: Publication) -> Publication:
    """Return the publication with its segments in the shape of this version; those that have it stay as they are."""
    # A batch that this version computed lies in a segment of its shape: in the steady state no file is looked for.
    older = publication.batches.filter(pl.col("versions") != versions.current())[SEGMENT].drop_nulls().unique().sort()
    renamed = {name: _rewritten(layout, name) for name in older if not is_current(layout, name)}
    if not renamed:
        return publication
    batches = publication.batches.with_columns(pl.col(SEGMENT).replace(renamed))
    return Publication(publication.number, batches, publication.findings, publication.sources)


def is_current(layout: Layout, segment: str) -> bool:
    """Return whether a segment has the tables of this version."""
    # A table is added with every change of shape so far; looking for a file is quick, looking into each is not.
    return all(layout.segment_file(segment, table.relation).exists() for table in SEGMENT_TABLES)


def _rewritten(layout: Layout, segment: str) -> str:
    return segments.write_segment(layout, {table.relation: _table(layout, segment, table) for table in SEGMENT_TABLES})


def _table(layout: Layout, segment: str, table: type[Table]) -> pl.DataFrame | pl.LazyFrame:
    if not layout.segment_file(segment, table.relation).exists():
        return empty_frame(table)
    stored = segments.read_segment(layout, segment, table.relation)
    known = stored.collect_schema()
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in stored_schema(table).items() if name not in known]
    return stored.with_columns(absent)
