"""Read-only SQL over a ledger: nothing is written, no foreign file is read, no setting changes, whatever the statement."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from pipeline.errors import NoInputError, UsageError
from pipeline.store import publication, relations
from pipeline.store.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEFAULT_TIMEOUT = 60.0
"""Seconds after which a statement is interrupted."""
_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


def sql(statement: str, ledger: Path, *, timeout: float = DEFAULT_TIMEOUT) -> pl.DataFrame:
    """Return the answer of one SELECT over the relations of a ledger.

    Args:
        statement: one SELECT (or EXPLAIN) in DuckDB's SQL.
        ledger: directory of the ledger; it may have been moved or copied.
        timeout: seconds after which the statement is given up.

    Raises:
        UsageError: the statement is no single SELECT, is wrong, or took too long.
        NoInputError: there is no ledger.
    """
    with closing(duckdb.connect(":memory:")) as parser:
        _check_reads_only(parser, statement)
    with connected(ledger) as connection, _interrupted_after(connection, timeout):
        try:
            return pl.DataFrame(connection.sql(statement))
        except duckdb.InterruptException as error:
            message = f"the statement was stopped after {timeout:g} s; narrow it, or raise --timeout"
            raise UsageError(message) from error
        except duckdb.Error as error:
            raise UsageError(str(error)) from error


@contextmanager
def connected(ledger: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the ledger's relations, locked down to reading them.

    Raises:
        NoInputError: there is no ledger.
    """
    layout = Layout(ledger.resolve())
    current = publication.current(layout)
    if current.number == 0:
        message = f"{ledger}: no ledger there; make one with `rollout-ledger recompute SOURCE --ledger {ledger}`"
        raise NoInputError(message)
    with closing(duckdb.connect(":memory:")) as connection:
        relations.create(connection, layout, current.number, current.segments)
        connection.execute(f"SET allowed_directories = [{relations.quoted(str(layout.data))}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET autoload_known_extensions = false")
        connection.execute("SET lock_configuration = true")
        yield connection


def _check_reads_only(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    try:
        statements = connection.extract_statements(statement)
    except duckdb.Error as error:
        raise UsageError(str(error)) from error
    if len(statements) != 1 or statements[0].type not in _READING:
        message = "one SELECT statement is expected; a ledger is read-only"
        raise UsageError(message)


@contextmanager
def _interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
