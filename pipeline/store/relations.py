"""The relations of a ledger as DuckDB views over Parquet files, with comments from the schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.store import derived
from pipeline.store.derived import quoted
from pipeline.store.layout import GENERATION_TABLES, SEGMENT_TABLES
from schemas.frames import sql_columns
from schemas.table import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    import duckdb

    from pipeline.store.layout import Layout
    from schemas.table import Table

__all__ = ["create", "create_info", "point", "quoted"]

_INFO = {
    "generation": "number of the publication; every recompute makes a new one",
    "schema_version": "raised when a column changes its meaning, its name or its type",
    "published_at": "when it was published, UTC",
    "root": "where the ledger was when it was published",
}


def create(
    connection: duckdb.DuckDBPyConnection,
    layout: Layout,
    generation: int,
    segments: Sequence[str],
    *,
    portable: bool = True,
    wanted: Collection[str] | None = None,
) -> None:
    """Create a view for every published relation, and those derived from them, in the connection's current database.

    Args:
        connection: to the database.
        layout: paths of the ledger.
        generation: the publication to show; 0 for none.
        segments: where the rows of its batches lie.
        portable: whether other clients, older ones among them, will read the views.
        wanted: words of the statements that will be run; see `derived.create`. Null for everything, with comments.
    """
    point(connection, layout, generation, segments, commented=wanted is None)
    derived.create(connection, portable=portable, wanted=wanted)


def point(
    connection: duckdb.DuckDBPyConnection,
    layout: Layout,
    generation: int,
    segments: Sequence[str],
    *,
    commented: bool = True,
) -> None:
    """Make the published relations show a publication; what is derived from them, where it is there, follows."""
    for small in GENERATION_TABLES:
        files = [layout.generation_file(generation, small.relation)] if generation else []
        _create_view(connection, small, files, commented=commented)
    for large in SEGMENT_TABLES:
        files = [layout.segment_file(segment, large.relation) for segment in segments]
        _create_view(connection, large, files, commented=commented)


def create_info(connection: duckdb.DuckDBPyConnection, layout: Layout, generation: int, published_at: datetime) -> None:
    """Create the table that says which generation this is and what wrote it."""
    connection.execute(
        "CREATE TABLE ledger_info "
        "(generation BIGINT, schema_version BIGINT, published_at TIMESTAMP WITH TIME ZONE, root VARCHAR)"
    )
    values = [generation, SCHEMA_VERSION, published_at, str(layout.root)]
    connection.execute("INSERT INTO ledger_info VALUES (?, ?, ?, ?)", values)
    connection.execute("COMMENT ON TABLE ledger_info IS 'Which publication this file shows'")
    for name, text in _INFO.items():
        connection.execute(f"COMMENT ON COLUMN ledger_info.{name} IS {quoted(text)}")


def _create_view(
    connection: duckdb.DuckDBPyConnection, table: type[Table], files: Iterable[Path], *, commented: bool
) -> None:
    columns = sql_columns(table)
    paths = ", ".join(quoted(str(path)) for path in files)
    if paths:
        names = ", ".join(f'"{name}"' for name, _, _ in columns)
        body = f"SELECT {names} FROM read_parquet([{paths}], hive_partitioning = false)"
    else:
        nothing = ", ".join(f'NULL::{sql_type} AS "{name}"' for name, sql_type, _ in columns)
        body = f"SELECT {nothing} WHERE false"
    connection.execute(f"CREATE OR REPLACE VIEW {table.relation} AS {body}")
    if not commented:
        return
    connection.execute(f"COMMENT ON VIEW {table.relation} IS {quoted(table.summary())}")
    for name, _, text in columns:
        connection.execute(f'COMMENT ON COLUMN {table.relation}."{name}" IS {quoted(text)}')
