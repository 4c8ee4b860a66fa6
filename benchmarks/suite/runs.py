"""The run that the accounting is measured on: a multi-LoRA run as Parquet files, the same one for the same number.

A step has 8,192 samples of 8 adapters that number their data alike, fan-out 1 to 4, groups of 8 rollouts, in the order
in which multi-LoRA trainers flatten them: by adapter slot, then by id. Every other adapter's rewards are 0 or 1, the
others' are any float; siblings may differ, some rewards are absent or NaN, and token counts have ties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.sources.record_writers import SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

STEP_SAMPLES, ADAPTERS, GROUP, FAN_OUT = 8_192, 8, 8, 4
STEPS_A_FILE = 32
RUN = "multi-lora"
_COLUMNS = (
    "split",
    "step",
    "adapter_name",
    "adapter_slot",
    "rollout_id",
    "group_index",
    "reward",
    "response_length",
    "trainable_tokens",
    "remove_sample",
    "status",
)


def steps_of(samples: int) -> int:
    """Return how many steps have at least so many samples."""
    return -(-samples // STEP_SAMPLES)


def write_run(directory: Path, steps: int, **shape: int) -> list[Path]:
    """Write a run's files into `directory`/RUN; `shape` as in `run_frame`."""
    folder = directory / RUN
    folder.mkdir(parents=True)
    at_once = max(1, STEPS_A_FILE * STEP_SAMPLES // shape.get("step_samples", STEP_SAMPLES))
    paths = []
    for first in range(0, steps, at_once):
        path = folder / f"steps-{first:06d}.parquet"
        run_frame(first, min(at_once, steps - first), **shape).write_parquet(path)
        paths.append(path)
    return paths


def run_frame(
    first: int, steps: int, *, step_samples: int = STEP_SAMPLES, adapters: int = ADAPTERS, fan_out: int = FAN_OUT
) -> pl.DataFrame:
    """Return some steps of the endless run, as a dump has them."""
    # Half as many rollouts again as fill a step; those that it has no room for are left out.
    drawn = max(GROUP, min(step_samples, step_samples * 5 // (2 * fan_out + 2) * 5 // 4))
    rollouts = (
        pl.LazyFrame({"step": range(first, first + steps)})
        .with_columns(number=pl.int_ranges(0, drawn))
        .explode("number")
        .with_columns(key=pl.col("step") * 2**20 + pl.col("number"))
        .with_columns(
            slot=pl.col("number") % adapters,
            rollout_id=pl.col("step") * drawn + pl.col("number") // adapters,
            leaves=(pl.col("key").hash(1) % fan_out + 1).cast(pl.Int64),
        )
        .filter(pl.col("leaves").cum_sum().over("step") - pl.col("leaves") < step_samples)
        .with_columns(group_index=pl.col("rollout_id") // GROUP)
    )
    samples = (
        rollouts.with_columns(leaf=pl.int_ranges(0, "leaves"))
        .explode("leaf")
        .filter(pl.int_range(pl.len()).over("step") < step_samples)
        .sort("step", "slot", "rollout_id", "leaf")
        .with_columns(leaf_key=pl.col("key") * FAN_OUT * 4 + pl.col("leaf"))
    )
    return samples.select(
        column.cast(SCHEMA[name]).alias(name) for name, column in zip(_COLUMNS, _columns(), strict=True)
    ).collect()


def _columns() -> list[pl.Expr]:
    length = (pl.col("leaf_key").hash(2) % 64 + 1) * 64
    return [
        pl.lit("train"),
        pl.col("step"),
        pl.format("adapter-{}", "slot"),
        pl.col("slot"),
        pl.col("rollout_id"),
        pl.col("group_index"),
        _reward(),
        length,
        length - pl.col("leaf_key").hash(3) % 2 * 32,
        pl.col("leaf_key").hash(4) % 50 == 0,
        pl.when(pl.col("leaf_key").hash(5) % 16 == 0).then(pl.lit("truncated")).otherwise(pl.lit("completed")),
    ]


def _reward() -> pl.Expr:
    # How often a prompt is solved differs between prompts, so that some groups are constant.
    chance = pl.struct("step", "slot", "group_index").hash(6) % 9
    solved = (pl.col("key").hash(7) % 8 < chance).cast(pl.Float64)
    score = _unit(pl.col("key"), 8) * 3 - 1
    of_rollout = pl.when(pl.col("slot") % 2 == 0).then(solved).otherwise(score)
    of_leaf = pl.when(pl.col("slot") % 2 == 0).then(1 - solved).otherwise(_unit(pl.col("leaf_key"), 9))
    differs = (pl.col("leaf") > 0) & (pl.col("leaf_key").hash(10) % 20 == 0)
    state = pl.col("leaf_key").hash(11) % 1_000
    value = pl.when(differs).then(of_leaf).otherwise(of_rollout)
    return pl.when(state >= 4).then(value).when(state == 0).then(pl.lit(float("nan")))  # noqa: PLR2004 -- 3 of 1,000


def _unit(key: pl.Expr, seed: int) -> pl.Expr:
    """Return a number in [0, 1) with all the bits that a float has."""
    return (key.hash(seed) // 2**11).cast(pl.Float64) / 2.0**53
