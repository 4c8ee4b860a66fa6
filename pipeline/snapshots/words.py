"""Keys, figures and the verdict in words."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from pipeline.expressions.catalogue import accounting
from pipeline.snapshots.content import SETTINGS
from schemas.tables import MetricRow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.snapshots.facts import Case, Diff, Key, Moved, Rows


def headline(diff: Diff) -> str:
    """Return the verdict and the size of the change."""
    place = f"{diff.old} against {diff.new}"
    extent = f"{_many(diff.kept_rows, 'row')}, {_many(diff.compared, 'value')}"
    if diff.verdict == "pass":
        more = f"; {_many(diff.new_rows, 'new row')} allowed" if diff.new_rows else ""
        return f"PASS  {place}: {extent}, none differs{more}"
    return f"FAIL  {place}: {', '.join(_sizes(diff))}"


def _sizes(diff: Diff) -> Iterator[str]:
    if diff.differing:
        metrics = sum(moved.differing > 0 for moved in diff.moved)
        yield f"{diff.differing:,} of {_many(diff.compared, 'value')} differ in {_many(metrics, 'metric')}"
    for number, what in (
        (diff.missing_rows, "missing"),
        (diff.new_rows, "new (allowed)" if diff.allow_new else "new"),
        (diff.repeated_rows, "with the key of another"),
    ):
        if number:
            yield f"{_many(number, 'row')} {what}"
    if any(change.fails for change in diff.columns):
        yield f"{_many(sum(change.fails for change in diff.columns), 'column')} gone or of another type"
    if diff.settings and diff.settings_fail:
        yield f"{_many(len(diff.settings), 'setting')} changed"


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def moved_first(diff: Diff) -> list[Moved]:
    """Return the figures that moved: rewards, weights and advantages before the rest of the catalogue.

    Within either, those with most differences come first.
    """
    return sorted((moved for moved in diff.moved if moved.differing), key=_rank)


def _rank(moved: Moved) -> tuple[bool, int]:
    follows = moved.table == MetricRow.relation and moved.metric.removesuffix(".count") not in accounting.NAMES
    return follows, -moved.differing


def one_sided(diff: Diff) -> list[Rows]:
    """Return the rows that one side does not have, or has twice."""
    return [rows for rows in diff.rows if rows.missing or rows.new or rows.repeated]


def key(values: Key, *, leave_out: tuple[str, ...] = ("metric",)) -> str:
    """Return a key as short text: nulls left out, adapter and rollout each in one word."""
    parts = []
    for name, value in values.items():
        if name in leave_out or value is None or name in ("adapter_slot", "id"):
            continue
        if name == "adapter_name":
            parts.append(f"adapter={value}#{values.get('adapter_slot')}")
        elif name == "kind":
            parts.append(f"{value}={values['id']}")
        else:
            parts.append(f"{name}={value}")
    return " ".join(parts)


def pair(metric: str, case: Case) -> tuple[str, str]:
    """Return old and new as text, with as many digits as it takes to tell them apart."""
    if metric == SETTINGS:
        return _changed_settings(str(case.old), str(case.new))
    short = number(case.old), number(case.new)
    return short if short[0] != short[1] else (_exact(case.old), _exact(case.new))


def number(value: Any, *, signed: bool = False, digits: int = 6) -> str:
    """Return a figure as short text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value).replace("nan", "NaN")
        return f"{value:{'+' if signed else ''}.{digits}g}"
    return f"{value:+d}" if signed and isinstance(value, int) else str(value)


def _exact(value: Any) -> str:
    return repr(value) if isinstance(value, float) else number(value)


def _changed_settings(old: str, new: str) -> tuple[str, str]:
    before, after = json.loads(old), json.loads(new)
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return tuple(", ".join(f"{n}={json.dumps(side.get(n))}" for n in names) for side in (before, after))  # type: ignore[return-value]
