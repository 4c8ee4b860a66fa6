"""Turns what the reader gives back into plain Python values, and makes the streams the tests need."""

from __future__ import annotations

from typing import Any

from pipeline.sources.pickled import ArrayValue, LatinBytes, LongBytes, LongText, NumberList, PickleError, Placeholder


def plain(value: Any) -> Any:
    match value:
        case NumberList():
            return value.to_list()
        case LongText():
            return value.text()
        case LongBytes() | LatinBytes():
            return value.data()
        case dict():
            return {key: plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return type(value)(plain(entry) for entry in value)
        case _:
            return value


def touch(value: object, most: int = 500) -> None:
    """Use whatever can be used of a value; only `PickleError` is let through, by being expected."""
    waiting = [value]
    for _ in range(most):
        if not waiting:
            return
        found = waiting.pop()
        try:
            waiting += _inside(found)
        except PickleError:
            continue


def _inside(value: object) -> list[Any]:  # noqa: PLR0911 -- one return a kind
    match value:
        case dict():
            return [*value.keys(), *value.values()]
        case list() | tuple() | set() | frozenset():
            return list(value)
        case LongText() | LongBytes() | LatinBytes():
            return [repr(value), plain(value)]
        case Placeholder():
            return [value.args, value.state, value.items, value.entries, repr(value)]
        case NumberList():
            return [len(value), value.total(), value.ones(), repr(value)]
        case ArrayValue():
            return [value.size, repr(value), value.to_list()[:3], value.total()]
        case _:
            return []
