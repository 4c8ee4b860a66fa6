"""What is found in chunk after chunk, added up: counts, the largest cases, and a sample of rows for the hints."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.snapshots import cells
from pipeline.snapshots.facts import Case, Moved, Rows

if TYPE_CHECKING:
    from pipeline.snapshots.facts import Key

EXAMPLES = 5
"""Cases kept of every metric, and keys kept of missing and new rows."""
SAMPLE_ROWS = 20_000
"""Rows with a difference that the hints look at, of every table."""


@dataclass
class MovedTally:
    """Counts of one metric so far."""

    table: str
    metric: str
    compared: int = 0
    differing: int = 0
    within: int = 0
    largest: float = 0.0
    states: Counter[str] = field(default_factory=Counter)
    worst: list[tuple[float, Case]] = field(default_factory=list)

    def add(self, pairs: pl.DataFrame, keys: pl.DataFrame) -> None:
        """Add compared pairs (see `cells.compared`), their keys beside them."""
        self.compared += pairs.height
        self.within += int(pairs[cells.WITHIN].sum())
        different = pairs.with_row_index("row").filter(cells.DIFFERS)
        self.differing += different.height
        if not different.height:
            return
        changes = different.filter(pl.col(cells.FROM) != pl.col(cells.TO)).group_by(cells.FROM, cells.TO).len()
        for before, after, count in changes.iter_rows():
            self.states[f"{cells.STATES[before]} -> {cells.STATES[after]}"] += count
        top = different.sort(-pl.col(cells.SCORE), "row").head(EXAMPLES)
        key_rows = keys[top["row"].to_list()].to_dicts()
        found = [
            (score, _case(key, old, new))
            for key, (score, old, new) in zip(key_rows, top.select(cells.SCORE, "old", "new").iter_rows(), strict=True)
        ]
        self.worst = sorted([*self.worst, *found], key=lambda entry: -entry[0])[:EXAMPLES]

    def facts(self) -> Moved:
        """Return the counts as facts."""
        states = dict(sorted(self.states.items()))
        worst = tuple(case for _, case in self.worst)
        return Moved(self.table, self.metric, self.compared, self.differing, self.within, states, worst)


@dataclass
class RowsTally:
    """Missing and new rows of one table, or of one metric in the table of metrics, so far."""

    table: str
    metric: str | None
    kept: int = 0
    missing: int = 0
    new: int = 0
    repeated: int = 0
    missing_keys: list[Key] = field(default_factory=list)
    new_keys: list[Key] = field(default_factory=list)

    def add(self, kept: int, missing: pl.DataFrame, new: pl.DataFrame, repeated: int = 0) -> None:
        """Add rows that both sides have, and the keys of those that one has."""
        self.kept += kept
        self.missing += missing.height
        self.new += new.height
        self.repeated += repeated
        self.missing_keys += missing.head(EXAMPLES - len(self.missing_keys)).to_dicts()
        self.new_keys += new.head(EXAMPLES - len(self.new_keys)).to_dicts()

    def facts(self) -> Rows:
        """Return the counts as facts."""
        keys = tuple(self.missing_keys), tuple(self.new_keys)
        return Rows(self.table, self.metric, self.kept, self.missing, self.new, self.repeated, *keys)


def _case(key: Key, old: Any, new: Any) -> Case:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (old, new))
    if not numbers or not (math.isfinite(old) and math.isfinite(new)):
        return Case(key, old, new, None, None)
    return Case(key, old, new, new - old, new / old if old else None)
