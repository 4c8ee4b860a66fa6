"""What a tick of a schedule costs: nothing new, one new batch, by how many batches are known already.

    python benchmarks/ticks.py [--known 100 10000] [--repeats 9] [--json FILE]

Ledgers of both sizes are made from dumps of eight samples, the worst case: nothing but the overhead of a batch.
Ticks of the two sizes take turns, so that what else the machine does falls on both; medians and their ratio are told.
`in_process` is `pipeline.recompute`, `command` a whole `rollout-ledger recompute`, the start of Python included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import RunPlan, Settings, recompute
from pipeline.recomputing import Options, taking
from pipeline.sources.reading import read
from pipeline.sources.record_writers import write_json_lines

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.suite.measure import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.sources.batch import BatchRead, SourceFile

SAMPLES = 8
AT_ONCE = Options(still_seconds=0)


class Directory:
    """A dump directory and its ledger."""

    def __init__(self, root: Path, known: int) -> None:
        self.dumps, self.ledger, self.known = root / f"dumps-{known}", root / f"ledger-{known}", 0
        self.dumps.mkdir()
        for _ in range(known):
            self.write_one()
        self.tick()
        # Batches that came one by one lie in small segments too, as they do after months of ticks.
        for _ in range(20):
            self.write_one()
            self.tick()

    def write_one(self) -> None:
        step, self.known = self.known, self.known + 1
        rows = range(SAMPLES)
        records = [
            {"reward": (step + i) % 3 / 2, "response_length": 3, "index": i, "group_index": i // 2} for i in rows
        ]
        write_json_lines(self.dumps / f"{step}.jsonl", records)

    def tick(self) -> None:
        recompute([RunPlan((str(self.dumps),), Settings(), "a")], self.ledger, AT_ONCE)

    def command(self) -> None:
        call = ["recompute", str(self.dumps), "--run", "a", "--ledger", str(self.ledger), "--still", "0"]
        subprocess.run([sys.executable, "-m", "pipeline", *call], env=environment(), check=True, capture_output=True)


def seconds(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measured(directories: dict[int, Directory], repeats: int) -> dict[str, dict[int, list[float]]]:
    """Seconds of every kind of tick, by how many batches are known."""
    kinds: dict[str, dict[int, list[float]]] = {}
    for _ in range(repeats):
        for known, directory in directories.items():
            for kind, is_new, action in (
                ("in_process, one new", True, directory.tick),
                ("in_process, nothing new", False, directory.tick),
                ("command, one new", True, directory.command),
                ("command, nothing new", False, directory.command),
            ):
                if is_new:
                    directory.write_one()
                kinds.setdefault(kind, {}).setdefault(known, []).append(seconds(action))
    return kinds


def reads_no_dump(directory: Directory) -> bool:
    """Whether a tick with nothing new opens no dump."""
    opened: list[Path] = []

    def reading(file: SourceFile) -> Iterator[BatchRead]:
        opened.append(file.path)
        return read(file)

    vars(taking)["read"] = reading
    try:
        directory.tick()
    finally:
        vars(taking)["read"] = read
    return not opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--known", type=int, nargs=2, default=[100, 10_000])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="ticks"))
    try:
        directories = {known: Directory(root, known) for known in options.known}
        kinds = measured(directories, options.repeats)
        few, many = options.known
        result: dict[str, Any] = {
            "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()[0]},
            "known": options.known,
            "repeats": options.repeats,
            "nothing_new_reads_no_dump": reads_no_dump(directories[many]),
            "ticks": {
                kind: {
                    "median_seconds": {known: round(statistics.median(by_known[known]), 4) for known in by_known},
                    "ratio": round(statistics.median(by_known[many]) / statistics.median(by_known[few]), 3),
                }
                for kind, by_known in kinds.items()
            },
        }
    finally:
        shutil.rmtree(root)
    text = json.dumps(result, indent=1)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
