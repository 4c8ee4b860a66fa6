"""JSON as Python's own `json` writes it: NaN and Infinity literals are taken, and so are integers of any length."""

from __future__ import annotations

import json
import math
from typing import Any

_MAX_DIGITS = 4_300
"""Longer integers are not converted, as that takes quadratic time; they are far beyond every type here."""


def parse(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        # Only then: a converter of one's own makes every other line several times slower.
        return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> float:
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf
