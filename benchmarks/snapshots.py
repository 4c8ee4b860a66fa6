"""How long it takes, and how much memory, to compare two tables of samples.

    python benchmarks/snapshots.py [--rows 10000000] [--directory DIR] [SCENARIO ...]

One side is a stored snapshot, the other the segments of a ledger; both are made directly, of 8,192 samples a step.
Scenarios: `equal`, `moved` (every advantage differs), `one-sided` (of every step one row is missing and one is new, so
that nothing lines up), `one-batch` (a single step of the largest size there can be). Each has a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from pipeline.snapshots import report, stored
from pipeline.snapshots.compare import compare
from pipeline.snapshots.content import TABLES, Content, TableContent, kept_schema
from schemas.snapshot import Selection, Versions

TABLE = TABLES["samples"]
STEP_ROWS = 8_192
SEGMENT_ROWS = 2**18
LARGEST_BATCH = 2**22
SCENARIOS = ("equal", "moved", "one-sided", "one-batch")


def samples(first: int, rows: int, step_rows: int) -> pl.DataFrame:
    """Return some rows of an endless run, the same ones for the same places."""
    place = pl.int_range(first, first + rows, dtype=pl.Int64, eager=True).alias("place")
    frame = pl.DataFrame(place).with_columns(step=pl.col("place") // step_rows, row=pl.col("place") % step_rows)
    noise = ((pl.col("place") * 2654435761) % 1_000_003) / 1_000_003
    columns = {
        "run": pl.lit("qwen3-8b-multi-lora-2026-08"),
        "split": pl.lit("train"),
        "adapter_name": pl.when(pl.col("row") % 3 > 0).then(pl.format("adapter-{}", pl.col("row") % 7)),
        "adapter_slot": pl.when(pl.col("row") % 3 > 0).then(pl.col("row") % 7),
        "kind": pl.lit("rollout"),
        "id": pl.col("row") // 2,
        "group_index": pl.col("row") // 16,
        "prompt_group": pl.col("row") // 16,
        "rollout_id": pl.col("row") // 2,
        "sample_index": pl.col("row"),
        "reward": noise,
        "reward_state": pl.lit("ok"),
        "raw_reward": noise * 2,
        "raw_reward_state": pl.lit("ok"),
        "response_length": (noise * 4_000).cast(pl.Int64),
        "trainable_tokens": (noise * 4_000).cast(pl.Int64),
        "remove_sample": pl.col("row") % 97 == 0,
        "status": pl.when(pl.col("row") % 5 == 0).then(pl.lit("truncated")).otherwise(pl.lit("completed")),
        "is_mainstream": pl.col("row") % 2 == 0,
        "advantage": noise * 3 - 1.5,
        "row_advantage": noise * 3 - 1.4,
    }
    schema = kept_schema(TABLE)
    frame = frame.with_columns(**columns)
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )


def changed(frame: pl.DataFrame, scenario: str, step_rows: int) -> pl.DataFrame:
    if scenario == "moved":
        return frame.with_columns(advantage=pl.col("advantage") * 1.5)
    if scenario == "one-sided":
        return frame.with_columns(row=pl.when(pl.col("row") == 0).then(step_rows).otherwise("row"))
    return frame


def side(directory: Path) -> Content:
    pieces = tuple(pl.scan_parquet(path) for path in sorted(directory.glob("*.parquet")))
    return Content(
        directory.name, (Versions(schema=1),), {}, {"samples": TableContent(TABLE, kept_schema(TABLE), pieces)}
    )


def write(directory: Path, scenario: str, rows: int) -> None:
    """Write the old side as a snapshot and the new one as segments."""
    step_rows = min(rows, LARGEST_BATCH) if scenario == "one-batch" else STEP_ROWS
    rows = step_rows if scenario == "one-batch" else rows
    for name in ("before", "after"):
        (directory / name).mkdir(parents=True)
        for number, first in enumerate(range(0, rows, SEGMENT_ROWS)):
            frame = samples(first, min(SEGMENT_ROWS, rows - first), step_rows)
            frame = changed(frame, scenario, step_rows) if name == "after" else frame
            frame.write_parquet(directory / name / f"{number:05d}.parquet", compression="zstd", compression_level=1)


def timed(directory: Path, part: str) -> None:
    started = time.perf_counter()
    if part == "save":
        stored.write(side(directory / "before"), Selection(tables=("samples",)), directory / "snapshot")
        told = ""
    else:
        _, old = stored.read(directory / "snapshot")
        told = report.render(compare(old, side(directory / "after")))
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak, processor = used.ru_maxrss / 2**20, used.ru_utime + used.ru_stime
    first, lines = told.split("\n", 1)[0], len(told.splitlines())
    print(
        f"{part:8}{seconds:7.1f} s ({processor:5.1f} s of processors)  {peak:5.2f} GiB  {lines:3} lines  {first}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        timed(given.directory, given.part)
        return
    for scenario in given.scenarios:
        with tempfile.TemporaryDirectory(dir=given.directory) as directory:
            print(f"{scenario}, {given.rows:,} rows", flush=True)
            write(Path(directory), scenario, given.rows)
            for part in ("save", "compare"):
                command = [sys.executable, __file__, "--part", part, "--directory", directory]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
