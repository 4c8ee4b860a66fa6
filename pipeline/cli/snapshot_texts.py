"""A snapshot's own account of itself as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.snapshots.baselines import Shown

_LAST = 10


def as_text(shown: Shown) -> str:
    """Return a snapshot's header, tables and accepted differences as lines."""
    return "\n".join(_lines(shown))


def as_json(shown: Shown) -> str:
    """Return the same as one JSON document."""
    document = {
        "name": shown.name,
        **shown.header.model_dump(by_alias=True, mode="json"),
        "tables": [table.model_dump(exclude_none=True, mode="json") for table in shown.tables],
        "accepted": shown.accepted,
    }
    return json.dumps(document, indent=1, ensure_ascii=False)


def _lines(shown: Shown) -> Iterator[str]:
    header = shown.header
    yield f"snapshot {shown.name}: fingerprint {header.fingerprint}"
    yield ", ".join(f"{number:,} {what}" for what, number in header.counts.items())
    chosen = header.selection.model_dump(exclude_defaults=True)
    yield "selected by: " + (", ".join(f"{name} {value}" for name, value in chosen.items()) or "everything")
    for version in header.versions:
        metrics = ", ".join(f"{name} {number}" for name, number in sorted(version.metrics.items()))
        yield f"versions: schema {version.schema_}; {metrics}"
    for use in header.settings.values():
        values = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(use.values.items()))
        runs = ", ".join(f"{run} ({number:,} batches)" for run, number in use.runs.items())
        yield f"settings of {runs}: {values}"
    for table in shown.tables:
        where = "in the text" if table.parts is None else f"in {len(table.parts)} Parquet files"
        yield f"table {table.table}: {table.rows:,} rows {where}, fingerprint {table.fingerprint[:12]}"
    for entry in shown.accepted[-_LAST:]:
        told = entry.get("differences", {}).get("headline", "")
        yield f"accepted {entry.get('at')} by {entry.get('by')}: {entry.get('reason')} ({told})"
