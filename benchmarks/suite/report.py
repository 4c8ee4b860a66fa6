"""The one table of the benchmarks, and what it was measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.suite.measure import Measured

MEBIBYTE, GIBIBYTE = 2**20, 2**30
_HEADER = ("part", "ours", "time", "peer", "peer's time", "ratio", "target", "peak", "peer's peak", "spread")
_VERSIONS = ("polars", "duckdb", "pandas", "pyarrow", "torch")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        part: what is measured.
        ours: our side.
        peer: the other side.
        target: the target in words, if there is one.
        is_met: whether it is met.
        our_time: seconds, median.
        peer_time: seconds, median.
        ratio: the peer's time over ours, or what the target is about.
        our_peak: bytes.
        peer_peak: bytes.
        spread: (slowest - quickest) / median of both sides.
        note: what else there is to say; alone where nothing was measured.
    """

    part: str
    ours: str = ""
    peer: str = ""
    target: str = ""
    is_met: bool | None = None
    our_time: float | None = None
    peer_time: float | None = None
    ratio: float | None = None
    our_peak: int | None = None
    peer_peak: int | None = None
    spread: tuple[float, ...] = ()
    note: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        verdict = {None: "", True: ": met", False: ": MISSED"}[self.is_met]
        return (
            self.part,
            self.ours,
            _seconds(self.our_time),
            f"{self.peer} ({self.note})" if self.note and self.peer else self.peer or self.note,
            _seconds(self.peer_time),
            "" if self.ratio is None else f"{self.ratio:.2f} x",
            f"{self.target}{verdict}",
            _bytes(self.our_peak),
            _bytes(self.peer_peak),
            ", ".join(f"{share:.0%}" for share in self.spread),
        )


@dataclass(frozen=True)
class Part:
    """What a part of the benchmarks has found; `differences` are results that are not the same."""

    rows: tuple[Row, ...]
    differences: tuple[str, ...] = ()
    figures: dict[str, Any] | None = None


def versus(part: str, ours: tuple[str, Measured], peer: tuple[str, Measured], at_least: float | None = None) -> Row:
    """Return the line of two contestants, `at_least` the ratio of their times that is wanted."""
    ratio = peer[1].seconds / ours[1].seconds
    return Row(
        part,
        ours[0],
        peer[0],
        target="" if at_least is None else f">= {at_least:g} x",
        is_met=None if at_least is None else ratio >= at_least,
        our_time=ours[1].seconds,
        peer_time=peer[1].seconds,
        ratio=ratio,
        our_peak=ours[1].peak or None,
        peer_peak=peer[1].peak or None,
        spread=(ours[1].spread, peer[1].spread),
    )


def figures_of(measured: dict[str, Measured]) -> dict[str, Any]:
    """Return every run of some contestants, for the JSON."""
    return {
        name: [{"seconds": round(run.seconds, 4), "peak_bytes": run.peak} for run in several.runs]
        for name, several in measured.items()
    }


def table(rows: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    cells = [_HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(_HEADER))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def as_json(row: Row) -> dict[str, Any]:
    """Return a line for the JSON, without what it does not say."""
    return {name: value for name, value in asdict(row).items() if value not in (None, "", ())}


def machine() -> dict[str, Any]:
    """Return what the machine is and has."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBIBYTE, 1),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in _VERSIONS},
    }


def load() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f} s" if value < 1 else f"{value:.2f} s"


def _bytes(value: int | None) -> str:
    return "" if value is None else f"{value / MEBIBYTE:,.0f} MiB"
