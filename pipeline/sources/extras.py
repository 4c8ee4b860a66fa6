"""What a dump may tell of a sample beside the contract: policy versions, caches, drafts, tools, repetition.

None of it can refuse a sample. What is absent, malformed or damaged is null.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.sources.arrays import ArrayValue
from pipeline.sources.inert import LongText, PickleError, Placeholder
from pipeline.sources.number_list import NumberList
from pipeline.sources.values import Item, number
from schemas.table import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from schemas.record import SampleRecord

RAW_FIELDS: Final = (
    "weight_versions",
    "legacy_weight_versions",
    "prefix_cache_info",
    "spec_info",
    "non_generation_time",
    "response",
    "prompt",
)
"""Fields of a sample that are read for nothing but the extras."""

PREFIX_CACHE: Final = {"cached_tokens": ("cached_tokens",), "prompt_tokens": ("total_prompt_tokens",)}
SPECULATION: Final = {
    "spec_accepted": ("spec_num_correct_drafts", "spec_accept_token_num"),
    "spec_proposed": ("spec_num_proposed_drafts", "spec_draft_token_num"),
    "spec_verifications": ("spec_verify_ct",),
    "spec_tokens": ("completion_tokens", "completion_token_num"),
}
"""Canonical column -> names of its count in a dump, the newest first."""

REPETITIVE_CHARACTERS: Final = 10_000
"""Only a longer response can be repetitive, and only this much of its end is looked at."""
_REPETITIVE_RATIO: Final = 10
_MOST_BYTES: Final = 4 * REPETITIVE_CHARACTERS
_LEVEL: Final = 9
_FIRST_PART: Final = 0.4
_SLACK: Final = 500
_MAX_VERSIONS: Final = 2**16
"""Versions of one sample that are looked at: a pickle can name one list again and again."""
_MAX_VERSION_TEXT: Final = 200
_INT64: Final = range(-(2**63), 2**63)


class Versions(NamedTuple):
    """Policy versions that generated a sample: how many distinct ones, and the ends of those that are numbers."""

    seen: int | None = None
    oldest: int | None = None
    newest: int | None = None


class _UnclearError(ValueError):
    """A value that is not understood."""


def columns(records: Sequence[SampleRecord]) -> dict[str, list[Any]]:
    """Return the canonical columns that are extras."""
    versions = [versions_of(record.weight_versions, record.legacy_weight_versions) for record in records]
    return {
        "versions_seen": [found.seen for found in versions],
        "version_oldest": [found.oldest for found in versions],
        "version_newest": [found.newest for found in versions],
        **_counts_of([record.prefix_cache_info for record in records], PREFIX_CACHE),
        **_counts_of([record.spec_info for record in records], SPECULATION),
        "non_generation_time": [seconds(record.non_generation_time) for record in records],
        "tool_calls": [tool_calls(record.metadata, record.prompt) for record in records],
        "is_repetitive": [is_repetitive(record.response) for record in records],
    }


def _counts_of(values: list[Any], names: Mapping[str, tuple[str, ...]]) -> dict[str, list[int | None]]:
    found = [counts(value, names) for value in values]
    return {column: [row[column] for row in found] for column in names}


# --- policy versions --------------------------------------------------------------------------------------------------


def versions_of(value: object, legacy: object = None) -> Versions:
    """Return what is known of a sample's versions, by `weight_versions` or, where that has none, by its older field."""
    names = version_names(value, legacy)
    numbers = [int(name) for name in names if name.isascii() and name.isdigit() and int(name) < MAX_TOKENS]
    return Versions(len(names) or None, min(numbers, default=None), max(numbers, default=None))


def version_names(value: object, legacy: object = None) -> list[str]:
    """Return the distinct versions in the order of their first use; none where they are not understood."""
    try:
        return list(_names(value) or _names(legacy))
    except (_UnclearError, PickleError):
        return []


def _names(value: object) -> dict[str, None]:
    """Return the versions of a list of calls; a call is one version, a list of spans, or an object with `spans`."""
    if value is None:
        return {}
    calls = _entries(value)
    budget = _MAX_VERSIONS
    found: dict[str, None] = {}
    for call in calls:
        if type(call) is str:
            spans: Iterable[object] = (call,)
        else:
            spans = _spans(call)
            budget -= len(spans)
        if budget < 0:
            raise _UnclearError
        found |= dict.fromkeys(_name(version) for span in spans if (version := _version(span)) is not None)
    return found


def _spans(call: object) -> Sequence[object] | NumberList | ArrayValue:
    if isinstance(call, (list, tuple, NumberList, ArrayValue)):
        return _entries(call)
    spans = fields_of(call).get("spans")
    return (call,) if spans is None else _entries(spans)


def _version(span: object) -> object:
    return fields_of(span).get("version") if isinstance(span, (dict, Placeholder)) else span


