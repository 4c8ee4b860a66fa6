"""What is published: read it, and publish the next generation, complete or not at all.

The rename of `ledger.duckdb` is the one moment at which a new generation is there. Everything that it points to has
been written and seen on disk before; whoever opened the file earlier keeps the older generation, whose files stay.
"""

from __future__ import annotations

import errno
import shutil
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from pipeline.errors import NoInputError
from pipeline.store import database, durable, relations
from pipeline.store.layout import GENERATION_TABLES, Layout
from schemas.frames import empty_frame, polars_schema
from schemas.tables import BatchRow, FindingRow, SourceRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


@dataclass(frozen=True)
class Retention:
    """Which publications keep their files: the newest, and those replaced too recently for their readers to be done.

    Args:
        generations: newest publications kept, at least 1.
        seconds: a publication is also kept for so long after another has replaced it.
    """

    generations: int = 3
    seconds: float = 3600.0


SEGMENT = "segment"
"""Column of a generation's batches that says where their rows lie."""
STORED_BATCHES = pl.Schema({**polars_schema(BatchRow), SEGMENT: pl.String(), "explicit_groups": pl.Boolean()})


@dataclass(frozen=True)
class Publication:
    """One generation of a ledger: its batches, with the segment of each, its findings, and its source files."""

    number: int
    batches: pl.DataFrame
    findings: pl.DataFrame
    sources: pl.DataFrame

    @property
    def segments(self) -> list[str]:
        """Return the segments that the batches lie in."""
        return self.batches[SEGMENT].drop_nulls().unique().sort().to_list()


NOTHING = Publication(0, STORED_BATCHES.to_frame(), empty_frame(FindingRow), empty_frame(SourceRow))
"""What an empty directory has published."""


def current_number(layout: Layout) -> int:
    """Return the number of the newest generation, 0 where nothing is published.

    Raises:
        NoInputError: the ledger's file cannot be read.
    """
    return _info(layout)[0]


def newest_number(layout: Layout) -> int:
    """Return the number of the newest generation.

    Raises:
        NoInputError: there is no ledger, or its file cannot be read.
    """
    number = current_number(layout)
    if number == 0:
        message = (
            f"{layout.root}: no ledger there; make one with `rollout-ledger recompute SOURCE --ledger {layout.root}`"
        )
        raise NoInputError(message)
    return number


def needs_its_file(layout: Layout, last: Publication) -> bool:
    """Return whether the ledger's file is to be written anew: it is lost, damaged, or points to where it was before."""
    try:
        number, root = _info(layout)
    except NoInputError:
        return True
    return number != last.number or (number > 0 and root != str(layout.root.resolve()))


def _info(layout: Layout) -> tuple[int, str]:
    if not layout.database.exists():
        return 0, ""
    try:
        with opened(layout) as connection:
            row = connection.execute("SELECT generation, root FROM ledger_info").fetchone()
    except duckdb.Error as error:
        message = (
            f"{layout.database}: not a readable ledger ({str(error).splitlines()[0]}); recompute into a new directory"
        )
        raise NoInputError(message) from error
    return (int(row[0]), str(row[1])) if row else (0, "")


