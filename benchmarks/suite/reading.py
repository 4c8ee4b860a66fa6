"""Reading of dumps, on one core: ours against torch.load, json.loads and a bare Polars."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suite import report
from benchmarks.suite.dumps import STEP, Shape, records, write_jsonl, write_pt
from benchmarks.suite.measure import Measured, in_turns, is_importable, note, run_module
from benchmarks.suite.runs import STEPS_A_FILE, run_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUICK, FULL = Shape(64, 6_000), Shape(512, 6_000)
PT, EXPERTS, JSON_LINES, MEMORY = 4.0, 20.0, 3.0, 0.25
_READERS = "benchmarks.suite.contestants.readers"
_FEWER = 4
"""Samples with experts are fewer by this, so that a dump of them is a gigabyte and not five."""
_MEASURES = ("seconds", "grown")
_NAMES = {
    "torch": "torch.load",
    "unpickle": "pickle.load",
    "json": "json.loads, line by line",
    "polars": "polars.read_parquet",
}


def measure(shape: Shape, repeats: int) -> report.Part:
    """Measure every format."""
    rows: list[report.Row] = []
    differing: list[str] = []
    figures: dict[str, object] = {"samples": shape.samples, "tokens": shape.tokens}
    has_torch = is_importable("torch")
    with tempfile.TemporaryDirectory(prefix="bench-reading-") as directory:
        root = Path(directory)
        for part, peers, targets, paths in _files(root, shape):
            size = paths[0].stat().st_size
            note(f"{part}: {size / report.MEBIBYTE:.0f} MiB")
            present = [peer for peer in peers if peer != "torch" or has_torch]
            ways = {way: partial(run_module, _READERS, way, *paths, one_core=True) for way in ("ours", *present)}
            measured = in_turns(ways, repeats)
            labelled = f"{part}, {size / report.MEBIBYTE:.0f} MiB"
            rows += _rows(labelled, measured, targets, missing=[peer for peer in peers if peer not in present])
            differing += _differences(part, measured)
            figures[part] = {"bytes": size, **report.figures_of(measured)}
            paths[0].unlink()
    return report.Part(tuple(rows), tuple(differing), figures)


def _files(root: Path, shape: Shape) -> Iterator[tuple[str, Sequence[str], dict[str, float], list[Path]]]:
    """Yield part, peers, targets, and the file and one to warm up with, each written when it is its turn."""
    few = root / "few"
    few.mkdir()
    samples = records(shape)
    for kind, target in (("", PT), (" with experts", EXPERTS)):
        paths = [root / f"{STEP}.pt", few / f"{STEP}.pt"]
        taken = replace(shape, samples=shape.samples // _FEWER) if kind else shape
        for path, some in zip(paths, (samples[: taken.samples], samples[:1]), strict=True):
            write_pt(path, some, experts=bool(kind))
        yield f"read .pt{kind}, {taken.words}", ("torch", "unpickle"), {"torch": target}, paths
    paths = [root / f"{STEP}.jsonl", few / f"{STEP}.jsonl"]
    for path, some in zip(paths, (samples, samples[:1]), strict=True):
        write_jsonl(path, some)
    yield f"read .jsonl, {shape.words}", ("json",), {"json": JSON_LINES}, paths
    paths = [root / "steps.parquet", few / "steps.parquet"]
    for path, steps in zip(paths, (STEPS_A_FILE, 1), strict=True):
        run_frame(0, steps).write_parquet(path)
    yield "read .parquet, 262,144 samples", ("polars",), {}, paths


def _rows(
    part: str, measured: dict[str, Measured], targets: dict[str, float], missing: Sequence[str]
) -> Iterator[report.Row]:
    ours = measured["ours"]
    for way, peer in measured.items():
        if way == "ours":
            continue
        yield report.versus(part, ("read", ours), (_NAMES[way], peer), targets.get(way))
        if way == "torch":
            yield _memory(part, ours, peer)
    yield from (report.Row(part, peer=_NAMES[way], note=f"{way} not installed") for way in missing)


def _memory(part: str, ours: Measured, peer: Measured) -> report.Row:
    grown, others = (max(run.told["grown"] for run in side.runs) for side in (ours, peer))
    return report.Row(
        f"{part}, memory",
        "read",
        "torch.load",
        note="what reading adds",
        ratio=others / max(grown, 1),
        target="<= 1/4",
        is_met=grown <= MEMORY * others,
        our_peak=grown,
        peer_peak=others,
    )


def _differences(part: str, measured: dict[str, Measured]) -> Iterator[str]:
    ours = measured["ours"].told
    for way, peer in ((way, peer) for way, peer in measured.items() if way != "ours"):
        for name, value in peer.told.items():
            if name not in _MEASURES and not math.isclose(value, ours[name], rel_tol=1e-9):
                yield f"{part}, {_NAMES[way]}: {name} is {ours[name]} against {value}"
