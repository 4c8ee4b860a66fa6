"""A difference as one JSON document, and as JUnit's XML with a test case for every metric."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from pipeline.snapshots import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.snapshots.facts import Diff

_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_json(diff: Diff) -> str:
    """Return everything that was found, with the largest cases of every metric."""
    return json.dumps(plain_summary(diff), indent=1, ensure_ascii=False, allow_nan=False)


def plain_summary(diff: Diff) -> dict[str, Any]:
    """Return a difference as JSON can hold it; metrics and tables without a difference only as counts."""
    summary = {
        "verdict": diff.verdict,
        "headline": words.headline(diff),
        "old": diff.old,
        "new": diff.new,
        "counts": {
            "rows": diff.kept_rows,
            "values": diff.compared,
            "differing": diff.differing,
            "missing": diff.missing_rows,
            "new": diff.new_rows,
            "repeated": diff.repeated_rows,
            "within_tolerance": sum(moved.within for moved in diff.moved),
        },
        "metrics": [dataclasses.asdict(moved) for moved in words.moved_first(diff)],
        "rows": [dataclasses.asdict(rows) for rows in words.one_sided(diff)],
        "columns": [dataclasses.asdict(change) for change in diff.columns],
        "settings": [dataclasses.asdict(change) for change in diff.settings],
        "versions": [dataclasses.asdict(change) for change in diff.versions],
        "hints": list(diff.hints),
        "notes": list(diff.notes),
        "allow_new": diff.allow_new,
    }
    plain: dict[str, Any] = _plain(summary)
    return plain


def as_junit(diff: Diff) -> str:
    """Return JUnit's XML: a test case a metric and, for rows that one side lacks, one a table."""
    cases = list(_cases(diff))
    failures = sum("<failure" in case for case in cases)
    name = _attribute(f"{diff.old} against {diff.new}")
    head = f'<testsuite name={name} tests="{len(cases)}" failures="{failures}">'
    notes = "\n".join([words.headline(diff), *(f"hint: {text}" for text in diff.hints), *diff.notes])
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, f"<system-out>{_text(notes)}</system-out>"]
    return "\n".join([*lines, "</testsuite>"])


def _cases(diff: Diff) -> Iterator[str]:
    for moved in diff.moved:
        told = None
        if moved.differing:
            old, new = words.pair(moved.metric, moved.worst[0])
            place = words.key(moved.worst[0].key)
            told = f"{moved.differing:,} of {moved.compared:,} differ; largest: {old} -> {new} at {place}"
        yield _case(moved.table, moved.metric, told)
    for rows in diff.rows:
        bad = [(rows.missing, "missing"), (0 if diff.allow_new else rows.new, "new"), (rows.repeated, "repeated")]
        told = ", ".join(f"{number:,} rows {what}" for number, what in bad if number) or None
        yield _case(rows.table, f"{rows.metric or 'all'} (rows)", told)
    for change in diff.columns:
        told = f"was {change.old}, is {change.new or 'gone'}" if change.fails else None
        yield _case(change.table, f"{change.column} (column)", told)
    for setting in diff.settings if diff.settings_fail else ():
        yield _case("settings", f"{setting.run}.{setting.setting}", f"was {setting.old}, is {setting.new}")


def _case(table: str, name: str, failure: str | None) -> str:
    head = f"<testcase classname={_attribute(table)} name={_attribute(name)}"
    return f"{head}/>" if failure is None else f"{head}><failure message={_attribute(failure)}/></testcase>"


def _attribute(text: str) -> str:
    return quoteattr(_NO_XML.sub("?", text))


def _text(text: str) -> str:
    return escape(_NO_XML.sub("?", text))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
