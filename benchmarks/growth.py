"""How the cost of a recompute grows: with samples, with the steps they are cut into, with adapters, with fan-out.

    python benchmarks/growth.py [--quick] [--repeats 3] [--json FILE] [--svg docs/images/growth.svg]
    python benchmarks/growth.py --from FILE [--svg FILE]

One thing grows at a time, all else stays as in `benchmarks.suite.runs`. Every point is a `rollout-ledger recompute` of
its own, from Parquet files to a published ledger, in turns over the whole grid; medians are drawn. `--from` draws the
figures of an earlier run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.suite import report  # noqa: E402 -- a script's path is its own folder
from benchmarks.suite.measure import in_turns, run_module  # noqa: E402
from benchmarks.suite.runs import RUN, STEP_SAMPLES, write_run  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.suite.measure import Run

SAMPLES, QUICK_SAMPLES = 2**20, 2**17
SVG = ROOT / "docs" / "images" / "growth.svg"


class Panel(NamedTuple):
    """What grows, its values, and what it means for the run that is written."""

    title: str
    values: list[int]
    run: Callable[[int], dict[str, int]]


def panels(samples: int) -> list[Panel]:
    """Return the grid: each panel varies one thing around `samples` samples."""
    steps = samples // STEP_SAMPLES
    return [
        Panel(
            "samples",
            [samples // 2, samples, samples * 2, samples * 4],
            lambda value: {"steps": value // STEP_SAMPLES},
        ),
        Panel(
            f"steps that {samples:,} samples are cut into",
            [steps // 4, steps, steps * 4, steps * 16],
            lambda value: {"steps": value, "step_samples": samples // value},
        ),
        Panel("adapters", [1, 4, 16, 64], lambda value: {"steps": steps, "adapters": value}),
        Panel("fan-out, up to", [1, 2, 4, 8, 16], lambda value: {"steps": steps, "fan_out": value}),
    ]


def measure(samples: int, repeats: int) -> dict[str, Any]:
    """Measure the whole grid."""
    grid = {(panel.title, value): panel.run(value) for panel in panels(samples) for value in panel.values}
    before = report.load()
    with tempfile.TemporaryDirectory(prefix="bench-growth-") as directory:
        root = Path(directory)
        written: dict[str, Path] = {}
        runs: dict[str, Callable[[], Run]] = {}
        for shape in grid.values():
            name = json.dumps(shape)
            if name not in written:
                written[name] = root / str(len(written))
                write_run(written[name], **shape)
                runs[name] = _recompute(written[name])
        measured = in_turns(runs, repeats)
    points = [
        {
            "panel": panel,
            "value": value,
            **shape,
            "seconds": round(measured[json.dumps(shape)].seconds, 3),
            "spread": round(measured[json.dumps(shape)].spread, 3),
            "peak_bytes": measured[json.dumps(shape)].peak,
        }
        for (panel, value), shape in grid.items()
    ]
    return {"machine": report.machine(), "load": [before, report.load()], "repeats": repeats, "points": points}


def _recompute(folder: Path) -> Callable[[], Run]:
    def one() -> Run:
        ledger = folder / "ledger"
        shutil.rmtree(ledger, ignore_errors=True)
        options = ("--ledger", ledger, "--still", 0, "--metrics", "accounting")
        return run_module("pipeline", "recompute", folder / RUN, *options)

    return one


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = ["| what grows | to | seconds | spread | peak |", "|---|---:|---:|---:|---:|"]
    for point in result["points"]:
        peak = point["peak_bytes"] / report.MEBIBYTE
        cells = (point["panel"], f"{point['value']:,}", f"{point['seconds']:.2f}", f"{point['spread']:.0%}")
        lines.append(f"| {' | '.join(cells)} | {peak:,.0f} MiB |")
    return "\n".join(lines)


def main() -> None:
    from benchmarks.growth_svg import draw

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an eighth of the size")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path, default=SVG)
    parser.add_argument("--from", type=Path, dest="figures", help="figures to draw, instead of measuring")
    options = parser.parse_args()
    if options.figures:
        result = json.loads(options.figures.read_text(encoding="utf-8"))
    else:
        result = measure(QUICK_SAMPLES if options.quick else SAMPLES, options.repeats)
    print(f"{table(result)}\n\nload {result['load']}, {result['machine']}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    options.svg.parent.mkdir(parents=True, exist_ok=True)
    options.svg.write_text(draw(result), encoding="utf-8")


if __name__ == "__main__":
    main()
