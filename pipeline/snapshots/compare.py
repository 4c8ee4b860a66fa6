"""Two contents become a difference: chunk by chunk of whole batches, keyed by each table's grain, in both directions.

Memory is bounded by the rows of a chunk, not by those of a table, since every grain begins with the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import NoInputError
from pipeline.snapshots import header_changes, hints, notes
from pipeline.snapshots.content import SETTINGS, TABLES, Content, TableContent, chunks
from pipeline.snapshots.facts import ColumnChange, Diff
from pipeline.snapshots.table_comparison import CHUNK_ROWS, TableComparison
from pipeline.snapshots.text_rows import type_name
from pipeline.snapshots.tolerance import Tolerances

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBERS = {pl.Int64(), pl.Float64()}


@dataclass(frozen=True)
class Rules:
    """What counts as a difference.

    Args:
        tolerances: how far means may move.
        allow_new: keys that only the new side has are none: the run is growing.
        strict: an integer that became the equal float is one, too.
    """

    tolerances: Tolerances = field(default_factory=Tolerances)
    allow_new: bool = False
    strict: bool = False


def compare(old: Content, new: Content, rules: Rules | None = None) -> Diff:
    """Return everything that differs between two contents.

    Raises:
        NoInputError: they cannot be compared: tables of another schema version, or nothing on either side.
    """
    rules = rules or Rules()
    _check_comparable(old, new)
    changes: list[ColumnChange] = []
    done = [_compared(name, old, new, rules, changes) for name in TABLES if name in {*old.tables, *new.tables}]
    if not any(table.rows_seen for table in done):
        message = f"nothing to compare: neither {old.title} nor {new.title} has a row of {', '.join(old.tables)}"
        raise NoInputError(message)
    settings = list(header_changes.settings(old, new, growing=rules.allow_new))
    by_batch = any(table.compares(SETTINGS) for table in done)
    return Diff(
        old=old.title,
        new=new.title,
        moved=tuple(facts for table in done for facts in table.moved()),
        rows=tuple(facts for table in done for facts in table.rows()),
        columns=tuple(changes),
        settings=tuple(settings),
        # Compared batch by batch where both sides have the batches; else by run, from the headers.
        settings_fail=not by_batch,
        versions=tuple(header_changes.versions(old, new)),
        hints=tuple(hints.found(done, old, new, settings)),
        notes=tuple(notes.found(done, changes, rules.tolerances)),
        allow_new=rules.allow_new,
    )


def _check_comparable(old: Content, new: Content) -> None:
    if old.schema_versions != new.schema_versions and old.schema_versions and new.schema_versions:
        message = (
            f"{old.title} has tables of schema version {old.schema_versions}, {new.title} of {new.schema_versions}: "
            "their columns do not mean the same. Recompute the older one, or move the baseline with `snapshot accept`"
        )
        raise NoInputError(message)


def _compared(name: str, old: Content, new: Content, rules: Rules, changes: list[ColumnChange]) -> TableComparison:
    sides = [content.tables.get(name) for content in (old, new)]
    known = next(side for side in sides if side is not None)
    empty = TableContent(known.table, known.schema, ())
    left, right = (side or empty for side in sides)
    found = list(_column_changes(left, right, strict=rules.strict))
    changes += found
    gone = {change.column for change in found if change.old is None or change.new is None or _unlike(change)}
    columns = [c for c in left.schema if c in right.schema and c not in gone and c not in left.grain]
    comparison = TableComparison(left, right, columns, rules.tolerances)
    for chunk in chunks(pl.concat([left.sizes, right.sizes]), CHUNK_ROWS):
        comparison.add(chunk)
    return comparison


def _column_changes(old: TableContent, new: TableContent, *, strict: bool) -> Iterator[ColumnChange]:
    """Yield columns that changed. A new column is no difference: what was kept says nothing of it."""
    for name in dict.fromkeys([*old.schema, *new.schema]):
        before, after = (type_name(side.schema[name]) if name in side.schema else None for side in (old, new))
        if before != after:
            change = ColumnChange(old.table.relation, name, before, after, fails=False)
            fails = before is not None and (strict or after is None or _unlike(change))
            yield ColumnChange(change.table, name, before, after, fails)


def _unlike(change: ColumnChange) -> bool:
    """Return whether the two types are not both numbers, so that no value could be equal."""
    return not {change.old, change.new} <= {"int", "float"}
