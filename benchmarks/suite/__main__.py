"""All benchmarks: contestants side by side, in turns; one table; a failure where their results differ.

python -m benchmarks.suite [--quick] [--json FILE] [--parts accounting,reading,...]

A target that is missed is shown as missed and fails nothing. Figures of a machine that does other things meanwhile are
worth what the load average says.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Any

from benchmarks.suite import accounting, reading, report, standing
from benchmarks.suite.measure import ContestantError, note
from pipeline.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.suite.dumps import Shape


@dataclass(frozen=True)
class Sizes:
    """How much is measured: samples, batches, steps, and how often."""

    accounting: int
    dump: Shape
    known: int
    jobs: int
    audited: int
    catalogue_steps: int
    repeats: int

    @property
    def parts(self) -> dict[str, Callable[[], report.Part]]:
        """Return the parts, in the order in which they are measured."""
        return {
            "start": lambda: standing.measure_start(self.repeats),
            "reading": lambda: reading.measure(self.dump, self.repeats),
            "catalogue": lambda: standing.measure_catalogue(self.catalogue_steps, 2 * self.repeats + 1),
            "accounting": lambda: accounting.measure(self.accounting, self.repeats),
            "jobs": lambda: standing.measure_jobs(self.jobs, self.repeats),
            "ticks": lambda: standing.measure_ticks(self.known, self.repeats),
            "audits": lambda: standing.measure_audits(self.audited, self.repeats),
        }


QUICK = Sizes(accounting.QUICK, reading.QUICK, 150, accounting.QUICK // 2, 50_000, 8, 2)
FULL = Sizes(accounting.FULL, reading.FULL, standing.KNOWN, accounting.FULL // 4, standing.AUDITED, 32, 3)


def run(parts: dict[str, Callable[[], report.Part]]) -> tuple[dict[str, report.Part], dict[str, list[float]]]:
    """Measure the parts; also the load average before and after each."""
    found, loads = {}, {}
    for name, measure in parts.items():
        before, start = report.load(), time.perf_counter()
        try:
            found[name] = measure()
        except (ContestantError, LedgerError) as error:
            found[name] = report.Part((report.Row(name, note="FAILED"),), (f"{name}: {error}",))
        loads[name] = [before, report.load()]
        note(f"{name}: {time.perf_counter() - start:.0f} s")
    return found, loads


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the size, in under two minutes")
    parser.add_argument("--json", type=Path, help="file for every single figure")
    parser.add_argument("--parts", help=f"of {', '.join(QUICK.parts)}; all by default")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    every = sizes.parts
    chosen = options.parts.split(",") if options.parts else list(every)
    if unknown := set(chosen) - set(every):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    start = time.perf_counter()
    parts, loads = run({name: every[name] for name in chosen})
    seconds = time.perf_counter() - start
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    processors = sum(usage.ru_utime + usage.ru_stime for usage in used)
    rows = [row for part in parts.values() for row in part.rows]
    differing = [text for part in parts.values() for text in part.differences]
    machine = report.machine()
    print(report.table(rows))
    print(f"\n{', '.join(f'{name} {value}' for name, value in machine.items())}")
    loaded = ", ".join(f"{name} {before:g} to {after:g}" for name, (before, after) in loads.items())
    print(f"load average during {loaded}; {sizes.repeats} turns; spread is (max - min) / median")
    print(f"{seconds:.0f} s in all, {processors:.0f} s of processors")
    missed = [f"{row.part} ({row.peer or row.ours})" for row in rows if row.is_met is False]
    print(f"targets missed: {', '.join(missed) or 'none'}")
    print("\n".join(f"DIFFERS: {text}" for text in differing) or "the contestants' results agree")
    if options.json:
        result: dict[str, Any] = {
            "quick": options.quick,
            "machine": machine,
            "load": loads,
            "seconds": round(seconds, 1),
            "rows": [report.as_json(row) for row in rows],
            "differences": differing,
            "figures": {name: part.figures for name, part in parts.items()},
        }
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        note(f"figures are in {options.json}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
