"""What the headers of two contents tell: settings of a run that changed, and metrics that are defined anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pipeline.snapshots.facts import SettingChange, VersionChange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.snapshots.content import Content


def settings(old: Content, new: Content, *, growing: bool = False) -> Iterator[SettingChange]:
    """Yield the settings of runs that both sides have, where the values in use are not the same.

    Args:
        old: the content as it was.
        new: the content as it is.
        growing: values that came with new batches are no change, as long as the old ones are still in use.
    """
    before, after = old.settings_of_runs(), new.settings_of_runs()
    for run in sorted(set(before) & set(after)):
        for name in sorted({name for values in (*before[run], *after[run]) for name in values}):
            was, now = (_values(side[run], name) for side in (before, after))
            if was != now and not (growing and set(was) <= set(now)):
                yield SettingChange(run, name, *(tuple(json.loads(text) for text in side) for side in (was, now)))


def versions(old: Content, new: Content) -> Iterator[VersionChange]:
    """Yield the metrics that the sides have in different versions; what is not named has its first."""
    before, after = old.metric_versions, new.metric_versions
    for name in sorted(set(before) | set(after)):
        was, now = (tuple(side.get(name, [1])) for side in (before, after))
        if was != now:
            yield VersionChange(name, was, now)


def _values(settings: list[dict[str, Any]], name: str) -> list[str]:
    return sorted({json.dumps(values.get(name)) for values in settings})
