"""What is published: read it, and publish the next generation, complete or not at all.

The rename of `ledger.duckdb` is the one moment at which a new generation is there. Everything that it points to has been
written and seen on disk before; whoever opened the file earlier keeps the older generation, whose files stay.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import polars as pl

from pipeline.errors import NoInputError
from pipeline.store import durable, relations
from pipeline.store.layout import Layout
from schemas.frames import empty_frame, polars_schema
from schemas.tables import BatchRow, FindingRow

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

KEPT_GENERATIONS = 3
"""Publications whose files are kept, the newest included: a reader of an older one has that long to finish."""
SEGMENT = "segment"
"""Column of a generation's batches that says where their rows lie."""
STORED_BATCHES = pl.Schema({**polars_schema(BatchRow), SEGMENT: pl.String(), "explicit_groups": pl.Boolean()})


@dataclass(frozen=True)
class Publication:
    """One generation of a ledger: its batches, with the segment of each, and its findings."""

    number: int
    batches: pl.DataFrame
    findings: pl.DataFrame

    @property
    def segments(self) -> list[str]:
        """Return the segments that the batches lie in."""
        return self.batches[SEGMENT].drop_nulls().unique().sort().to_list()


NOTHING = Publication(0, STORED_BATCHES.to_frame(), empty_frame(FindingRow))
"""What an empty directory has published."""


def current_number(layout: Layout) -> int:
    """Return the number of the newest generation, 0 where nothing is published.

    Raises:
        NoInputError: the ledger's file cannot be read.
    """
    if not layout.database.exists():
        return 0
    try:
        with closing(duckdb.connect(str(layout.database), read_only=True)) as connection:
            row = connection.execute("SELECT generation FROM ledger_info").fetchone()
    except duckdb.Error as error:
        message = (
            f"{layout.database}: not a readable ledger ({str(error).splitlines()[0]}); recompute into a new directory"
        )
        raise NoInputError(message) from error
    return int(row[0]) if row else 0


def current(layout: Layout) -> Publication:
    """Return the newest generation."""
    number = current_number(layout)
    if number == 0:
        return NOTHING
    batches, findings = (
        pl.read_parquet(layout.generation_file(number, name), glob=False, hive_partitioning=False)
        for name in (BatchRow.relation, FindingRow.relation)
    )
    return Publication(number, batches, findings)


def publish(layout: Layout, publication: Publication, published_at: datetime) -> None:
    """Publish a generation. Its segments must be in place; its number must be new."""
    _write_generation(layout, publication)
    _write_database(layout, publication, published_at)
    collect_garbage(layout, publication.number)


def collect_garbage(layout: Layout, newest: int) -> None:
    """Remove generations before the kept ones, segments that no kept generation names, and leftovers of dead writers."""
    generations = sorted(layout.generation(0).parent.glob("*"))
    kept = [path for path in generations if newest - KEPT_GENERATIONS < int(path.name) <= newest]
    named: set[str] = set()
    for path in kept:
        frame = pl.read_parquet(path / f"{BatchRow.relation}.parquet", columns=[SEGMENT], glob=False)
        named.update(frame[SEGMENT].drop_nulls())
    _remove(path for path in generations if path not in kept)
    _remove(path for path in (layout.data / "segments").glob("*") if path.name not in named)
    shutil.rmtree(layout.staging, ignore_errors=True)


def _remove(directories: Iterable[Path]) -> None:
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def _write_generation(layout: Layout, publication: Publication) -> None:
    target = layout.generation(publication.number)
    staged = layout.staging / target.name
    shutil.rmtree(staged, ignore_errors=True)
    # A generation of this number that no database names is what a dead writer left.
    shutil.rmtree(target, ignore_errors=True)
    staged.mkdir(parents=True)
    batches = publication.batches.select(pl.col(name).cast(dtype) for name, dtype in STORED_BATCHES.items())
    durable.write_parquet(batches.sort(BatchRow.grain), staged / f"{BatchRow.relation}.parquet")
    findings = publication.findings.select(pl.col(n).cast(t) for n, t in polars_schema(FindingRow).items())
    durable.write_parquet(findings.sort(FindingRow.grain), staged / f"{FindingRow.relation}.parquet")
    durable.sync_directory(staged)
    target.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(staged, target)


def _write_database(layout: Layout, publication: Publication, published_at: datetime) -> None:
    staged = layout.staging / "ledger.duckdb"
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.unlink(missing_ok=True)
    absolute = Layout(layout.root.resolve())
    with closing(duckdb.connect(":memory:")) as connection:
        # Readers use older clients than this one: the file keeps the first stable storage format.
        connection.execute(f"ATTACH {relations.quoted(str(staged))} AS ledger (STORAGE_VERSION 'v1.0.0')")
        connection.execute("USE ledger")
        relations.create_info(connection, publication.number, published_at)
        relations.create(connection, absolute, publication.number, publication.segments)
        connection.execute("USE memory")
        connection.execute("DETACH ledger")
    durable.sync_file(staged)
    durable.replace(staged, layout.database)