def _entries(value: object) -> Sequence[object] | NumberList | ArrayValue:
    """Return a list as it is, however it is held; raise `_UnclearError` for anything else, and for too long a list."""
    if isinstance(value, ArrayValue):
        size = value.size
    elif isinstance(value, (list, tuple, NumberList)):
        size = len(value)
    else:
        raise _UnclearError
    if not 0 <= size <= _MAX_VERSIONS:
        raise _UnclearError
    return value


def _name(version: object) -> str:
    if isinstance(version, float) and version.is_integer():
        version = int(version)
    if isinstance(version, int) and not isinstance(version, bool) and version in _INT64:
        return str(version)
    if isinstance(version, str) and len(version) <= _MAX_VERSION_TEXT:
        return version
    raise _UnclearError


# --- numbers ----------------------------------------------------------------------------------------------------------


def counts(value: object, names: Mapping[str, tuple[str, ...]]) -> dict[str, int | None]:
    """Return the counts of a dictionary under their canonical names."""
    fields = fields_of(value)
    return {
        column: count(next((fields[name] for name in known if fields.get(name) is not None), None))
        for column, known in names.items()
    }


def count(value: object) -> int | None:
    """Return a whole number in [0, 2**40); null for anything else, a bool included."""
    found = _number(value)
    return int(found) if found is not None and 0 <= found < MAX_TOKENS and found.is_integer() else None


def seconds(value: object) -> float | None:
    """Return a finite number of 0 or more; null for anything else, a bool included."""
    found = _number(value)
    return found if found is not None and found >= 0 else None


def _number(value: object) -> float | None:
    if value is None or isinstance(value, (bool, str)):
        return None
    if not isinstance(value, (int, float)):
        value = _only_element(value)
    return None if isinstance(value, bool) else number(value)[0]


def _only_element(value: object) -> object:
    if not isinstance(value, Item) or value.size != 1:
        return None
    try:
        return value.item()
    except PickleError:
        return None


# --- conversations ----------------------------------------------------------------------------------------------------


def tool_calls(metadata: object, prompt: object) -> int | None:
    """Return the messages of role `tool` in `metadata.messages`, else in the prompt; null for no conversation."""
    found = tool_messages(fields_of(metadata).get("messages"))
    if found is not None or not isinstance(prompt, (list, tuple)):
        return found
    # An empty prompt, or one of token ids, is no conversation.
    return tool_messages(prompt) if any(isinstance(message, (dict, Placeholder)) for message in prompt) else None


def tool_messages(messages: object) -> int | None:
    """Return the messages of role `tool` in a list; null for what is no list."""
    if isinstance(messages, NumberList):
        return 0
    return sum(map(_is_of_tool, messages)) if isinstance(messages, (list, tuple)) else None


def _is_of_tool(message: object) -> bool:
    role = fields_of(message).get("role")
    return isinstance(role, str) and role == "tool"


def fields_of(value: object) -> dict[Any, Any]:
    """Return the entries of a dictionary, or the attributes of an object that was not built; none of anything else."""
    fields = value.state if isinstance(value, Placeholder) else value
    return fields if isinstance(fields, dict) else {}


# --- repetition -------------------------------------------------------------------------------------------------------


def is_repetitive(response: object) -> bool | None:
    """Return whether the last 10,000 characters of a longer text compress more than tenfold; null for no text."""
    if isinstance(response, LongText):
        return _is_long_text_repetitive(response)
    if not isinstance(response, str):
        return None
    return len(response) > REPETITIVE_CHARACTERS and compresses_tenfold(response[-REPETITIVE_CHARACTERS:])


def _is_long_text_repetitive(response: LongText) -> bool | None:
    if response.utf8_size <= REPETITIVE_CHARACTERS:
        return False
    try:
        tail = response.tail(_MOST_BYTES)
    except PickleError:
        return None
    is_long = response.utf8_size > _MOST_BYTES or len(tail) > REPETITIVE_CHARACTERS
    return is_long and compresses_tenfold(tail[-REPETITIVE_CHARACTERS:])


def compresses_tenfold(text: str) -> bool:
    """Return whether the UTF-8 bytes of at most 10,000 characters compress more than tenfold.

    Formula: bytes / bytes of `zlib.compress(bytes, 9)` > 10.
    """
    raw = text.encode("utf-8", "surrogatepass")
    # The first part is at most 16,000 bytes, so that its matches and literals are one block of deflate, and in the
    # whole they are the same but for the last match. There they take no fewer bits, for the code of the part is made
    # for it alone; only the description of that code comes on top, of at most 286 bytes.
    first = raw[: int(len(raw) * _FIRST_PART)]
    if len(zlib.compress(first, _LEVEL)) >= len(raw) // _REPETITIVE_RATIO + _SLACK:
        return False
    return len(raw) / len(zlib.compress(raw, _LEVEL)) > _REPETITIVE_RATIO
