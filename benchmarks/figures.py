"""Puts the figures of a `make bench` into docs/performance.md, between its markers.

    python benchmarks/figures.py BENCH.json [--flat LONG.json SHORT.json]

`--flat` is what `python -m benchmarks.suite.accounting --samples 100000000 --contestants ours --json …` wrote, and the
same with a tenth of the samples, one after the other: their times and peaks are held against each other.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.suite import report  # noqa: E402 -- a script's path is its own folder

PAGE = ROOT / "docs" / "performance.md"


def figures(result: dict[str, Any]) -> str:
    """Return the table of a run, and what it was measured on."""
    rows = [report.Row(**{**row, "spread": tuple(row.get("spread", ()))}) for row in result["rows"]]
    machine = result["machine"]
    versions = ", ".join(f"{name} {machine[name]}" for name in ("python", "polars", "duckdb", "pandas", "torch"))
    loads = [load for part in result["load"].values() for load in part]
    place = f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']}"
    noise = f"load average {min(loads):g} to {max(loads):g}: the machine is shared"
    return f"{report.table(rows)}\n\n{place}; {versions}; {noise}; {result['seconds']:.0f} s in all."


def flat(longer: dict[str, Any], shorter: dict[str, Any]) -> str:
    """Return how time and peak of a longer run compare."""
    sides = (shorter, longer)
    (few, some), (many, more) = ((side["samples"], side["ours"]) for side in sides)
    seconds = [median(run["seconds"] for run in runs) for runs in (some, more)]
    peaks = [max(run["peak_bytes"] for run in runs) / report.MEBIBYTE for runs in (some, more)]
    return (
        f"{many / 1e6:.0f} million samples instead of {few / 1e6:.0f} million take {seconds[1]:.0f} s instead of "
        f"{seconds[0]:.0f} s ({seconds[1] / seconds[0]:.1f} times as long) and {peaks[1]:,.0f} MiB at the peak instead "
        f"of {peaks[0]:,.0f} MiB, one run after the other."
    )


def put(page: str, marker: str, text: str) -> str:
    """Return the page with the text between a pair of markers."""
    pattern = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    return pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", type=Path)
    parser.add_argument("--flat", type=Path, nargs=2)
    options = parser.parse_args()
    result = json.loads(options.bench.read_text(encoding="utf-8"))
    page = put(PAGE.read_text(encoding="utf-8"), "figures", figures(result))
    if options.flat:
        longer, shorter = (json.loads(path.read_text(encoding="utf-8")) for path in options.flat)
        page = put(page, "flat", flat(longer, shorter))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