@contextmanager
def opened(layout: Layout) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection to the newest publication, as any client would read it.

    The file is attached: connecting to it would give the older one that another connection of this process has open.
    Where somebody has opened it for writing, which locks it, a copy is read: nothing of ours is ever written into it.
    """
    with closing(duckdb.connect(":memory:")) as connection, ExitStack() as stack:
        try:
            _attach(connection, layout.database)
        except duckdb.IOException as error:
            if "lock" not in str(error):
                raise
            aside = stack.enter_context(TemporaryDirectory(prefix="rollout-ledger"))
            _attach(connection, Path(shutil.copy(layout.database, aside)))
        connection.execute("USE ledger")
        yield connection


def _attach(connection: duckdb.DuckDBPyConnection, database: Path) -> None:
    connection.execute(f"ATTACH {relations.quoted(str(database))} AS ledger (READ_ONLY)")


def last(layout: Layout) -> Publication:
    """Return the publication that the next one starts from.

    It is the newest one. Where the ledger's file is lost or damaged, it is the newest one whose files are whole: they
    hold everything, and the file can be made from them.

    Raises:
        NoInputError: the ledger's file cannot be read, and there is nothing to make it from.
    """
    try:
        number = current_number(layout)
    except NoInputError:
        found = _newest_whole(layout)
        if found is None:
            raise
        return found
    return load(layout, number) if number else _newest_whole(layout) or NOTHING


def _newest_whole(layout: Layout) -> Publication | None:
    names = [path.name for path in layout.generation(0).parent.glob("*") if path.name.isdigit()]
    for number in sorted(map(int, names), reverse=True):
        try:
            found = load(layout, number)
        except NoInputError:
            continue
        if found.batches.schema == STORED_BATCHES and all(layout.segment(name).is_dir() for name in found.segments):
            return found
    return None


def current(layout: Layout) -> Publication:
    """Return the newest generation."""
    number = current_number(layout)
    return NOTHING if number == 0 else load(layout, number)


def load(layout: Layout, number: int) -> Publication:
    """Return a generation.

    Raises:
        NoInputError: it is not kept, or never was.
    """
    try:
        frames = {
            table.relation: pl.read_parquet(
                layout.generation_file(number, table.relation), glob=False, hive_partitioning=False
            )
            for table in GENERATION_TABLES
        }
    except (OSError, pl.exceptions.PolarsError) as error:
        message = f"{layout.root}: generation {number} is not there any more; recompute, or keep more generations"
        raise NoInputError(message) from error
    return Publication(number, **frames)


def publish(layout: Layout, publication: Publication, published_at: datetime, retention: Retention) -> None:
    """Publish a generation. Its segments must be in place; its number must be new."""
    _write_generation(layout, publication)
    database.write(layout, publication.number, publication.segments, published_at)
    collect_garbage(layout, publication.number, retention)


def collect_garbage(layout: Layout, newest: int, retention: Retention) -> list[str]:
    """Remove what nobody needs: generations beyond the retention, segments that none of the kept names, leftovers.

    Returns:
        Names of the removed generations and segments.
    """
    generations = [path for path in sorted(layout.generation(0).parent.glob("*")) if path.name.isdigit()]
    kept = [path for path in generations if _is_kept(layout, int(path.name), newest, retention)]
    named: set[str] = set()
    for path in kept:
        named |= _named_segments(path, is_newest=int(path.name) == newest)
    gone = [path for path in generations if path not in kept]
    gone += [path for path in layout.segment("").glob("*") if path.name not in named]
    for directory in gone:
        shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(layout.staging, ignore_errors=True)
    return [path.name for path in gone]


def _named_segments(generation: Path, *, is_newest: bool) -> set[str]:
    """Return the segments that a generation names; none where it is a ruin, unless it is the published one.

    Raises:
        OSError: the published generation cannot be read: then nothing may be removed.
    """
    path = generation / f"{BatchRow.relation}.parquet"
    try:
        return set(pl.read_parquet(path, columns=[SEGMENT], glob=False)[SEGMENT].unique().drop_nulls())
    except (OSError, pl.exceptions.PolarsError) as error:
        if is_newest:
            raise OSError(errno.EIO, f"{path} cannot be read") from error
        return set()


def _is_kept(layout: Layout, number: int, newest: int, retention: Retention) -> bool:
    if number > newest:
        # What a dead writer left: no reader has ever seen it.
        return False
    if number > newest - max(retention.generations, 1):
        return True
    try:
        replaced_at = layout.generation(number + 1).stat().st_mtime
    except OSError:
        return False
    return time.time() - replaced_at < retention.seconds


def _write_generation(layout: Layout, publication: Publication) -> None:
    target = layout.generation(publication.number)
    staged = layout.staging / target.name
    for leftover in (staged, target):
        # A generation of this number that no database names is what a dead writer left.
        shutil.rmtree(leftover, ignore_errors=True)
    staged.mkdir(parents=True)
    for table in GENERATION_TABLES:
        schema = STORED_BATCHES if table is BatchRow else polars_schema(table)
        frame = getattr(publication, table.relation)
        rows = frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items()).sort(table.grain)
        durable.write_parquet(rows, staged / f"{table.relation}.parquet")
    durable.sync_directory(staged)
    target.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(staged, target)
