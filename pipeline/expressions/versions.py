"""What computed a number: the versions of schema, canonical samples and metrics, as one text."""

from __future__ import annotations

import json
from functools import cache

from pipeline.expressions.metrics import METRICS
from schemas.table import CANONICAL_VERSION, SCHEMA_VERSION


@cache
def current() -> str:
    """Return the versions of this code as one line of JSON with sorted keys."""
    metrics = {metric.name: metric.version for metric in METRICS}
    return _line({"canonical": CANONICAL_VERSION, "metrics": metrics, "schema": SCHEMA_VERSION})


@cache
def canonical() -> str:
    """Return the versions of this code that reading a dump depends on, as one line of JSON."""
    return _line({"canonical": CANONICAL_VERSION})


def _line(versions: dict[str, object]) -> str:
    return json.dumps(versions, sort_keys=True, separators=(",", ":"))
