"""Hints from the table of metrics: a definition that says what another one said, a sum that only got more parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.catalogue import accounting
from pipeline.snapshots.agreement import all_rows, close
from pipeline.snapshots.tolerance import METRIC, METRIC_TABLE
from schemas.tables import AdapterRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.snapshots.table_comparison import TableComparison

_PLACE = [*AdapterRow.grain, "scope"]
_MEANINGS = {
    ("episode_raw_reward", "unscoped_raw_reward"): "adapters merged: equal ids of different adapters are one rollout",
    ("episode_raw_reward", "adapter_macro_raw_reward"): "every adapter has one vote, whatever its number of rollouts",
    ("episode_raw_reward", "row_mean_raw_reward"): "every sample votes, not every rollout: fan-out factor {factor:.4g}",
    ("unscoped_raw_reward", "episode_raw_reward"): "the adapter has come into the key",
    ("row_mean_raw_reward", "episode_raw_reward"): "every rollout votes, not every sample",
}


def found(tables: Sequence[TableComparison]) -> Iterator[str]:
    """Yield hints from the metrics, if they were compared and any moved."""
    for table in tables:
        if table.table != METRIC_TABLE or not table.samples:
            continue
        sample = table.sample
        moved = sample.filter(pl.col("differs:value") | pl.col("differs:count"))
        for (name,), rows in moved.filter("differs:value").group_by(METRIC, maintain_order=True):
            yield from _as_another(str(name), rows, sample)
            yield from _as_zero(str(name), rows)


def _as_another(name: str, moved: pl.DataFrame, sample: pl.DataFrame) -> Iterator[str]:
    """Yield a hint where value and count of a metric are now those that another one had, everywhere."""
    # Two metrics that are not definitions of one thing may well be equal by chance.
    if name not in accounting.NAMES:
        return
    fitting = []
    for (other,), rows in sample.filter(pl.col(METRIC).is_in(accounting.NAMES)).group_by(METRIC, maintain_order=True):
        if other == name:
            continue
        before = rows.select(*_PLACE, other_value="old:value", other_count="old:count")
        pairs = moved.join(before, on=_PLACE, how="inner", nulls_equal=True)
        same = close(pl.col("new:value"), pl.col("other_value")) & (pl.col("new:count") == pl.col("other_count"))
        # A scope in which the other metric is not published says nothing for or against.
        if all_rows(pairs, same):
            fitting.append((str(other), pairs))
    if len(fitting) == 1:
        other, pairs = fitting[0]
        factor = int(pairs["new:count"].sum()) / max(1, int(pairs["old:count"].sum()))
        meaning = _MEANINGS.get((name, other), "one definition in place of the other").format(factor=factor)
        yield f"{name} is now what {other} was, value and count, in {_cases(pairs.height)}: {meaning}"


def _as_zero(name: str, moved: pl.DataFrame) -> Iterator[str]:
    """Yield a hint where the sum stayed and only the count grew: what has no score counts as 0."""
    before, after = (pl.col(f"{side}:value") * pl.col(f"{side}:count") for side in ("old", "new"))
    same_sum = close(before, after) & (pl.col("new:count") > pl.col("old:count"))
    if all_rows(moved, same_sum) and moved.select((before != 0).any()).item():
        yield (
            f"{name}: the sum is what it was and the count has grown, in {_cases(moved.height)}: what is not scored "
            "(missing, NaN) counts as 0"
        )


def _cases(number: int) -> str:
    return "the one case" if number == 1 else f"all {number:,} cases"
