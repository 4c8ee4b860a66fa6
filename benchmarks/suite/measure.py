"""Runs a contestant as a process of its own: seconds, and the peak memory of it and its children."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Turns = Mapping[str, Callable[[], "Run"]]

ROOT = Path(__file__).resolve().parents[2]
_INTERVAL = 0.02


class ContestantError(Exception):
    """A contestant failed."""


@dataclass(frozen=True)
class Run:
    """One run: seconds, peak resident memory in bytes (of the process and its children), what it told and wrote."""

    seconds: float
    peak: int
    told: dict[str, Any] = field(default_factory=dict)
    output: str = ""


@dataclass(frozen=True)
class Measured:
    """Several runs of one contestant."""

    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        """Return the median."""
        return statistics.median(run.seconds for run in self.runs)

    @property
    def spread(self) -> float:
        """Return (slowest - quickest) / median."""
        seconds = [run.seconds for run in self.runs]
        return (max(seconds) - min(seconds)) / self.seconds if self.seconds else 0.0

    @property
    def peak(self) -> int:
        """Return the largest peak, in bytes."""
        return max(run.peak for run in self.runs)

    @property
    def told(self) -> dict[str, Any]:
        """Return what the last run told."""
        return self.runs[-1].told


def in_turns(contestants: Turns, repeats: int) -> dict[str, Measured]:
    """Run every contestant once, then every one again, so that what else the machine does falls on all of them."""
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for turn in range(repeats):
        for name, action in contestants.items():
            note(f"turn {turn + 1} of {repeats}: {name}")
            runs[name].append(action())
    return {name: Measured(tuple(several)) for name, several in runs.items()}


def note(text: str) -> None:
    """Tell on stderr what is going on."""
    print(f"[bench] {text}", file=sys.stderr, flush=True)


def run_module(module: str, *arguments: object, one_core: bool = False) -> Run:
    """Run `python -m module`; see `run_command`."""
    return run_command(sys.executable, "-m", module, *arguments, one_core=one_core)


def run_command(*arguments: object, one_core: bool = False) -> Run:
    """Run a command from the repository's root.

    Where its last line of output is a JSON object with `seconds`, these count, else the whole process.

    Raises:
        ContestantError: it failed.
    """
    command = list(map(str, arguments))
    with _cores(one_core=one_core):
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    watch = _Watch(process.pid)
    watch.start()
    output, errors = process.communicate()
    seconds = time.perf_counter() - start
    watch.stop()
    if process.returncode:
        raise ContestantError(f"{' '.join(command)} ended with {process.returncode}:\n{errors[-2_000:]}")
    told = _told(output)
    return Run(told.get("seconds", seconds), watch.peak, told, output)


def environment() -> dict[str, str]:
    """Return the variables of a contestant: its bytecode is kept, as that of an installed package is."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def is_importable(module: str) -> bool:
    """Return whether a contestant's library is there, and whole."""
    try:
        run_command(sys.executable, "-c", f"import {module}")
    except ContestantError:
        return False
    return True


@contextmanager
def _cores(*, one_core: bool) -> Iterator[None]:
    """Let a process that is started within have one core only: it takes over what its starter may use."""
    allowed = os.sched_getaffinity(0)
    if one_core:
        os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _told(output: str) -> dict[str, Any]:
    lines = output.strip().splitlines()
    if lines and lines[-1].startswith("{"):
        told: dict[str, Any] = json.loads(lines[-1])
        return told
    return {}


class _Watch(Thread):
    """Samples the memory of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._over = pid, Event()
        self.peak = 0

    def run(self) -> None:
        while not self._over.wait(_INTERVAL):
            self.peak = max(self.peak, _memory(_tree(self._pid)))

    def stop(self) -> None:
        self._over.set()
        self.join()


def _tree(pid: int) -> list[int]:
    found, ahead = [], [pid]
    while ahead:
        one = ahead.pop()
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                ahead += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def _memory(processes: list[int]) -> int:
    """Return what some processes have resident: of each its own memory, of mapped files and libraries the most.

    They are taken to share these. The kernel's proportional share would be smaller the more of the same library runs
    elsewhere on the machine, which has nothing to do with what is measured.
    """
    own, mapped = 0, 0
    for pid in processes:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        kinds = {line.split(":")[0]: int(line.split()[1]) * 1_024 for line in lines if line.startswith("Rss")}
        own += kinds.get("RssAnon", 0)
        mapped = max(mapped, kinds.get("RssFile", 0) + kinds.get("RssShmem", 0))
    return own + mapped
