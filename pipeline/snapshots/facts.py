"""A difference is a value: what differs, by table and metric, with the largest cases. Texts are made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["pass", "fail"]
Key = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One value that moved.

    `difference` is new - old and `ratio` new / old; null where one of them is no finite number or the old one is 0.
    """

    key: Key
    old: Any
    new: Any
    difference: float | None
    ratio: float | None


@dataclass(frozen=True)
class Moved:
    """One metric or column over all rows that both sides have.

    Args:
        table: its table.
        metric: its name; in the table of metrics the metric's, with `.count` for its count.
        compared: rows that both sides have.
        differing: those that differ by more than the tolerance, or in their state.
        within: those that differ, but by no more than the tolerance.
        states: how many went from one state to another, as in "number -> null".
        worst: the largest differences, changes of state first.
    """

    table: str
    metric: str
    compared: int
    differing: int
    within: int = 0
    states: dict[str, int] = field(default_factory=dict)
    worst: tuple[Case, ...] = ()


@dataclass(frozen=True)
class Rows:
    """Rows that one side does not have, of one table; in the table of metrics of one metric.

    Args:
        table: the table.
        metric: the metric, in the table of metrics.
        kept: rows that both sides have.
        missing: rows that only the old side has.
        new: rows that only the new side has.
        repeated: rows whose key an earlier row of the new side has as well.
        missing_keys: the first of the missing.
        new_keys: the first of the new.
    """

    table: str
    metric: str | None
    kept: int
    missing: int
    new: int
    repeated: int = 0
    missing_keys: tuple[Key, ...] = ()
    new_keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class ColumnChange:
    """A column that is gone or new, or has another type. `fails`: it is a difference, not only a note."""

    table: str
    column: str
    old: str | None
    new: str | None
    fails: bool


@dataclass(frozen=True)
class SettingChange:
    """A setting of a run that is not what it was; several values where batches of the run have several."""

    run: str
    setting: str
    old: tuple[Any, ...]
    new: tuple[Any, ...]


@dataclass(frozen=True)
class VersionChange:
    """A metric whose definition has another version than it had."""

    metric: str
    old: tuple[int, ...]
    new: tuple[int, ...]


@dataclass(frozen=True)
class Diff:
    """Everything that differs between two contents."""

    old: str
    new: str
    moved: tuple[Moved, ...]
    rows: tuple[Rows, ...]
    columns: tuple[ColumnChange, ...] = ()
    settings: tuple[SettingChange, ...] = ()
    settings_fail: bool = False
    versions: tuple[VersionChange, ...] = ()
    hints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    allow_new: bool = False

    @property
    def verdict(self) -> Verdict:
        """Return pass only where nothing at all differs."""
        return "fail" if self.size else "pass"

    @property
    def size(self) -> int:
        """Return the number of differences: values, rows, columns and settings."""
        columns = sum(change.fails for change in self.columns)
        settings = len(self.settings) if self.settings_fail else 0
        new = 0 if self.allow_new else self.new_rows
        return self.differing + self.missing_rows + self.repeated_rows + new + columns + settings

    @property
    def compared(self) -> int:
        """Return the number of values compared."""
        return sum(moved.compared for moved in self.moved)

    @property
    def differing(self) -> int:
        """Return the number of values that differ."""
        return sum(moved.differing for moved in self.moved)

    @property
    def missing_rows(self) -> int:
        """Return the number of rows that are gone."""
        return sum(rows.missing for rows in self.rows)

    @property
    def new_rows(self) -> int:
        """Return the number of rows that were not there."""
        return sum(rows.new for rows in self.rows)

    @property
    def repeated_rows(self) -> int:
        """Return the number of rows whose key is not theirs alone."""
        return sum(rows.repeated for rows in self.rows)

    @property
    def kept_rows(self) -> int:
        """Return the number of rows that both sides have."""
        return sum(rows.kept for rows in self.rows)
