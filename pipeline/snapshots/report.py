"""A difference as text: a table for people, JSON and JUnit for machines, Markdown for a pull request.

Whatever the size of the change, a table or a Markdown report fits one screen: counts, then the largest of each metric.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pipeline.snapshots import report_of_machines, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.snapshots.facts import Diff, Moved

Format = Literal["table", "json", "markdown", "junit"]
_METRICS, _TABLES, _HINTS, _NOTES = 10, 4, 5, 3
_PIPE = "\\|"
_WIDTH = 76
"""Longest cell of a table; longer keys lose their middle."""
_HEADER = ("table", "metric", "differ", "largest at", "old", "new", "difference", "ratio")
_NUMERIC = (False, False, True, False, True, True, True, True)


def render(diff: Diff, format: Format = "table") -> str:
    """Return a difference as text."""
    if format == "json":
        return report_of_machines.as_json(diff)
    if format == "junit":
        return report_of_machines.as_junit(diff)
    return "\n".join(_markdown(diff) if format == "markdown" else _table(diff))


def _table(diff: Diff) -> Iterator[str]:
    yield words.headline(diff)
    moved = words.moved_first(diff)
    if moved:
        yield from _aligned([_HEADER, *(_cells(one, _WIDTH) for one in moved[:_METRICS])])
    yield from _remaining(diff, moved)


def _markdown(diff: Diff) -> Iterator[str]:
    yield f"**{words.headline(diff)}**"
    moved = words.moved_first(diff)
    if moved:
        yield ""
        yield f"| {' | '.join(_HEADER)} |"
        yield f"| {' | '.join('---:' if right else '---' for right in _NUMERIC)} |"
        for one in moved[:_METRICS]:
            yield f"| {' | '.join(cell.replace('|', _PIPE) for cell in _cells(one, _WIDTH))} |"
    lines = list(_remaining(diff, moved))
    if lines:
        yield ""
        yield from (f"* {line}" for line in lines)


def _remaining(diff: Diff, moved: Sequence[Moved]) -> Iterator[str]:
    if len(moved) > _METRICS:
        rest = moved[_METRICS:]
        yield f"… and {len(rest)} more metrics with {sum(one.differing for one in rest):,} values"
    yield from (_one_line(line) for line in _rows(diff))
    for change in diff.columns:
        if change.fails:
            yield f"column {change.table}.{change.column}: was {change.old}, is {change.new or 'gone'}"
    yield from _limited("hint", diff.hints, _HINTS)
    yield from _limited("note", diff.notes, _NOTES)


def _rows(diff: Diff) -> Iterator[str]:
    found = words.one_sided(diff)
    for rows in found[:_TABLES]:
        place = rows.table if rows.metric is None else f"{rows.table} {rows.metric}"
        for what, number, keys in (("missing", rows.missing, rows.missing_keys), ("new", rows.new, rows.new_keys)):
            if number:
                first = f"{'' if number == 1 else 'first '}{words.key(keys[0])}"
                yield f"{what}: {place}, {number:,} of {rows.kept + number:,} rows: {first}"
        if rows.repeated:
            yield f"repeated: {place}, {rows.repeated:,} rows have the key of another one"
    if len(found) > _TABLES:
        missing, new = (sum(getattr(rows, side) for rows in found[_TABLES:]) for side in ("missing", "new"))
        yield f"… and {missing:,} missing, {new:,} new rows of {len(found) - _TABLES} more tables or metrics"


def _limited(word: str, texts: Sequence[str], most: int) -> Iterator[str]:
    yield from (f"{word}: {text}" for text in texts[:most])
    if len(texts) > most:
        yield f"… and {len(texts) - most} more {word}s, all with --format json"


def _cells(moved: Moved, width: int) -> tuple[str, ...]:
    case = moved.worst[0]
    old, new = (_shortened(text, width // 2) for text in words.pair(moved.metric, case))
    states = ", ".join(f"{count:,} {change}" for change, count in moved.states.items())
    return (
        moved.table,
        moved.metric,
        f"{moved.differing:,} of {moved.compared:,}" + (f" ({states})" if states else ""),
        _shortened(words.key(case.key), width),
        old,
        new,
        "" if case.difference is None else words.number(case.difference, signed=True),
        "" if case.ratio is None else words.number(case.ratio, digits=7),
    )


def _shortened(text: str, width: int) -> str:
    text = " ".join(text.splitlines())
    if len(text) <= width:
        return text
    half = (width - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _one_line(text: str) -> str:
    return _shortened(text, 3 * _WIDTH)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADER))]
    for row in rows:
        cells = zip(row, widths, _NUMERIC, strict=True)
        yield "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in cells).rstrip()
