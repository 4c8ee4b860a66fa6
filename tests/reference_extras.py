"""What a dump tells of a sample beside rewards and tokens: versions, caches, drafts, tools, repetition.

Only well-formed values are read here. What becomes of malformed ones is for the tests of the sources to say.
"""

from __future__ import annotations

import zlib
from typing import Any

Row = dict[str, Any]

LARGEST = 2**40
TAIL = 10_000
TENFOLD = 10
COUNTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cached_tokens": ("prefix_cache_info", ("cached_tokens",)),
    "prompt_tokens": ("prefix_cache_info", ("total_prompt_tokens",)),
    "spec_accepted": ("spec_info", ("spec_num_correct_drafts", "spec_accept_token_num")),
    "spec_proposed": ("spec_info", ("spec_num_proposed_drafts", "spec_draft_token_num")),
    "spec_verifications": ("spec_info", ("spec_verify_ct",)),
    "spec_tokens": ("spec_info", ("completion_tokens", "completion_token_num")),
}
"""Column -> field of the sample, and the names of the count in it, today's first."""


def extras(sample: Row) -> Row:
    return {
        **versions(sample.get("weight_versions")),
        **{column: count(sample.get(field), names) for column, (field, names) in COUNTS.items()},
        "non_generation_time": None
        if sample.get("non_generation_time") is None
        else float(sample["non_generation_time"]),
        "tool_calls": tool_calls(sample),
        "is_repetitive": is_repetitive(sample.get("response")),
    }


def versions(calls: list[Any] | None) -> Row:
    """Each call of the engine names the one version that answered it, or lists spans of tokens with theirs."""
    named = set()
    for call in calls or []:
        for span in call if isinstance(call, list) else [call]:
            named.add(str(span["version"] if isinstance(span, dict) else span))
    numbers = [int(name) for name in named if name.isdigit() and int(name) < LARGEST]
    return {
        "versions_seen": len(named) or None,
        "version_oldest": min(numbers, default=None),
        "version_newest": max(numbers, default=None),
    }


def count(info: Row | None, names: tuple[str, ...]) -> int | None:
    return next((info[name] for name in names if info.get(name) is not None), None) if info else None


def seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


def tool_calls(sample: Row) -> int | None:
    messages = (sample.get("metadata") or {}).get("messages")
    if not isinstance(messages, list):
        messages = sample.get("prompt")
    if not isinstance(messages, list):
        return None
    return len([message for message in messages if message.get("role") == "tool"])


def is_repetitive(response: str | None) -> bool | None:
    if response is None:
        return None
    tail = response[-TAIL:].encode()
    return len(response) > TAIL and len(tail) / len(zlib.compress(tail, 9)) > TENFOLD
