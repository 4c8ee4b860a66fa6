"""Known faults that a difference looks like. A hint is given only where every row looked at agrees with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pipeline.snapshots import hints_of_advantages, hints_of_metrics, hints_of_rows
from pipeline.snapshots.header_changes import versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.snapshots.content import Content
    from pipeline.snapshots.facts import SettingChange
    from pipeline.snapshots.table_comparison import TableComparison

_MAX = 8


def found(
    tables: Sequence[TableComparison], old: Content, new: Content, settings: Sequence[SettingChange]
) -> list[str]:
    """Return hints, the surest first: what the headers show, then what rows and figures look like."""
    texts = [*_of_headers(old, new, settings)]
    if any(table.samples for table in tables) or any(table.missing.height for table in tables):
        texts += hints_of_metrics.found(tables)
        texts += hints_of_advantages.found(tables, old)
        texts += hints_of_rows.found(tables)
    return list(dict.fromkeys(texts))[:_MAX]


def _of_headers(old: Content, new: Content, settings: Sequence[SettingChange]) -> Iterator[str]:
    for change in settings:
        yield f"settings of run {change.run}: {change.setting} was {_told(change.old)}, is {_told(change.new)}"
    for version in versions(old, new):
        was, now = (", ".join(map(str, side)) for side in (version.old, version.new))
        yield f"{version.metric} is defined anew: version {was} -> {now}"


def _told(values: tuple[Any, ...]) -> str:
    return " and ".join("none" if value is None else json.dumps(value).strip('"') for value in values)
