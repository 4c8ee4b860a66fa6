"""Extra fields of samples for property tests: what a trainer may dump of how they were generated.

Well-formed values only. Which of the fields there are, and on which samples, is drawn for the batch.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

Fields = dict[str, Any]


def spans(*versions: str | int) -> list[Fields]:
    return [{"version": version, "abs_start": 4 * n, "abs_end": 4 * n + 4} for n, version in enumerate(versions)]


def messages(*roles: str) -> list[Fields]:
    return [{"role": role, "content": "1"} for role in roles]


class Long(str):
    """A text too long to be shown whole in a failing example."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Long({self[:4]!r}...{len(self)})"


VARIED = Long("".join(chr(33 + (n * n * 7 + n // 5 * 31) % 5003 % 90) for n in range(10_001)))
POOLS: dict[str, list[Any]] = {
    "weight_versions": [
        ["5"],
        ["4", "5", "5"],
        [],
        ["abc"],
        ["0", "abc"],
        [str(2**40), "1" * 30, "2"],
        [spans("3"), spans("3", "5", "4")],
        [spans(7)],
        [spans(), spans("abc", 2**40 - 1)],
        ["2000"],
    ],
    "prefix_cache_info": [
        {"cached_tokens": 3, "total_prompt_tokens": 10},
        {"cached_tokens": 0, "total_prompt_tokens": 7},
        {"cached_tokens": 0, "total_prompt_tokens": 0},
        {"total_prompt_tokens": 5},
        {"cached_tokens": 2},
        {},
    ],
    "spec_info": [
        {"spec_num_correct_drafts": 3, "spec_num_proposed_drafts": 7, "spec_verify_ct": 2, "completion_tokens": 9},
        {"spec_accept_token_num": 1, "spec_draft_token_num": 4, "spec_verify_ct": 1, "completion_token_num": 3},
        {"spec_num_correct_drafts": 5, "spec_accept_token_num": 1, "spec_draft_token_num": 6},
        {"spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 0, "spec_verify_ct": 0, "completion_tokens": 0},
        {"spec_verify_ct": 3},
        {},
    ],
    "non_generation_time": [0.0, 0.1, 0.2, 0.3, 12, 1e6, 0],
    # The limit of a response is met, passed, and passed by one that does not repeat itself.
    "response": ["", "yes", Long("ab" * 5_000), Long("ab" * 5_001), Long("é" * 10_001), VARIED],
    "prompt": ["question", messages("user", "tool", "tool"), messages("system", "user"), messages("tool")],
    "messages": [{"messages": messages("user", "tool")}, {"messages": []}, {"messages": "none"}],
}
PLANS = st.fixed_dictionaries({field: st.sampled_from(["none", "some", "all"]) for field in POOLS})
PICKS = st.tuples(*[st.integers(0, 59)] * len(POOLS))


@cache
def extra_fields(rows: int) -> st.SearchStrategy[list[Fields]]:
    """The extra fields of each sample of a batch; half of the batches have none."""
    without: st.SearchStrategy[list[Fields]] = st.builds(lambda: [{} for _ in range(rows)])
    drawn = st.builds(chosen, PLANS, st.lists(PICKS, min_size=rows, max_size=rows))
    return st.one_of(without, drawn)


def telling(samples: list[Fields]) -> st.SearchStrategy[list[Fields]]:
    """The samples with such fields added, messages to their metadata."""
    return extra_fields(len(samples)).map(lambda fields: list(map(with_fields, samples, fields)))


def with_fields(sample: Fields, more: Fields) -> Fields:
    metadata = more.get("messages", {}) | (sample["metadata"] or {})
    added = {field: value for field, value in more.items() if field != "messages"}
    return {**sample, **added, "metadata": metadata or sample["metadata"]}


def chosen(plan: dict[str, str], picked: list[tuple[int, ...]]) -> list[Fields]:
    return [
        {
            field: POOLS[field][pick // 2 % len(POOLS[field])]
            for (field, presence), pick in zip(plan.items(), picks, strict=True)
            if presence == "all" or (presence == "some" and pick % 2)
        }
        for picks in picked
    ]
