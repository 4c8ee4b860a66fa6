"""What is pointed out beside the verdict: tolerances that say less than they seem to, and what was not compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.snapshots.tolerance import METRIC_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.snapshots.facts import ColumnChange
    from pipeline.snapshots.table_comparison import TableComparison
    from pipeline.snapshots.tolerance import Tolerances


def found(tables: Sequence[TableComparison], columns: Sequence[ColumnChange], tolerances: Tolerances) -> Iterator[str]:
    """Yield notes, in the order of the tables."""
    for change in columns:
        yield from _of_column(change)
    for table in tables:
        for moved in table.moved():
            if moved.within:
                yield f"{moved.table} {moved.metric}: {moved.within:,} values moved within the tolerance"
        yield from _of_tolerances(table, tolerances)


def _of_column(change: ColumnChange) -> Iterator[str]:
    if change.fails:
        return
    if change.old is None:
        yield f"column {change.table}.{change.column} is new and was not compared"
    else:
        yield f"column {change.table}.{change.column} was {change.old} and is {change.new}; its values were compared"


def _of_tolerances(table: TableComparison, tolerances: Tolerances) -> Iterator[str]:
    """Yield a note on every given tolerance that is finer than one case, or as wide as the figures themselves."""
    for name, extent in sorted(table.extents.items()):
        given = tolerances.explicit(table.table, name)
        if given is None:
            continue
        allowed = max(given.absolute, given.relative * extent.largest)
        if table.table == METRIC_TABLE and extent.count and allowed < 1 / extent.count:
            case = 1 / extent.count
            yield (
                f"tolerance of {name}: {allowed:.3g} is less than one case of {extent.count:,} ({case:.3g}): "
                "a single rollout that scores differently fails"
            )
        if 0 < extent.largest <= given.absolute:
            yield (
                f"tolerance of {name}: {given.absolute:.3g} is no less than its largest value ({extent.largest:.3g}): "
                "hardly anything fails"
            )
