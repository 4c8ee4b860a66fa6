"""Draws the figures of `growth.py`: four small line plots as SVG, written by hand, since that is all there is to it."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any

Point = dict[str, Any]
WIDTH, HEIGHT, COLUMNS = 340, 220, 2
LEFT, RIGHT, TOP, BOTTOM, FOOT = 50, 24, 40, 34, 28
LINE, GRID, TEXT = "#2a6fb0", "#d8dde3", "#3c444d"
_TICKS = 4


def draw(result: dict[str, Any]) -> str:
    """Return the plots; seconds from 0, each on a scale of its own."""
    plots = [(title, list(points)) for title, points in groupby(result["points"], lambda point: point["panel"])]
    rows = math.ceil(len(plots) / COLUMNS)
    width, height = WIDTH * COLUMNS, HEIGHT * rows + FOOT
    machine = result["machine"]
    load = " to ".join(map(str, result["load"]))
    versions = f"{machine['cores']} cores, Python {machine['python']}, Polars {machine['polars']}, load {load}"
    foot = f"rollout-ledger recompute, median of {result['repeats']}; {versions}"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" fill="{TEXT}">',
        "<title>How the cost of a recompute grows</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (title, points) in enumerate(plots):
        row, column = divmod(number, COLUMNS)
        parts.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">{_plot(title, points)}</g>')
    parts.append(f'<text x="{LEFT}" y="{height - 10}" font-size="10">{_escaped(foot)}</text></svg>')
    return "\n".join(parts) + "\n"


def _plot(title: str, points: list[Point]) -> str:
    step = _step(max(point["seconds"] for point in points))
    top = step * math.ceil(max(point["seconds"] for point in points) / step)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    # Samples cost what they number, so they are drawn to scale; the others are spread evenly.
    is_linear = title == "samples"
    largest = max(point["value"] for point in points)
    places = [point["value"] / largest if is_linear else i / max(len(points) - 1, 1) for i, point in enumerate(points)]
    xs = [LEFT + place * inner_width for place in places]
    ys = [TOP + inner_height * (1 - point["seconds"] / top) for point in points]
    parts = [f'<text x="{LEFT}" y="20" font-size="13" font-weight="600">{_escaped(title)}</text>']
    for tick in range(round(top / step) + 1):
        y = TOP + inner_height * (1 - tick * step / top)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick * step:g} s</text>')
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    parts.append(f'<polyline points="{line}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    for x, y, point in zip(xs, ys, points, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{LINE}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle" font-size="10">{point["seconds"]:.2f}</text>'
        )
        label = _short(point["value"])
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>')
    return "\n".join(parts)


def _step(largest: float) -> float:
    """Return a round distance of grid lines, of which there are about four."""
    rough = max(largest, 1e-3) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)


def _short(value: int) -> str:
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return str(value)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
