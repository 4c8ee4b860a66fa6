"""Accounting: from Parquet files to published tables, against DuckDB, pandas and a loop.

python -m benchmarks.suite.accounting [--samples 10000000] [--contestants ours,duckdb,pandas,loop] [--repeats 3]

Every contestant is a process of its own, in turns; results are compared row by row.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suite import report
from benchmarks.suite.agreement import Files, Ledger, differences
from benchmarks.suite.measure import Measured, Run, in_turns, is_importable, note, run_module
from benchmarks.suite.runs import RUN, STEP_SAMPLES, steps_of, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUICK, FULL = 500_000, 10_000_000
LOOP_STEPS, LOOP_SHARE = 16, 8
"""The loop sees an eighth of the steps, and so many at most; its time is multiplied."""
KINDS = ("ours", "duckdb", "pandas", "loop")
TARGETS = {"DuckDB": 3.0, "pandas": 5.0, "loop": 25.0}
PEAK = report.GIBIBYTE // 2
_PEERS = "benchmarks.suite.contestants"


def contestants(root: Path, steps: int, kinds: Sequence[str]) -> dict[str, Callable[[], Run]]:
    """Return what runs each of them on ROOT/dumps, writing to ROOT/NAME."""
    dumps = root / "dumps" / RUN

    def out(name: str) -> Path:
        shutil.rmtree(root / name, ignore_errors=True)
        return root / name

    def ours() -> Run:
        options = ("--ledger", out("ours"), "--still", 0, "--metrics", "accounting")
        return run_module("pipeline", "recompute", dumps, *options)

    def loop() -> Run:
        seen = _seen_by_loop(steps)
        run = run_module(f"{_PEERS}.trainer_loop", seen, dumps, out("loop"))
        return replace(run, seconds=run.seconds * steps / seen)

    every: dict[str, dict[str, Callable[[], Run]]] = {
        "ours": {"ours": ours},
        "duckdb": {
            "DuckDB, whole": lambda: run_module(f"{_PEERS}.duckdb_sql", "whole", dumps, out("DuckDB, whole")),
            "DuckDB, chunks": lambda: run_module(f"{_PEERS}.duckdb_sql", "chunks", dumps, out("DuckDB, chunks")),
        },
        "pandas": {"pandas": lambda: run_module(f"{_PEERS}.pandas_tables", dumps, out("pandas"))},
        "loop": {"loop": loop},
    }
    return {name: action for kind in kinds for name, action in every[kind].items()}


def _seen_by_loop(steps: int) -> int:
    return min(-(-steps // LOOP_SHARE), LOOP_STEPS)


def measure(samples: int, repeats: int, kinds: Sequence[str] = KINDS) -> report.Part:
    """Run the contestants and compare their results."""
    steps = steps_of(samples)
    with tempfile.TemporaryDirectory(prefix="bench-accounting-") as directory:
        root = Path(directory)
        note(f"accounting: writing {steps * STEP_SAMPLES:,} samples in {steps} steps")
        write_run(root / "dumps", steps)
        has_pandas = "pandas" not in kinds or is_importable("pandas, pyarrow")
        kinds = [kind for kind in kinds if kind != "pandas" or has_pandas]
        measured = in_turns(contestants(root, steps, kinds), repeats)
        differing = []
        for name in measured:
            if name == "ours" or "ours" not in measured:
                continue
            note(f"comparing the results of {name}")
            seen = _seen_by_loop(steps) if name == "loop" else steps
            found = differences(Ledger(root / "ours"), Files(root / name), seen)
            differing += [f"accounting, {name}: {text}" for text in found]
    figures = {"samples": steps * STEP_SAMPLES, "steps": steps, **report.figures_of(measured)}
    absent = [] if has_pandas else [report.Row("accounting", peer="pandas", note="not installed")]
    return report.Part((*_rows(measured, steps), *absent), tuple(differing), figures)


def _rows(measured: dict[str, Measured], steps: int) -> list[report.Row]:
    ours = measured.get("ours")
    if ours is None:
        return [
            report.Row("accounting", peer=name, peer_time=one.seconds, peer_peak=one.peak, spread=(one.spread,))
            for name, one in measured.items()
        ]
    best = min(
        (name for name in measured if name.startswith("DuckDB")), key=lambda name: measured[name].seconds, default=""
    )
    rows = []
    for name, peer in measured.items():
        if name == "ours":
            continue
        target = TARGETS.get("DuckDB") if name == best else TARGETS.get(name)
        row = report.versus("accounting", ("recompute", ours), (name, peer), target)
        if name == "loop":
            seen = _seen_by_loop(steps)
            row = replace(row, note=f"timed on {seen} of {steps} steps, times {steps / seen:.1f}")
        rows.append(row)
    peak = report.Row(
        "accounting, memory",
        "recompute",
        target="<= 512 MiB",
        is_met=ours.peak <= PEAK,
        our_time=ours.seconds,
        our_peak=ours.peak,
    )
    return [*rows, peak]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=FULL)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contestants", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    part = measure(options.samples, options.repeats, options.contestants.split(","))
    print(report.table(part.rows))
    print(f"\nload {report.load()}, {report.machine()}")
    print("\n".join(f"DIFFERS: {text}" for text in part.differences) or "results agree")
    if options.json:
        options.json.write_text(json.dumps(part.figures, indent=1) + "\n", encoding="utf-8")
    return 1 if part.differences else 0


if __name__ == "__main__":
    sys.exit(main())
