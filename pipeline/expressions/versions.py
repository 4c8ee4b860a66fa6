"""What computed a number: the versions of schema, canonical samples and metrics, as one text."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import TYPE_CHECKING

from pipeline.expressions.catalogue import METRICS
from schemas.table import CANONICAL_VERSION, SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def current() -> str:
    """Return the versions of this code as one line of JSON with sorted keys.

    `metrics` names those whose definition has changed since their first; `catalogue` stands for all of them, so that
    what an older catalogue computed is computed again.
    """
    versions = {metric.name: metric.version for metric in METRICS}
    changed = {name: version for name, version in versions.items() if version > 1}
    catalogue = hashlib.blake2b(_line(versions).encode(), digest_size=8).hexdigest()
    return _line({"canonical": CANONICAL_VERSION, "catalogue": catalogue, "metrics": changed, "schema": SCHEMA_VERSION})


@cache
def canonical() -> str:
    """Return the versions of this code that reading a dump depends on, as one line of JSON."""
    return _line({"canonical": CANONICAL_VERSION})


def _line(versions: Mapping[str, object]) -> str:
    return json.dumps(versions, sort_keys=True, separators=(",", ":"))
