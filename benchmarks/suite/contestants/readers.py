"""Readers: one file, read once, by one of several ways.

python -m benchmarks.suite.contestants.readers WAY FILE WARM-UP

Tells the seconds of reading alone, after a small file has warmed up, by how many bytes the process grew, and of the
samples what all readers must agree on. Reading ours means canonical samples, checked against the contract; the others
only load what the file says.
"""

from __future__ import annotations

import json
import sys
import time
import types
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

STAND_INS = ("AdapterRef", "RewardSpec")
MODULE = "miles.utils.types"
Samples = Iterable[Any]


def ours(path: Path) -> Any:
    import polars as pl

    from pipeline.sources.batch import SourceFile
    from pipeline.sources.names import read_name
    from pipeline.sources.reading import read

    says = read_name(path)
    batches = list(read(SourceFile(path, "bench", says.split, says.step)))
    refused = [finding.message for batch in batches for finding in batch.findings if batch.refused]
    if refused:
        raise ValueError(refused[0])
    return pl.concat([batch.samples for batch in batches])


def torch(path: Path) -> Any:
    import torch as library

    with_trainer_types()
    return library.load(path, weights_only=False)["samples"]


def unpickle(path: Path) -> Any:
    import pickle

    with_trainer_types()
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        with archive.open(name) as file:
            return pickle.load(file)["samples"]


def json_loads(path: Path) -> Any:
    with path.open("rb") as file:
        return [json.loads(line) for line in file]


def polars(path: Path) -> Any:
    import polars as pl

    return pl.read_parquet(path)


def with_trainer_types() -> None:
    """Let the classes of the trainer that a dump names be found."""
    module = types.ModuleType(MODULE)
    for name in STAND_INS:
        setattr(module, name, type(name, (), {"__module__": MODULE}))
    sys.modules |= {"miles": types.ModuleType("miles"), "miles.utils": types.ModuleType("miles.utils"), MODULE: module}


WAYS: dict[str, Callable[[Path], Any]] = {
    "ours": ours,
    "torch": torch,
    "unpickle": unpickle,
    "json": json_loads,
    "polars": polars,
}
PREPARED = {
    "ours": ("pipeline.sources.reading", "pipeline.sources.trainer_dump", "pipeline.sources.json_lines", "polars"),
    "torch": ("torch",),
    "unpickle": ("pickle", "numpy"),
    "json": (),
    "polars": ("polars",),
}
"""What is imported beforehand, as a job of many files has it imported."""


def facts(found: Any) -> dict[str, Any]:
    """Return what every reader must find: rows, and sums of ids, tokens and rewards."""
    if not isinstance(found, list):
        return _facts_of_frame(found)
    rewards = [sample["reward"] for sample in found]
    return {
        "rows": len(found),
        "rollout_ids": sum(sample["rollout_id"] for sample in found),
        "tokens": sum(sum(sample["loss_mask"]) for sample in found),
        "reward": sum(rewards),
        "slots": sum(_slot(sample["adapter"]) for sample in found),
        "removed": sum(sample["remove_sample"] for sample in found),
    }


def _facts_of_frame(frame: Any) -> dict[str, Any]:
    canonical = "mask_tokens" in frame.columns
    reward = frame["reward_value" if canonical else "reward"]
    return {
        "rows": frame.height,
        "rollout_ids": frame["rollout_id"].sum(),
        "tokens": frame["mask_tokens" if canonical else "trainable_tokens"].sum(),
        "reward": reward.filter(reward.is_finite()).sum(),
        "slots": frame["adapter_slot"].sum(),
        "removed": frame["remove_sample"].sum(),
    }


def _slot(adapter: Any) -> int:
    slot: int = adapter["slot"] if isinstance(adapter, dict) else adapter.slot
    return slot


def memory(key: str) -> int:
    """Return this process's VmRSS (now) or VmHWM (its peak; ru_maxrss may be that of whoever started it)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    way, path, small = sys.argv[1:]
    for module in PREPARED[way]:
        __import__(module)
    # The first file of a job pays for what the others find ready; in our case also for a process that reads them all.
    WAYS[way](Path(small))
    before = memory("VmRSS")
    start = time.perf_counter()
    found = WAYS[way](Path(path))
    seconds = time.perf_counter() - start
    grown = max(memory("VmHWM") - before, 0)
    print(json.dumps({"seconds": seconds, "grown": grown, **facts(found)}))


if __name__ == "__main__":
    main()
