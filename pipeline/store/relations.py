"""The relations of a ledger as DuckDB views over Parquet files, with comments from the schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.store.layout import GENERATION_TABLES, SEGMENT_TABLES
from schemas.frames import sql_columns
from schemas.table import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    import duckdb

    from pipeline.store.layout import Layout
    from schemas.table import Table


def create(connection: duckdb.DuckDBPyConnection, layout: Layout, generation: int, segments: Sequence[str]) -> None:
    """Create a view for every published relation, in the connection's current database."""
    for table in GENERATION_TABLES:
        files = [layout.generation_file(generation, table.relation)] if generation else []
        _create_view(connection, table, files)
    for table in SEGMENT_TABLES:
        _create_view(connection, table, [layout.segment_file(segment, table.relation) for segment in segments])


def create_info(connection: duckdb.DuckDBPyConnection, generation: int, published_at: datetime) -> None:
    """Create the table that says which generation this is and what wrote it."""
    connection.execute(
        "CREATE TABLE ledger_info (generation BIGINT, schema_version BIGINT, published_at TIMESTAMP WITH TIME ZONE)"
    )
    connection.execute("INSERT INTO ledger_info VALUES (?, ?, ?)", [generation, SCHEMA_VERSION, published_at])
    connection.execute("COMMENT ON TABLE ledger_info IS 'Which publication this file shows'")


def quoted(text: str) -> str:
    """Return a text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _create_view(connection: duckdb.DuckDBPyConnection, table: type[Table], files: Iterable[Path]) -> None:
    columns = sql_columns(table)
    paths = ", ".join(quoted(str(path)) for path in files)
    if paths:
        names = ", ".join(f'"{name}"' for name, _, _ in columns)
        body = f"SELECT {names} FROM read_parquet([{paths}], hive_partitioning = false)"
    else:
        nothing = ", ".join(f'NULL::{sql_type} AS "{name}"' for name, sql_type, _ in columns)
        body = f"SELECT {nothing} WHERE false"
    connection.execute(f"CREATE VIEW {table.relation} AS {body}")
    connection.execute(f"COMMENT ON VIEW {table.relation} IS {quoted(table.summary())}")
    for name, _, text in columns:
        connection.execute(f'COMMENT ON COLUMN {table.relation}."{name}" IS {quoted(text)}')
