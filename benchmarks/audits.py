"""How long every audit and check takes on a large ledger.

    python benchmarks/audits.py [--samples 10000000] [--ledger DIR] [--json FILE] [NAME ...]

The ledger is made of canonical samples that never were a dump: about 8,400 samples a step from 8 adapters that number
their prompts alike, so that every id of one adapter meets that of every other: the worst case for audits of identity.
It is kept in DIR and used again where it is already there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipeline.audit.audits import audit
from pipeline.audit.query import sql
from pipeline.recomputing.chunk import Chunk, compute
from pipeline.sources.batch import BatchRead
from pipeline.store import publication, segments
from pipeline.store.layout import Layout
from pipeline.store.publication import NOTHING, SEGMENT, STORED_BATCHES, Retention
from queries.files import ANSWERS, queries
from schemas.canonical import CanonicalSample
from schemas.frames import polars_schema
from schemas.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ADAPTERS = ["north", "south", "east", "west", "code", "math", "chat", "tools"]
PROMPTS, ROLLOUTS = 80, 8
FAN_OUT = [1, 2, 3, 4]
RUN = "qwen3-8b-multi-lora-2026-08"
BATCHES_A_CHUNK = 32
REPEATS = 3
DISAGREEING, REMOVED = 0.02, 0.01


def make_ledger(root: Path, samples: int, seed: int = 7) -> None:
    """Publish a ledger of at least `samples` samples."""
    layout = Layout(root)
    random = np.random.default_rng(seed)
    settings = Settings()
    published, made, step = [], 0, 0
    while made < samples:
        chunk = []
        for batch in one_step_after_another(random, step):
            chunk.append(batch)
            made += batch.samples.height
            if len(chunk) == BATCHES_A_CHUNK or made >= samples:
                break
        step += len(chunk)
        computed = compute(Chunk(tuple(chunk), settings))
        segment = segments.write_segment(layout, computed.tables)
        stamp = {"settings": pl.lit(settings.as_json()), SEGMENT: pl.lit(segment), "state": pl.lit("ok")}
        published.append(computed.batches.with_columns(**stamp))
    now = datetime.now(UTC)
    batches = pl.concat(published).with_columns(pl.lit(now).alias("published_at"))
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in STORED_BATCHES.items() if name not in batches.columns]
    stored = batches.with_columns(absent).select(pl.col(name).cast(dtype) for name, dtype in STORED_BATCHES.items())
    publication.publish(layout, replace(NOTHING, number=1, batches=stored), now, Retention())


def one_step_after_another(random: np.random.Generator, step: int) -> Iterator[BatchRead]:
    while True:
        yield BatchRead(RUN, "train", step, f"{RUN}/rollout_data/{step}.pt", "trainer_dump", one_batch(random, step))
        step += 1


def one_batch(random: np.random.Generator, step: int) -> pl.DataFrame:
    """Samples of one step, adapter by adapter, siblings together."""
    adapter = np.repeat(np.arange(len(ADAPTERS)), PROMPTS * ROLLOUTS)
    prompt = np.tile(np.repeat(np.arange(PROMPTS), ROLLOUTS), len(ADAPTERS))
    rollout = np.tile(np.arange(PROMPTS * ROLLOUTS), len(ADAPTERS))
    # The later an adapter comes in the list, the more often its rollouts are cut into several samples.
    cut = random.random(adapter.size) < 0.1 + 0.08 * adapter
    fan_out = np.where(cut, random.choice(FAN_OUT, adapter.size, p=[0.0, 0.5, 0.3, 0.2]), 1)
    solved = (random.random(adapter.size) < random.beta(0.6, 0.6, adapter.size // ROLLOUTS).repeat(ROLLOUTS)) * 1.0
    leaf = np.repeat(np.arange(adapter.size), fan_out)
    n = leaf.size
    disagrees = random.random(n) < DISAGREEING
    reward = np.where(disagrees, solved[leaf] / 2, solved[leaf])
    state = random.choice(["ok", "missing", "nan"], n, p=[0.995, 0.004, 0.001])
    length = random.integers(16, 4096, n)
    columns: dict[str, Any] = {
        "run": RUN,
        "split": "train",
        "step": step,
        "row": np.arange(n),
        "adapter_name": pl.Series(np.array(ADAPTERS)[adapter[leaf]]),
        "adapter_slot": adapter[leaf],
        "registration_id": pl.Series(np.array([f"{i:032x}" for i in range(len(ADAPTERS))])[adapter[leaf]]),
        "rollout_id": step * PROMPTS * ROLLOUTS + rollout[leaf],
        "sample_index": step * PROMPTS * ROLLOUTS + rollout[leaf],
        "group_index": step * PROMPTS + prompt[leaf],
        "explicit_group": None,
        "reward_value": pl.Series(reward),
        "reward_value_state": pl.Series(state),
        "reward_parts": None,
        "has_raw_reward": False,
        "raw_value": None,
        "raw_value_state": "missing",
        "response_length": length,
        "mask_tokens": length - random.integers(0, 16, n),
        "remove_sample": random.random(n) < REMOVED,
        "status": pl.Series(random.choice(["completed", "truncated", "aborted"], n, p=[0.93, 0.06, 0.01])),
    }
    frame = pl.select(
        (value if isinstance(value, pl.Series) else _column(value, n)).alias(name) for name, value in columns.items()
    )
    scored = pl.col("reward_value_state") == "ok"
    frame = frame.with_columns(pl.when(scored).then("reward_value").alias("reward_value"))
    # What only the metric catalogue reads is not told: no audit looks at it.
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in polars_schema(CanonicalSample).items()
    )


def _column(value: Any, n: int) -> pl.Series | pl.Expr:
    return pl.Series(value) if isinstance(value, np.ndarray) else pl.repeat(value, n)


def timings(ledger: Path, names: list[str]) -> list[dict[str, Any]]:
    """Seconds of every audit and check as `rollout-ledger audit` asks it: opening the ledger, the answer as a frame."""
    rows = []
    for query in (query for kind in ANSWERS for query in queries(kind)):
        if names and query.name not in names:
            continue
        runs = [timed(query.name, ledger) for _ in range(REPEATS)]
        wall, cpu, height = min(runs)
        rows.append({"kind": query.kind, "name": query.name, "seconds": wall, "cpu_seconds": cpu, "rows": height})
        print(f"| {query.name} | {query.kind.removesuffix('s')} | {wall:.2f} | {cpu:.2f} | {height:,} |", flush=True)
    return rows


def timed(name: str, ledger: Path) -> tuple[float, float, int]:
    wall, cpu = time.perf_counter(), time.process_time()
    height = audit(name, ledger, timeout=600).height
    return time.perf_counter() - wall, time.process_time() - cpu, height


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="audits and checks; all by default")
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--ledger", type=Path, help="made if it is not there, else used again")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    ledger = given.ledger or Path(tempfile.gettempdir()) / f"audit-benchmark-{given.samples}"
    if not (ledger / "ledger.duckdb").exists():
        make_ledger(ledger, given.samples)
    size = sql("SELECT sum(samples)::BIGINT AS samples, count(*) AS batches FROM batches", ledger).to_dicts()[0]
    machine = {"cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "python": platform.python_version()}
    print(f"{size['samples']:,} samples, {size['batches']:,} batches; {machine}\n")
    print("| name | kind | seconds | CPU seconds | rows |\n|---|---|---:|---:|---:|")
    rows = timings(ledger, given.names)
    if given.json:
        given.json.write_text(json.dumps({"ledger": size, "machine": machine, "timings": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
