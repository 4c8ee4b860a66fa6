"""One table on both sides, compared chunk by chunk and column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pipeline.snapshots import cells
from pipeline.snapshots.alignment import Alignment, aligned
from pipeline.snapshots.tally import SAMPLE_ROWS, MovedTally, RowsTally
from pipeline.snapshots.tolerance import METRIC, METRIC_TABLE, VALUE
from schemas.snapshot import EXACT, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.snapshots.content import TableContent
    from pipeline.snapshots.facts import Moved, Rows
    from pipeline.snapshots.tolerance import Tolerances

CHUNK_ROWS = 2**19
"""Rows compared at once."""
_CELLS = 2**23
"""Values of either side held at once: of a chunk with very many rows, a few columns at a time."""
_SAMPLE_OF_CHUNK = 2_000
_KEYS = 1_000


@dataclass
class Extent:
    """How large the figures are that a given tolerance is for: their largest magnitude, and the most cases of one."""

    largest: float = 0.0
    count: int = 0


class TableComparison:
    """Everything found so far about one table.

    Args:
        old: the table as it was.
        new: the table as it is.
        columns: the columns to compare; both sides have them, with types that can be compared.
        tolerances: how far means may move.
    """

    def __init__(self, old: TableContent, new: TableContent, columns: Sequence[str], tolerances: Tolerances) -> None:
        self.table, self.grain = old.table.relation, old.grain
        self.samples: list[pl.DataFrame] = []
        """Rows with a difference: the key, and `old:C`, `new:C`, `differs:C` of every column C."""
        self.missing: pl.DataFrame = pl.DataFrame()
        self.new: pl.DataFrame = pl.DataFrame()
        """The first keys that only one side has."""
        self.extents: dict[str, Extent] = {}
        self._old, self._new, self._columns, self._tolerances = old, new, list(columns), tolerances
        self._moved: dict[str, MovedTally] = {}
        self._rows: dict[str | None, RowsTally] = {}

    @property
    def rows_seen(self) -> int:
        """Return the rows of either side."""
        return sum(tally.kept + tally.missing + tally.new for tally in self._rows.values())

    @property
    def sample(self) -> pl.DataFrame:
        """Return some of the rows with a difference, both sides beside each other."""
        return pl.concat(self.samples) if self.samples else pl.DataFrame()

    def compares(self, column: str) -> bool:
        """Return whether a column was compared in any row."""
        return column in self._columns and any(tally.kept for tally in self._rows.values())

    def moved(self) -> Iterator[Moved]:
        """Yield the facts of every metric or column."""
        return (tally.facts() for tally in self._moved.values())

    def rows(self) -> Iterator[Rows]:
        """Yield the facts of rows that one side does not have."""
        return (tally.facts() for tally in self._rows.values())

    def add(self, batches: pl.DataFrame) -> None:
        """Compare all rows of some batches."""
        old, new = (side.read(batches, self.grain) for side in (self._old, self._new))
        alignment = aligned(old, new)
        keys = old if alignment.old is None else old[alignment.old]
        self._add_rows(keys, old[alignment.missing], new[alignment.added], alignment.repeated)
        differing: dict[str, pl.Series] = {}
        width = max(1, _CELLS // max(1, old.height, new.height))
        for start in range(0, len(self._columns), width):
            self._add_columns(batches, self._columns[start : start + width], keys, alignment, differing)
        if differing:
            self._add_sample(batches, keys, alignment, differing)

    def _add_rows(self, keys: pl.DataFrame, missing: pl.DataFrame, new: pl.DataFrame, repeated: int) -> None:
        self.missing = pl.concat([self.missing, missing], how="diagonal").head(_KEYS)
        self.new = pl.concat([self.new, new], how="diagonal").head(_KEYS)
        if self.table != METRIC_TABLE:
            self._rows_of(None).add(keys.height, missing, new, repeated)
            return
        counts = dict(keys.group_by(METRIC).len().iter_rows())
        names = pl.concat([keys[METRIC], missing[METRIC], new[METRIC]]).unique().sort()
        for name in names:
            gone, added = (frame.filter(pl.col(METRIC) == name) for frame in (missing, new))
            self._rows_of(name).add(counts.get(name, 0), gone, added)
        if repeated:
            self._rows_of(None).add(0, missing.clear(), new.clear(), repeated)

    def _rows_of(self, metric: str | None) -> RowsTally:
        return self._rows.setdefault(metric, RowsTally(self.table, metric))

    def _add_columns(
        self,
        batches: pl.DataFrame,
        columns: Sequence[str],
        keys: pl.DataFrame,
        alignment: Alignment,
        differing: dict[str, pl.Series],
    ) -> None:
        old, new = self._old.read(batches, columns), self._new.read(batches, columns)
        for name in columns:
            left, right = _paired(old[name], alignment.old), _paired(new[name], alignment.new)
            self._measure(name, left, keys)
            different = self._add_column(name, left, right, keys)
            if different is not None:
                differing[name] = different

    def _add_column(self, name: str, old: pl.Series, new: pl.Series, keys: pl.DataFrame) -> pl.Series | None:
        """Compare one column; return which rows differ, null where none does."""
        if old.dtype == new.dtype and old.equals(new, null_equal=True):
            for metric, count in self._counts(name, keys):
                self._moved_of(metric).compared += count
            return None
        if self.table != METRIC_TABLE:
            pairs = cells.compared(old, new, self._tolerance(old, new, name))
            self._moved_of(name).add(pairs, keys)
            return pairs[cells.DIFFERS] if pairs[cells.DIFFERS].any() else None
        different = _nowhere(keys.height)
        for (metric,), rows in keys.with_row_index("row").group_by(METRIC):
            places = rows["row"]
            pairs = cells.compared(old[places], new[places], self._tolerance(old, new, name, str(metric)))
            self._moved_of(_metric_name(str(metric), name)).add(pairs, keys[places])
            different = different.scatter(places.filter(pairs[cells.DIFFERS]), True)  # noqa: FBT003 - Polars' own
        return different if different.any() else None

    def _measure(self, name: str, values: pl.Series, keys: pl.DataFrame) -> None:
        """Note how large the figures are that a tolerance was given for."""
        in_metrics = self.table == METRIC_TABLE
        for metric in keys[METRIC].unique() if in_metrics else [name]:
            if self._tolerances.explicit(self.table, metric) is None or not values.dtype.is_numeric():
                continue
            own = values.filter(keys[METRIC] == metric) if in_metrics else values
            sizes = own.cast(pl.Float64).abs()
            largest = float(sizes.filter(sizes.is_finite()).max() or 0.0)  # type: ignore[arg-type]
            extent = self.extents.setdefault(metric, Extent())
            if in_metrics and name != VALUE:
                extent.count = max(extent.count, int(largest))
            else:
                extent.largest = max(extent.largest, largest)

    def _counts(self, name: str, keys: pl.DataFrame) -> list[tuple[str, int]]:
        if self.table != METRIC_TABLE:
            return [(name, keys.height)]
        counts = keys.group_by(METRIC).len().sort(METRIC).iter_rows()
        return [(_metric_name(metric, name), count) for metric, count in counts]

    def _moved_of(self, metric: str) -> MovedTally:
        return self._moved.setdefault(metric, MovedTally(self.table, metric))

    def _tolerance(self, old: pl.Series, new: pl.Series, column: str, metric: str | None = None) -> Tolerance:
        if not (old.dtype.is_float() and new.dtype.is_float()):
            return EXACT
        return self._tolerances.of(self.table, metric if metric is not None and column == VALUE else column)

    def _add_sample(
        self, batches: pl.DataFrame, keys: pl.DataFrame, alignment: Alignment, differing: dict[str, pl.Series]
    ) -> None:
        room = min(_SAMPLE_OF_CHUNK, SAMPLE_ROWS - sum(sample.height for sample in self.samples))
        if room <= 0:
            return
        chosen = keys.select(pl.any_horizontal(list(differing.values())).alias("any")).to_series()
        if self.table == METRIC_TABLE:
            # A metric that moved is told from what the other metrics of its batch said.
            moved = keys.filter(chosen).select("run", "split", "step").unique()
            chosen = keys.select(pl.struct(moved.columns).is_in(moved.to_struct("batch").implode())).to_series()
        places = chosen.arg_true().head(room)
        sides = [
            side.read(batches, self._columns)[places if rows is None else rows[places]].select(
                pl.all().name.prefix(f"{prefix}:")
            )
            for prefix, side, rows in (("old", self._old, alignment.old), ("new", self._new, alignment.new))
        ]
        nowhere = _nowhere(keys.height)
        flags = [differing.get(name, nowhere)[places].alias(f"differs:{name}") for name in self._columns]
        self.samples.append(pl.concat([keys[places], *sides, pl.DataFrame(flags)], how="horizontal"))


def _nowhere(rows: int) -> pl.Series:
    return pl.repeat(value=False, n=rows, dtype=pl.Boolean, eager=True)


def _paired(column: pl.Series, rows: pl.Series | None) -> pl.Series:
    return column if rows is None else column[rows]


def _metric_name(metric: str, column: str) -> str:
    return metric if column == VALUE else f"{metric}.{column}"
