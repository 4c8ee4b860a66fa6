"""Hints from rows: columns that say what others said, adapters that are gone, counts that are a multiple, float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.snapshots.agreement import all_rows, close, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.snapshots.table_comparison import TableComparison

_FAMILIES = {
    "samples": [("advantage", "row_advantage", "every sample votes, not every rollout")],
    "adapters": [
        ("weight_scoped", "weight_by_rows", "weight by samples: fan-out votes"),
        ("weight_scoped", "weight_unscoped", "adapters merged: equal local ids are one rollout"),
        ("weight_scoped", "weight_macro", "every adapter has one vote"),
        ("rollouts", "samples", "every sample counts as a rollout: fan-out factor {factor:.4g}"),
    ],
    "batches": [("rollouts", "samples", "every sample counts as a rollout: fan-out factor {factor:.4g}")],
}
_SINGLE_PRECISION = (5e-9, 5e-7)
"""Largest relative difference that looks like rounding to 24 bits, from and to."""


def found(tables: Sequence[TableComparison]) -> Iterator[str]:
    """Yield hints from every table that has a difference."""
    by_name = {table.table: table for table in tables}
    yield from _lost_adapters(by_name)
    for table in tables:
        if table.samples:
            sample = table.sample
            yield from _as_another(table.table, sample)
            yield from _mainstream(table.table, sample)
            yield from _multiples(table.table, sample)
    yield from _single_precision(tables)


def _as_another(name: str, sample: pl.DataFrame) -> Iterator[str]:
    for column, other, meaning in _FAMILIES.get(name, []):
        rows = numbers(sample, column)
        # One value alone, a weight of 1/2 say, agrees by chance.
        several = rows["b"].n_unique() > 1 and f"old:{other}" in rows.columns
        if several and all_rows(rows, close(pl.col("b"), pl.col(f"old:{other}"))):
            told = meaning.format(factor=float(rows["b"].sum()) / (float(rows["a"].sum()) or 1.0))
            yield f"{name}.{column} is now what {other} was wherever it moved: {told}"


def _lost_adapters(tables: dict[str, TableComparison]) -> Iterator[str]:
    """Yield a hint where rows of named adapters are gone and their batches have rows of no adapter instead."""
    table = tables.get("adapters")
    if table is None or not table.missing.height:
        return
    named = pl.col("adapter_name").is_not_null() | pl.col("adapter_slot").is_not_null()
    batch = ["run", "split", "step"]
    gone, nobody = table.missing.filter(named), table.new.filter(~named) if table.new.height else table.new
    if gone.height and nobody.height and gone.join(nobody, on=batch, how="semi").height == gone.height:
        yield f"adapter lost: {gone.height:,} adapters are gone and their batches have rows of no adapter instead"


def _mainstream(name: str, sample: pl.DataFrame) -> Iterator[str]:
    if name != "rollouts" or not (moved := sample.filter("differs:mainstream_row")).height:
        return
    if moved.filter(pl.col("old:samples") != pl.col("new:samples")).height:
        # Then it is the rollout that is another one.
        return
    tokens = "their trainable tokens are counted as before" if not sample["differs:mainstream_tokens"].any() else ""
    earlier = all_rows(moved, pl.col("new:mainstream_row") < pl.col("old:mainstream_row"))
    later = all_rows(moved, pl.col("new:mainstream_row") > pl.col("old:mainstream_row"))
    told = [part for part in (tokens, "always an earlier one" * earlier, "always a later one" * later) if part]
    how = ", ".join(told) or "its choice has changed"
    yield f"another sample stands for {moved.height:,} rollouts (mainstream): {how}"


def _multiples(name: str, sample: pl.DataFrame) -> Iterator[str]:
    """Yield a hint where a batch's number of samples became a whole multiple: the same rows several times."""
    if name != "batches":
        return
    rows = numbers(sample, "samples").filter(pl.col("a") > 0)
    ratios = (rows["b"] / rows["a"]).unique()
    if len(ratios) == 1 and ratios[0] >= 2 and float(ratios[0]).is_integer():  # noqa: PLR2004 - twice at least
        yield f"batches.samples is {ratios[0]:.0f} times what it was: the same rows several times, once a rank perhaps"


def _single_precision(tables: Sequence[TableComparison]) -> Iterator[str]:
    """Yield a hint where every difference is as small as float32's rounding."""
    worst = 0.0
    for table in tables:
        if not table.samples or table.missing.height or table.new.height:
            continue
        sample = table.sample
        for column in (name.removeprefix("differs:") for name in sample.columns if name.startswith("differs:")):
            rows = sample.filter(pl.col(f"differs:{column}"))
            if rows.height:
                moved = numbers(sample, column)
                relative = ((moved["b"] - moved["a"]) / moved["a"]).abs()
                if moved.height < rows.height or not relative.is_finite().all():
                    return
                worst = max(worst, float(relative.max() or 0.0))  # type: ignore[arg-type]
    if _SINGLE_PRECISION[0] <= worst <= _SINGLE_PRECISION[1]:
        yield f"no difference is larger than {worst:.1e} of its value: rounding to single precision (float32)"
