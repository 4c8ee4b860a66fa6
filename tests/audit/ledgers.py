"""Ledgers for the tests of audits: published from dumps without files, or held in memory."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from pipeline.recomputing.chunk import Chunk, compute, finding_rows
from pipeline.store import derived, publication, segments
from pipeline.store.layout import GENERATION_TABLES, SEGMENT_TABLES, Layout
from pipeline.store.publication import NOTHING, SEGMENT, STORED_BATCHES
from schemas.frames import empty_frame, polars_schema
from schemas.settings import Settings
from tests.accounting import ACCOUNTING_ALONE, accounted_frames, batch_read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from schemas.table import Table
    from tests.reference import Dump

TABLES = (*GENERATION_TABLES, *SEGMENT_TABLES)
NOW = datetime(2026, 9, 1, tzinfo=UTC)


def published(directory: Path, dumps: Iterable[Dump], settings: Mapping[str, Any] | None = None) -> Path:
    """Publish a ledger of some batches; without any, one that has no batch at all."""
    layout = Layout(directory.resolve())
    chosen = Settings(**(settings or {}))
    computed = compute(Chunk(tuple(batch_read(dump) for dump in dumps), chosen))
    batches = STORED_BATCHES.to_frame()
    if computed.batches.height:
        segment = segments.write_segment(layout, computed.tables)
        batches = stamped(computed.batches, chosen, segment)
    findings = finding_rows(computed.findings)
    replaced = replace(NOTHING, number=1, batches=batches, findings=findings)
    publication.publish(layout, replaced, NOW, publication.Retention())
    return directory


def stamped(batches: pl.DataFrame, settings: Settings, segment: str) -> pl.DataFrame:
    given = batches.with_columns(
        pl.lit(settings.as_json()).alias("settings"),
        pl.lit(segment).alias(SEGMENT),
        pl.lit("ok").alias("state"),
        pl.lit(NOW).alias("published_at"),
    )
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in STORED_BATCHES.items() if name not in given.columns]
    return given.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in STORED_BATCHES.items())


class Memory:
    """A ledger in memory: the published relations as tables, which can be filled again and again, and what derives."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
        self.connection = connection
        self.directory = directory
        # Tiny tables: more threads only wait for one another.
        connection.execute("SET threads = 1")
        for table in TABLES:
            self.write(table, empty_frame(table))
            connection.execute(f"CREATE TABLE {table.relation} AS SELECT * FROM read_parquet('{self.path(table)}')")
        derived.create(connection)

    def path(self, table: type[Table]) -> Path:
        return self.directory / f"{table.relation}.parquet"

    def write(self, table: type[Table], frame: pl.DataFrame) -> None:
        # DuckDB takes Polars frames only with a library that the project does without.
        frame.select(list(polars_schema(table))).write_parquet(self.path(table), compression="uncompressed")

    def fill(self, dumps: Iterable[Dump], settings: Mapping[str, Any]) -> None:
        """Hold these batches and no others; metrics beyond the accounting only if the settings say so."""
        for table in TABLES:
            self.connection.execute(f"DELETE FROM {table.relation}")
        self.add(dumps, settings)

    def add(self, dumps: Iterable[Dump], settings: Mapping[str, Any]) -> None:
        """Hold these batches as well."""
        frames = accounted_frames(dumps, settings)
        frames["batches"] = stamped(frames["batches"], Settings(**{**ACCOUNTING_ALONE, **settings}), "none")
        for table in TABLES:
            self.write(table, frames.get(table.relation, empty_frame(table)))
            self.connection.execute(f"INSERT INTO {table.relation} SELECT * FROM read_parquet('{self.path(table)}')")

    def ask(self, statement: str, parameters: Mapping[str, Any] | None = None) -> pl.DataFrame:
        return pl.DataFrame(self.connection.sql(statement, params=dict(parameters) if parameters else None))


def memory(directory: Path) -> Iterator[Memory]:
    with closing(duckdb.connect(":memory:")) as connection:
        yield Memory(connection, directory)
