"""Read-only SQL over a ledger: whatever the statement, nothing is written, no foreign file read, no setting changed."""

from __future__ import annotations

import re
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from pipeline.audit.guard import checked
from pipeline.errors import NoInputError, UsageError
from pipeline.store import publication, relations, upgrade
from pipeline.store.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.store.publication import Publication

DEFAULT_TIMEOUT = 60.0
"""Seconds after which a statement is interrupted."""
MAX_CELLS = 200_000_000
"""Rows times columns of an answer at most: a few gigabytes. A statement may ask for more than a machine has."""
_INTERRUPT_AGAIN = 0.05
_LISTING = frozenset(
    {
        "show",
        "describe",
        "summarize",
        "information_schema",
        "duckdb_columns",
        "duckdb_tables",
        "duckdb_views",
    }
)
"""Words of statements that list relations, of which there should be all then."""
_LOCKS = (
    "SET enable_progress_bar = false",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",
    "SET lock_configuration = true",
)
"""No bar on stdout, where the answer goes; no file but the allowed ones, no extension, no Python variable as a table,
no temporary file; none of it undone."""


def sql(
    statement: str, ledger: str | Path, *, timeout: float = DEFAULT_TIMEOUT, limit: int | None = None
) -> pl.DataFrame:
    """Return the answer of one SELECT over the relations of a ledger.

    Args:
        statement: one SELECT (or EXPLAIN) in DuckDB's SQL.
        ledger: directory of the ledger; it may have been moved or copied.
        timeout: seconds after which the statement is given up.
        limit: rows at most; null for all.

    Raises:
        UsageError: the statement is no single SELECT, reads anything but the ledger's relations, is wrong, took too
            long, or answers with more than fits.
        NoInputError: there is no ledger.
    """
    with connected(ledger, statement) as connection:
        return fetched(connection, checked(connection, statement), timeout=timeout, limit=limit)


def fetched(
    connection: duckdb.DuckDBPyConnection,
    statement: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    limit: int | None = None,
) -> pl.DataFrame:
    """Return the answer of a statement that has been checked, or is the project's own.

    Raises:
        UsageError: it is wrong, took too long, or answers with more than fits.
    """
    with _interrupted_after(connection, timeout) as stopped:
        try:
            relation = connection.sql(statement, params=dict(parameters) if parameters else None)
            most = MAX_CELLS // max(len(relation.columns), 1)
            frame = pl.DataFrame(relation.limit(most + 1 if limit is None else min(limit, most + 1)))
        except (duckdb.Error, pl.exceptions.PolarsError) as error:
            if stopped.is_set():
                message = f"the statement was stopped after {timeout:g} s; narrow it, or raise --timeout"
                raise UsageError(message) from error
            raise UsageError(str(error)) from error
    if frame.height > most:
        message = f"the answer has more than {most:,} rows of {frame.width} columns; aggregate, or add a LIMIT"
        raise UsageError(message)
    return frame


@contextmanager
def connected(ledger: str | Path, *statements: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the ledger's relations, locked down to reading them.

    Args:
        ledger: directory of the ledger.
        statements: what will be asked: of the derived views only those are made that it names. Without any, all are.

    Raises:
        NoInputError: there is no ledger.
    """
    layout = Layout(Path(ledger).resolve())
    current = publication.current(layout)
    if current.number == 0:
        message = f"{ledger}: no ledger there; make one with `rollout-ledger recompute SOURCE --ledger {ledger}`"
        raise NoInputError(message)
    with closing(duckdb.connect(":memory:")) as connection:
        _create(connection, layout, current, _words(statements))
        connection.execute(f"SET allowed_directories = [{relations.quoted(str(layout.data))}]")
        for lock in _LOCKS:
            connection.execute(lock)
        yield connection


def _words(statements: tuple[str, ...]) -> set[str] | None:
    """Return the words of statements; null where they may ask for any relation."""
    words = {word.lower() for statement in statements for word in re.findall(r"\w+", statement)}
    return None if not statements or words & _LISTING else words


def _create(
    connection: duckdb.DuckDBPyConnection, layout: Layout, current: Publication, words: set[str] | None
) -> None:
    try:
        relations.create(connection, layout, current.number, current.segments, portable=False, wanted=words)
    except duckdb.Error as error:
        if all(upgrade.is_current(layout, segment) for segment in current.segments):
            raise
        message = f"{layout.root}: published by an older version of rollout-ledger; recompute once, and ask again"
        raise NoInputError(message) from error


@contextmanager
def _interrupted_after(connection: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[threading.Event]:
    """Interrupt what runs after some seconds, and go on until it has stopped. Yields whether that has begun."""
    done, stopped = threading.Event(), threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        stopped.set()
        while not done.wait(_INTERRUPT_AGAIN):
            connection.interrupt()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield stopped
    finally:
        done.set()
        watcher.join()
