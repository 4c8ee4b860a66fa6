"""What the accounting notices on its way: findings that need whole batches to be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import keys
from pipeline.expressions.groups import BLOCK_SOURCES
from pipeline.expressions.measures import KNOWN_STATUSES
from pipeline.stages.samples import SAMPLES

if TYPE_CHECKING:
    from schemas.settings import Settings

_COLUMNS = (*keys.BATCH, "code", "row", "value")


def noticed(samples: pl.LazyFrame, stretches: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Return (run, split, step, code, row, value) of every finding of the accounting."""
    # The row that is told of a stretch is its first one.
    firsts = stretches.with_columns(row="first_row")
    found = [_partial_raw_reward(firsts), _mixed_blocks(firsts), _unknown_status(samples)]
    if settings.sibling_rewards == "shared":
        found.append(_differing_siblings(firsts))
    return pl.concat([one.select(_COLUMNS) for one in found])


def _partial_raw_reward(frame: pl.LazyFrame) -> pl.LazyFrame:
    """First sample of a batch whose having raw_reward differs from that of the batch's first sample."""
    differs = frame.filter(pl.col("has_raw_reward") != pl.col("uses_raw_reward"))
    return _first_a_batch(differs, "raw_reward_partial", pl.col(SAMPLES).sum().cast(pl.String) + " of the samples")


def _mixed_blocks(frame: pl.LazyFrame) -> pl.LazyFrame:
    """First row of a block whose adapter is not that of the block's first row."""
    firsts = frame.filter(pl.col("group_source").is_in(BLOCK_SOURCES) & keys.leads("group"))
    blocks = firsts.group_by(*keys.BATCH, "group_rule").agg(rows=pl.col("row").sort(), adapters=pl.len())
    return blocks.filter(pl.col("adapters") > 1).with_columns(
        row=pl.col("rows").list.get(1),
        value=pl.col("adapters").cast(pl.String) + " adapters",
        code=pl.lit("group_mixes_adapters"),
    )


def _unknown_status(frame: pl.LazyFrame) -> pl.LazyFrame:
    unknown = frame.filter(~pl.col("status").is_in(KNOWN_STATUSES))
    return _first_a_batch(unknown, "unknown_status", pl.col("status").sort_by("row").first())


def _differing_siblings(frame: pl.LazyFrame) -> pl.LazyFrame:
    """First row of a rollout whose reward is not that of its first scored sample."""
    first = pl.when(pl.col("reward").is_not_null()).then("position").min().over("rollout")
    frame = frame.with_columns(first_scored=first).with_columns(
        first_reward=pl.when(pl.col("position") == pl.col("first_scored")).then("reward").max().over("rollout")
    )
    differing = frame.filter(pl.col("reward") != pl.col("first_reward"))
    # Added, not formatted: `pl.format` panics in the streaming engine on what a filter leaves of several chunks.
    first_reward, reward, kind, number = (
        pl.col(name).cast(pl.String) for name in ("first_reward", "reward", "kind", "id")
    )
    values = first_reward + " and " + reward + " in " + kind + " " + number
    return differing.filter(pl.col("position") == pl.col("position").min().over("rollout")).with_columns(
        value=values, code=pl.lit("siblings_differ")
    )


def _first_a_batch(rows: pl.LazyFrame, code: str, value: pl.Expr) -> pl.LazyFrame:
    return rows.group_by(keys.BATCH).agg(row=pl.col("row").min(), value=value).with_columns(code=pl.lit(code))
