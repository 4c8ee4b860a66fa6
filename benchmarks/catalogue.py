"""What the metric catalogue costs beside the accounting alone.

    python benchmarks/catalogue.py [--steps 32] [--repeats 7] [--json FILE]

Canonical samples of several steps of 8,192 (8 adapters with colliding ids, fan-out 1 to 4) are accounted for in one
chunk, in turns with and without the catalogue, so that what else the machine does falls on both; medians are told.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from pipeline.recomputing.chunk import compute_frames
from schemas.canonical import CanonicalBatch, CanonicalSample
from schemas.frames import polars_schema
from schemas.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS, ADAPTERS, GROUP = 8_192, 8, 8
ACCOUNTING = Settings(metrics=["accounting"])
EVERYTHING = Settings()
LIMIT = 2.0


def step_samples(step: int) -> pl.LazyFrame:
    """Return the canonical samples of one step, sorted by adapter and id as trainers flatten them."""
    rollouts = (
        pl.LazyFrame({"number": range(ROWS)})
        .with_columns(draw=pl.col("number").hash(step), fan_out=pl.col("number").hash(step + 1) % 4 + 1)
        .with_columns(adapter=pl.col("number") % ADAPTERS, local=pl.col("number") // ADAPTERS)
        .filter(pl.col("fan_out").cum_sum() <= ROWS)
        .sort("adapter", "local")
    )
    samples = rollouts.with_columns(leaf=pl.int_ranges(0, pl.col("fan_out").cast(pl.Int64))).explode("leaf")
    length = (pl.struct("number", "leaf").hash(step) % 6_000 + 1).cast(pl.Int64)
    given = {
        "run": pl.lit("bench"),
        "split": pl.lit("train"),
        "step": pl.lit(step),
        "row": pl.int_range(pl.len()),
        "adapter_name": pl.format("adapter-{}", "adapter"),
        "adapter_slot": pl.col("adapter"),
        "rollout_id": pl.col("local"),
        "group_index": pl.col("local") // GROUP,
        "reward_value": (pl.col("draw") % 3).cast(pl.Float64) / 2,
        "reward_value_state": pl.lit("ok"),
        "has_raw_reward": pl.lit(value=False),
        "raw_value_state": pl.lit("missing"),
        "response_length": length,
        "mask_tokens": length // 2,
        "remove_sample": pl.col("draw") % 50 == 0,
        "status": pl.when(pl.col("draw") % 10 == 0).then(pl.lit("truncated")).otherwise(pl.lit("completed")),
        "versions_seen": pl.lit(1),
        "version_oldest": pl.lit(step),
        "version_newest": pl.lit(step),
        "cached_tokens": length // 3,
        "prompt_tokens": length,
        "non_generation_time": (pl.col("draw") % 1_000).cast(pl.Float64) / 100,
        "tool_calls": (pl.col("draw") % 5).cast(pl.Int64),
        "is_repetitive": pl.col("draw") % 100 == 0,
    }
    return samples.select(
        given.get(name, pl.lit(None)).cast(dtype).alias(name) for name, dtype in polars_schema(CanonicalSample).items()
    )


def canonical(steps: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return samples and batches."""
    samples = pl.concat([step_samples(step) for step in range(steps)]).collect()
    given = {"source": pl.lit("bench"), "format": pl.lit("none"), "explicit_groups": pl.lit(value=False)}
    counted = samples.group_by("run", "split", "step", maintain_order=True).agg(samples=pl.len()).with_columns(**given)
    return samples, counted.select(pl.col(name).cast(dtype) for name, dtype in polars_schema(CanonicalBatch).items())


def seconds(samples: pl.DataFrame, batches: pl.DataFrame, settings: Settings) -> float:
    start = time.perf_counter()
    compute_frames(samples, batches, settings, "in-memory")
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    samples, batches = canonical(options.steps)
    seconds(samples, batches, EVERYTHING)
    alone, whole = [], []
    for _ in range(options.repeats):
        alone.append(seconds(samples, batches, ACCOUNTING))
        whole.append(seconds(samples, batches, EVERYTHING))
    accounting, everything = statistics.median(alone), statistics.median(whole)
    ratio = (everything - accounting) / accounting
    print(f"{samples.height:,} samples in {batches.height} batches; load {os.getloadavg()[0]:.1f}")
    print(
        f"accounting alone {accounting:.3f} s, with the catalogue {everything:.3f} s: the catalogue costs {ratio:.2f} x"
    )
    if options.json:
        facts = {"samples": samples.height, "machine": platform.machine(), "accounting": alone, "everything": whole}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if ratio < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
