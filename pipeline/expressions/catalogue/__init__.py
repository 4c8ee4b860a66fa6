"""The metric catalogue: every published metric as a record. The next metric is one more record in one of these."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

from pipeline.errors import UsageError
from pipeline.expressions.catalogue import accounting, groups, inference, lengths, outcomes, rewards, signal
from pipeline.expressions.catalogue.record import SCOPES, UNITS, Metric, Support

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FAMILIES", "METRICS", "SCOPES", "UNITS", "Metric", "Support", "record_of", "selected"]

METRICS: tuple[Metric, ...] = (
    *accounting.METRICS,
    *rewards.METRICS,
    *groups.METRICS,
    *lengths.METRICS,
    *outcomes.METRICS,
    *inference.METRICS,
    *signal.METRICS,
)
"""Every published metric."""

FAMILIES: tuple[str, ...] = tuple(Counter(metric.family for metric in METRICS))
"""Names under which `--metrics` selects several."""

_BY_NAME = {metric.name: metric for metric in METRICS if metric.label is None}
_LABELLED = [metric for metric in METRICS if metric.label is not None]


def record_of(name: str) -> Metric | None:
    """Return the record of a published metric's name, null where the catalogue has none."""
    return _BY_NAME.get(name) or next((one for one in _LABELLED if fnmatchcase(name, one.pattern)), None)


def selected(patterns: Sequence[str] | None) -> tuple[Metric, ...]:
    """Return the metrics that names, families or patterns select; all of them for null.

    Raises:
        UsageError: one of them selects nothing.
    """
    return METRICS if patterns is None else _selected(tuple(patterns))


@cache
def _selected(patterns: tuple[str, ...]) -> tuple[Metric, ...]:
    chosen: set[str] = set()
    for pattern in patterns:
        found = {metric.name for metric in METRICS if _fits(metric, pattern)}
        if not found:
            raise UsageError(_unknown(pattern))
        chosen |= found
    return tuple(metric for metric in METRICS if metric.name in chosen)


def _fits(metric: Metric, pattern: str) -> bool:
    is_member = metric.label is not None and fnmatchcase(pattern, metric.pattern)
    return is_member or pattern == metric.family or any(fnmatchcase(n, pattern) for n in (metric.name, metric.pattern))


def _unknown(pattern: str) -> str:
    near = get_close_matches(pattern, [*FAMILIES, *(metric.name for metric in METRICS)], n=1)
    hint = f"did you mean {near[0]}?" if near else f"families are {', '.join(FAMILIES)};"
    return f"metrics: no metric is named {pattern}; {hint} `rollout-ledger metrics` lists all of them"
