"""What is measured against a target, not a contestant: ticks, start, jobs, audits, the metric catalogue."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import audits, catalogue, ticks
from benchmarks.suite import report
from benchmarks.suite.agreement import Ledger, differences
from benchmarks.suite.measure import Measured, Run, in_turns, note, run_command, run_module
from benchmarks.suite.runs import RUN, STEP_SAMPLES, steps_of, write_run
from pipeline.errors import LedgerError
from queries.files import queries

if TYPE_CHECKING:
    from collections.abc import Callable

KNOWN, AUDITED = 10_000, 10_000_000
TICK, HELP, AUDIT = 1.0, 0.3, 2.0


def measure_ticks(known: int, repeats: int) -> report.Part:
    """Measure ticks of a schedule over many batches that are known already."""
    note(f"ticks: making ledgers of 100 and {known:,} batches")
    with tempfile.TemporaryDirectory(prefix="bench-ticks-") as directory:
        directories = {number: ticks.Directory(Path(directory), number) for number in (100, known)}
        kinds = ticks.measured(directories, repeats)
        reads_no_dump = ticks.reads_no_dump(directories[known])
    rows = []
    for kind, by_known in kinds.items():
        few, many = (_measured(by_known[number]) for number in (100, known))
        told = kind == "command, nothing new"
        rows.append(
            report.Row(
                f"tick: {kind}",
                f"{known:,} batches known",
                "100 batches known",
                # What is asked of ten thousand is met by fewer all the more easily, which says nothing.
                target=f"< {TICK:g} s of {KNOWN:,}" if told else "",
                is_met=many.seconds < TICK if told and known >= KNOWN else None,
                our_time=many.seconds,
                peer_time=few.seconds,
                ratio=few.seconds / many.seconds,
                spread=(many.spread, few.spread),
            )
        )
    wrong = () if reads_no_dump else (f"ticks: with nothing new among {known:,} batches a dump was opened",)
    return report.Part(tuple(rows), wrong, {"known": known, "seconds": kinds})


def measure_start(repeats: int) -> report.Part:
    """Measure how long the command takes to say what it can do."""
    command = Path(sys.executable).with_name("rollout-ledger")
    call = [str(command)] if command.exists() else [sys.executable, "-m", "pipeline"]
    measured = in_turns(
        {"help": lambda: run_command(*call, "--help"), "bare": lambda: run_command(sys.executable, "-c", "pass")},
        2 * repeats + 1,
    )
    ours, bare = measured["help"], measured["bare"]
    row = report.Row(
        "start",
        "rollout-ledger --help",
        "a bare Python",
        target=f"< {HELP:g} s",
        is_met=ours.seconds < HELP,
        our_time=ours.seconds,
        peer_time=bare.seconds,
        our_peak=ours.peak,
        peer_peak=bare.peak,
        spread=(ours.spread, bare.spread),
    )
    return report.Part((row,), figures=report.figures_of(measured))


def measure_jobs(samples: int, repeats: int) -> report.Part:
    """Measure one job against two, where the command knows of jobs."""
    if "--jobs" not in run_module("pipeline", "recompute", "--help").output:
        return report.Part((report.Row("jobs", note="recompute has no --jobs"),))
    steps = steps_of(samples)
    with tempfile.TemporaryDirectory(prefix="bench-jobs-") as directory:
        root = Path(directory)
        write_run(root, steps)

        def run(jobs: int) -> Callable[[], Run]:
            def one() -> Run:
                ledger = root / f"ledger-{jobs}-{number[jobs]}"
                number[jobs] += 1
                options = ("--ledger", ledger, "--still", 0, "--metrics", "accounting", "--jobs", jobs)
                return run_module("pipeline", "recompute", root / RUN, *options)

            return one

        number = {1: 0, 2: 0}
        measured = in_turns({"--jobs 2": run(2), "--jobs 1": run(1)}, repeats)
        differing = differences(Ledger(root / "ledger-2-0"), Ledger(root / "ledger-1-0"), steps)
        wrong = tuple(f"jobs: {text}" for text in differing)
    row = report.versus(
        f"jobs, {steps * STEP_SAMPLES:,} samples",
        ("--jobs 2", measured["--jobs 2"]),
        ("--jobs 1", measured["--jobs 1"]),
    )
    return report.Part((row,), wrong, report.figures_of(measured))


def measure_audits(samples: int, repeats: int) -> report.Part:
    """Measure every audit, and once every check, on one ledger; the slowest counts, and a check must find nothing."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-audits-") as directory:
        ledger = Path(directory) / "ledger"
        note(f"audits: making a ledger of {samples:,} samples")
        audits.make_ledger(ledger, samples)
        figures: dict[str, Any] = {"samples": samples}
        rows = []
        for kind, times in (("audits", repeats), ("checks", 1)):
            measured = {}
            for name in (query.name for query in queries(kind)):
                note(f"{kind}: {name}")
                runs = [_asked(name, ledger) for _ in range(times)]
                measured[name] = _measured([seconds for seconds, _ in runs])
                found = runs[-1][1]
                if kind == "checks" and found is not None and found > 0:
                    wrong.append(f"checks: {name} finds {found:,} rows")
            figures[kind] = report.figures_of(measured)
            slowest = max(measured, key=lambda name: measured[name].seconds)
            rows.append(
                report.Row(
                    f"{kind}, {samples:,} samples",
                    f"{slowest}, the slowest of {len(measured)}",
                    target=f"< {AUDIT:g} s of {AUDITED:,}" if kind == "audits" else "",
                    is_met=measured[slowest].seconds < AUDIT if kind == "audits" and samples >= AUDITED else None,
                    our_time=measured[slowest].seconds,
                    spread=(measured[slowest].spread,),
                )
            )
    return report.Part(tuple(rows), tuple(wrong), figures)


def _asked(name: str, ledger: Path) -> tuple[float, int | None]:
    """Return seconds and rows of an audit or check; no rows where it was not answered in time."""
    start = time.perf_counter()
    try:
        seconds, _, height = audits.timed(name, ledger)
    except LedgerError as error:
        note(f"{name}: {error}")
        return time.perf_counter() - start, None
    return seconds, height


def measure_catalogue(steps: int, repeats: int) -> report.Part:
    """Measure what the metric catalogue costs beside the accounting alone."""
    samples, batches = catalogue.canonical(steps)
    note(f"catalogue: {samples.height:,} samples")
    catalogue.seconds(samples, batches, catalogue.EVERYTHING)
    alone, whole = [], []
    for _ in range(repeats):
        alone.append(catalogue.seconds(samples, batches, catalogue.ACCOUNTING))
        whole.append(catalogue.seconds(samples, batches, catalogue.EVERYTHING))
    accounting, everything = _measured(alone), _measured(whole)
    cost = (everything.seconds - accounting.seconds) / accounting.seconds
    row = report.Row(
        f"catalogue, {samples.height:,} samples",
        "every metric",
        "accounting alone",
        note="ratio: what the rest costs",
        target=f"< {catalogue.LIMIT:g} x",
        is_met=cost < catalogue.LIMIT,
        our_time=everything.seconds,
        peer_time=accounting.seconds,
        ratio=cost,
        spread=(everything.spread, accounting.spread),
    )
    return report.Part((row,), figures={"accounting": alone, "everything": whole})


def _measured(seconds: list[float]) -> Measured:
    return Measured(tuple(Run(one, 0) for one in seconds))
