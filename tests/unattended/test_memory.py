"""Memory does not grow with the run: no plan over all of it, and no Python object for each of its samples."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 8_192
PROGRAM = """
import sys
from pathlib import Path
from pipeline import RunPlan, Settings, recompute
from pipeline.recomputing import Options

dumps, ledger = sys.argv[1:]
plan = RunPlan((dumps,), Settings(metrics=["accounting"]), "run")
recompute([plan], Path(ledger), Options(still_seconds=0, chunk_rows=2**15))
# Not ru_maxrss: a child inherits its parent's.
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1])
"""
MOST = 64_000
"""KiB that twice the samples may take more. As Python objects of 100 bytes a field they would take 500 MB, as one
plan with its hundred columns of 8 bytes 650 MB."""


def write_steps(directory: Path, steps: int) -> Path:
    directory.mkdir()
    for step in range(steps):
        number = pl.int_range(ROWS)
        samples = pl.select(
            step=pl.repeat(step, ROWS),
            adapter_name=pl.format("adapter-{}", number % 8),
            adapter_slot=number % 8,
            rollout_id=number // 16,
            group_index=number // 128,
            reward=(number * 7919 % 101) / 100,
            response_length=number % 4_000 + 1,
        )
        samples.write_parquet(directory / f"{step}.parquet")
    return directory


def peak(dumps: Path, ledger: Path) -> int:
    """Return the peak memory of a recompute in a process of its own, in KiB."""
    # What is freed goes back at once: what the allocator keeps for later depends on what else the machine does.
    environment = {**os.environ, "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}
    command = [sys.executable, "-c", PROGRAM, str(dumps), str(ledger)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_the_peak_is_that_of_a_chunk_not_of_the_run(tmp_path: Path) -> None:
    # Of so few it is the peak of a chunk already, however its plans fall together.
    few = peak(write_steps(tmp_path / "few", 96), tmp_path / "ledger-of-few")

    many = peak(write_steps(tmp_path / "many", 192), tmp_path / "ledger-of-many")

    assert many - few < MOST
