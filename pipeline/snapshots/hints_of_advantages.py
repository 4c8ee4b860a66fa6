"""Hints from advantages: the ratio of new to old against what ddof, epsilon and the divisor of the group would give.

With s the unbiased deviation (n - 1) of the group's n votes and e the epsilon, an advantage is distance / (s + e). The
old side tells n and s of every group; the new side's divisor follows from the ratio.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.advantages import EPSILON
from pipeline.expressions.keys import BATCH
from pipeline.snapshots.agreement import all_rows, close, numbers
from schemas.tables import PromptGroupRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.snapshots.content import Content
    from pipeline.snapshots.table_comparison import TableComparison

_VOTES = {
    ("rollouts", "advantage"): pl.col("mainstream_reward"),
    ("samples", "advantage"): pl.when("is_mainstream").then("reward"),
    ("samples", "row_advantage"): pl.col("reward"),
}
_NEEDED = {"rollouts": ["mainstream_reward"], "samples": ["is_mainstream", "reward"]}
_GROUP = list(PromptGroupRow.grain)
_RATIO = 1e-6
"""How near a ratio has to be to a known one."""
_N, _S, _DIVISOR = pl.col("n"), pl.col("s"), pl.col("divisor")


def found(tables: Sequence[TableComparison], old: Content) -> Iterator[str]:
    """Yield hints from advantages and spreads that moved; one that holds for several columns names them all."""
    subjects: dict[str, list[str]] = {}
    for subject, text in _found(tables, old):
        subjects.setdefault(text, []).append(subject)
    return (f"{', '.join(names)}: {text}" for text, names in subjects.items())


def _found(tables: Sequence[TableComparison], old: Content) -> Iterator[tuple[str, str]]:
    for table in tables:
        if not table.samples:
            continue
        if table.table == "prompt_groups":
            yield from _of_spreads(table.sample)
        for (name, column), votes in _VOTES.items():
            if table.table == name:
                moved = numbers(table.sample, column).filter((pl.col("a") != 0) & (pl.col("b") != 0))
                if moved.height and moved.height == table.sample.filter(pl.col(f"differs:{column}")).height:
                    yield from _of_advantages(f"{name}.{column}", _with_votes(moved, name, votes, old))


def _with_votes(moved: pl.DataFrame, name: str, votes: pl.Expr, old: Content) -> pl.DataFrame:
    """Add n and s of the group's votes on the old side, and the divisor that the new side must have had."""
    columns = list(dict.fromkeys([*_GROUP, *_NEEDED[name]]))
    groups = (
        old.tables[name]
        .read(moved.select(BATCH).unique(), columns)
        .group_by(_GROUP)
        .agg(n=votes.count().cast(pl.Int64), s=votes.std(ddof=1))
    )
    # Of samples, the group is no part of the key.
    place = [pl.col(f"old:{part}").alias(part) for part in _GROUP if part not in moved.columns]
    joined = moved.with_columns(place).join(groups, on=_GROUP, how="left", nulls_equal=True)
    return joined.with_columns(divisor=(_S + EPSILON) * pl.col("a") / pl.col("b"))


def _of_advantages(name: str, moved: pl.DataFrame) -> Iterator[tuple[str, str]]:
    rows = moved.filter((_N > 1) & (_S > 0))
    if rows.height < moved.height:
        return
    ratio = pl.col("b") / pl.col("a")
    population = _S * ((_N - 1) / _N).sqrt()
    if all_rows(rows, close(_DIVISOR, population + EPSILON, _RATIO)):
        yield name, _ddof(rows, "divided by n (ddof 0) instead of n - 1")
    elif all_rows(rows, close(ratio, ((_N - 1) / _N).sqrt(), _RATIO)):
        yield name, _ddof(rows, "divided by n - 1 (ddof 1) instead of n")
    elif all_rows(rows, close(_DIVISOR, pl.lit(1.0), _RATIO)):
        yield name, "new / old is the group's standard deviation: no longer divided by it"
    elif all_rows(rows, close(pl.col("a"), pl.col("b") * (_S + EPSILON), _RATIO)):
        yield name, "old / new is the group's standard deviation: now divided by it"
    else:
        yield from _epsilon(name, rows)
        yield from _one_divisor(name, rows)


def _ddof(rows: pl.DataFrame, how: str) -> str:
    sizes = rows["n"].unique().sort()
    n = int(sizes[0])
    ratio = rows["b"][rows["n"].arg_min() or 0] / rows["a"][rows["n"].arg_min() or 0]
    told = f"ratio {ratio:.6f} is sqrt({n}/{n - 1})"
    if len(sizes) > 1:
        told = f"ratios such as {ratio:.6f} are sqrt(n/(n-1)), n the group's votes"
    return f"{told}: looks like ddof, the standard deviation {how}"


def _epsilon(name: str, rows: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield a hint where one other epsilon, a power of ten, explains every ratio."""
    extra = rows.select((_DIVISOR - _S).alias("epsilon")).to_series()
    middle = float(extra.median() or 0.0)  # type: ignore[arg-type]
    if not 1e-10 < middle < 0.1:  # noqa: PLR2004 - epsilons that anyone uses
        return
    power = 10.0 ** round(math.log10(middle))
    if power != EPSILON and bool(((extra - power).abs() <= 0.01 * power).all()):
        yield name, f"every ratio fits an epsilon of {power:.0e} instead of {EPSILON:.0e} in reward / (std + epsilon)"


def _one_divisor(name: str, rows: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield a hint where all groups of a batch are divided by one number, though their spreads differ."""
    batches = rows.group_by(BATCH).agg(
        spreads=_S.max() / _S.min(), low=_DIVISOR.min(), high=_DIVISOR.max(), groups=pl.struct(_GROUP).n_unique()
    )
    several = batches.filter((pl.col("groups") > 1) & (pl.col("spreads") > 1 + _RATIO))
    if several.height and all_rows(batches, close(pl.col("low"), pl.col("high"), _RATIO)):
        yield name, "all groups of a batch are divided by one number: the whole batch's deviation, not the group's"


def _of_spreads(sample: pl.DataFrame) -> Iterator[tuple[str, str]]:
    rows = numbers(sample, "reward_std").filter(pl.col("a") > 0).with_columns(n="old:scored_rollouts")
    if all_rows(rows, close(pl.col("b") / pl.col("a"), ((_N - 1) / _N).sqrt(), _RATIO)):
        yield "prompt_groups.reward_std", "new / old is sqrt((n-1)/n): looks like ddof, divided by n instead of n - 1"
    elif all_rows(rows, close(pl.col("b") / pl.col("a"), (_N / (_N - 1)).sqrt(), _RATIO)):
        yield "prompt_groups.reward_std", "new / old is sqrt(n/(n-1)): looks like ddof, divided by n - 1 instead of n"
