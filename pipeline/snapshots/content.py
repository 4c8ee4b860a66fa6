"""What a snapshot keeps of a ledger, wherever the rows lie: tables by their grain, in pieces of whole batches.

Not content: when, from which file and in which format a batch was read (`published_at`, `source`, `format`), and which
versions of the code computed it (`versions`, which the header keeps); nor the entries of dictionary rewards, which are
input: what they come to is in rewards and metrics.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.errors import NoInputError
from pipeline.expressions.keys import BATCH
from schemas.frames import answered_schema
from schemas.settings import Settings
from schemas.tables import AdapterRow, BatchRow, MetricRow, PromptGroupRow, RolloutRow, SampleRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.snapshot import SettingsUse, Versions
    from schemas.table import Table

TABLES: dict[str, type[Table]] = {
    table.relation: table for table in (MetricRow, AdapterRow, BatchRow, PromptGroupRow, RolloutRow, SampleRow)
}
"""Tables that a snapshot can keep, in the order of a report."""
SETTINGS = "settings"
"""Column of `batches` whose text is kept once, in the header."""
_NOT_CONTENT = ("published_at", "source", "format", "versions", "reward_parts")
_KEY = list(BATCH)


def kept_schema(table: type[Table]) -> pl.Schema:
    """Return the columns of a table that are content, with their types; words are texts, whichever there can be."""
    return pl.Schema({name: dtype for name, dtype in answered_schema(table).items() if name not in _NOT_CONTENT})


def normal_settings(text: str) -> str:
    """Return settings as JSON with every setting in it: one that is not named has its default."""
    values = {**Settings().model_dump(), **json.loads(text)}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class TableContent:
    """The rows of one table.

    Args:
        table: its definition.
        schema: its columns as they are on this side.
        pieces: lazy frames that together hold every row once; a batch may lie in several.
        batches: the batches that are content, where the pieces may hold others.
    """

    table: type[Table]
    schema: pl.Schema
    pieces: tuple[pl.LazyFrame, ...]
    batches: pl.DataFrame | None = None

    @property
    def grain(self) -> list[str]:
        """Return the columns that identify a row."""
        return list(self.table.grain)

    @cached_property
    def sizes(self) -> pl.DataFrame:
        """Return (run, split, step, rows, piece) for every batch of every piece."""
        if self.batches is None:
            return self._held
        return self._held.join(self.batches.select(_KEY), on=_KEY, how="semi")

    @cached_property
    def _held(self) -> pl.DataFrame:
        counted = [
            piece.group_by(_KEY).agg(rows=pl.len().cast(pl.Int64)).with_columns(piece=pl.lit(number, pl.Int64))
            for number, piece in enumerate(self.pieces)
        ]
        schema = {name: self.schema[name] for name in _KEY}
        empty = pl.DataFrame(schema={**schema, "rows": pl.Int64, "piece": pl.Int64})
        return pl.concat([empty, *(frame.select(empty.columns) for frame in self._collected(counted))])

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.sizes["rows"].sum())

    def read(self, batches: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of all rows of some batches, in an order that depends on `batches` alone.

        Raises:
            NoInputError: a file is not there any more, or is harmed.
        """
        found = self.sizes.join(batches.select(_KEY), on=_KEY, how="semi")
        whole = dict(self._held.group_by("piece").len().iter_rows())
        frames = []
        for number, wanted in sorted(found.group_by("piece").len().iter_rows()):
            piece = self.pieces[number]
            if wanted < whole[number]:
                piece = piece.filter(pl.struct(_KEY).is_in(batches.select(_KEY).to_struct("batch").implode()))
            frames.append(piece.select(columns))
        if not frames:
            return pl.DataFrame(schema={name: self.schema[name] for name in columns})
        return pl.concat(self._collected(frames))

    def _collected(self, frames: list[pl.LazyFrame]) -> list[pl.DataFrame]:
        try:
            return pl.collect_all(frames)
        except (OSError, pl.exceptions.PolarsError) as error:
            message = (
                f"{self.table.relation}: its files cannot be read ({str(error).splitlines()[0]}); if the ledger was "
            )
            message += "published anew meanwhile, run it again"
            raise NoInputError(message) from error


@dataclass(frozen=True)
class Content:
    """One side of a comparison: a stored snapshot, or a publication of a ledger.

    Args:
        title: what it is called in reports.
        versions: distinct versions of the code that computed it.
        settings: distinct settings of its batches, by fingerprint.
        tables: its tables by name.
        counts: what it was made from: runs, batches, samples, rollouts.
    """

    title: str
    versions: tuple[Versions, ...]
    settings: dict[str, SettingsUse]
    tables: dict[str, TableContent]
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def schema_versions(self) -> list[int]:
        """Return the versions of the published tables that its batches have."""
        return sorted({version.schema_ for version in self.versions})

    @property
    def metric_versions(self) -> dict[str, list[int]]:
        """Return the versions of the metrics' definitions, of those that had another than their first."""
        names = sorted({name for version in self.versions for name, number in version.metrics.items() if number > 1})
        return {name: sorted({version.metrics.get(name, 1) for version in self.versions}) for name in names}

    def settings_of_runs(self) -> dict[str, list[dict[str, Any]]]:
        """Return the settings in use, by run."""
        runs: dict[str, list[dict[str, Any]]] = {}
        for _, use in sorted(self.settings.items()):
            for run in use.runs:
                runs.setdefault(run, []).append(json.loads(normal_settings(json.dumps(use.values))))
        return runs


def chunks(sizes: pl.DataFrame, rows: int) -> list[pl.DataFrame]:
    """Return the batches in their order, in chunks of about so many rows.

    Args:
        sizes: run, split, step and rows; a batch may occur several times.
        rows: rows a chunk, reached by adding whole batches.
    """
    batches = sizes.group_by(_KEY).agg(pl.col("rows").sum()).sort(_KEY)
    before = pl.col("rows").cum_sum() - pl.col("rows")
    numbered = batches.with_columns(chunk=before // rows)
    return [chunk.drop("chunk") for chunk in numbered.partition_by("chunk", maintain_order=True)]
