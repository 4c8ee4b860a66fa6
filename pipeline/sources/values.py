"""A reward as dumped becomes a value, a state and, for a dictionary, its entries."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, runtime_checkable

from schemas.canonical import OBJECT_STATE

MAX_TEXT = 200
"""Texts of dictionary rewards (error categories) are kept up to this many characters."""
_MAX_PARTS = 256


@runtime_checkable
class Item(Protocol):
    """An array or tensor that was never turned into one: it tells its size, and its only element if that is 1."""

    @property
    def size(self) -> int:
        """Return the number of elements."""
        ...

    def item(self) -> Any:
        """Return the only element."""
        ...


class Reward(NamedTuple):
    """A reward: its value where it is a finite number, its state, its entries where it is a dictionary."""

    value: float | None
    state: str
    parts: list[dict[str, Any]] | None = None


MISSING = Reward(None, "missing")


def classify(value: object) -> Reward:
    """Return value and state of a reward as dumped: any object, also one of a class that is not known."""
    if isinstance(value, dict):
        return Reward(None, OBJECT_STATE, _parts(value))
    return Reward(*number(value))


def number(value: object) -> tuple[float | None, str]:
    """Return (float64, `ok`), or (None, state) for what is not a finite number."""
    if value is None:
        return None, "missing"
    if isinstance(value, (bool, int, float)):
        return _finite(value)
    if isinstance(value, Item) and value.size == 1:
        element = value.item()
        return _finite(element) if isinstance(element, (bool, int, float)) else (None, "other")
    return None, "other"


def _finite(value: float) -> tuple[float | None, str]:
    try:
        as_float = float(value)
    except OverflowError:
        return None, "inf"
    if math.isnan(as_float):
        return None, "nan"
    if math.isinf(as_float):
        return None, "inf"
    # Adding 0.0 makes -0.0 the same bits as 0.0: which of two equal zeros a minimum returns must not show.
    return as_float + 0.0, "ok"


def readable(text: str) -> str:
    """Return text as every table can hold it: half a surrogate pair, which JSON and pickles let pass, as its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _parts(entries: dict[Any, Any]) -> list[dict[str, Any]]:
    """Return the entries of a dictionary reward, sorted by key. An entry of null is as good as none."""
    parts: list[dict[str, Any]] = []
    for key, entry in entries.items():
        if not isinstance(key, str) or entry is None or len(parts) >= _MAX_PARTS:
            continue
        value, state = number(entry)
        text = readable(entry[:MAX_TEXT]) if isinstance(entry, str) else None
        parts.append({"key": readable(key), "value": value, "state": state, "text": text})
    return sorted(parts, key=lambda part: part["key"])
