"""The one file that readers know: views over the files of a publication, in DuckDB's first stable storage format."""

from __future__ import annotations

import errno
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

from pipeline.store import derived, durable, relations
from pipeline.store.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Tell a failure of the database's writing as what it is: one of the disk."""
    try:
        yield
    except duckdb.Error as error:
        raise OSError(errno.EIO, str(error).splitlines()[0]) from error


def write(layout: Layout, number: int, segments: Sequence[str], published_at: datetime) -> None:
    """Write the ledger's file for a publication, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    staged = layout.staging / "ledger.duckdb"
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.unlink(missing_ok=True)
    absolute = Layout(layout.root.resolve())
    with _as_os_error():
        try:
            _fill(staged, absolute, number, segments, published_at)
        except duckdb.Error:
            # The template may be harmed; with a new one it has to work.
            absolute.template(derived.fingerprint()).unlink(missing_ok=True)
            _fill(staged, absolute, number, segments, published_at)
    durable.sync_file(staged)
    durable.replace(staged, layout.database)


def _fill(staged: Path, layout: Layout, number: int, segments: Sequence[str], published_at: datetime) -> None:
    """Write a database that shows a publication, from the template."""
    shutil.copyfile(_template(layout), staged)
    with _attached(staged) as connection:
        relations.create_info(connection, layout, number, published_at)
        relations.point(connection, layout, number, segments)


def _template(layout: Layout) -> Path:
    """Return a database of all views over nothing: to make them takes longer than all else of a publication."""
    path = layout.template(derived.fingerprint())
    if not path.exists():
        for older in path.parent.glob(layout.template("*").name):
            older.unlink()
        staged = layout.staging / path.name
        staged.write_bytes(_views())
        durable.sync_file(staged)
        durable.replace(staged, path)
    return path


@contextmanager
def made_meanwhile(layout: Layout) -> Iterator[None]:
    """Make what a ledger's first publication needs, if it is not there, while something else is done."""
    if layout.template(derived.fingerprint()).exists():
        yield
        return
    with ThreadPoolExecutor(1) as beside:
        # If it fails it fails again where it is needed, and is told there.
        beside.submit(_views)
        yield


@cache
def _views() -> bytes:
    """Return the content of such a database; it is the same for every ledger."""
    with TemporaryDirectory(prefix="rollout-ledger") as aside:
        path = Path(aside) / "views.duckdb"
        with _attached(path) as connection:
            relations.create(connection, Layout(Path(aside)), 0, [])
        return path.read_bytes()


@contextmanager
def _attached(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection whose current database is a file, made if need be; all is written in one transaction.

    Readers use older clients than this one: the file keeps the first stable storage format. The disk need not see each
    of some hundred statements by itself.
    """
    with closing(duckdb.connect(":memory:")) as connection:
        connection.execute(f"ATTACH {relations.quoted(str(path))} AS ledger (STORAGE_VERSION 'v1.0.0')")
        connection.execute("USE ledger")
        connection.execute("BEGIN")
        yield connection
        connection.execute("COMMIT")
        connection.execute("USE memory")
        connection.execute("DETACH ledger")
