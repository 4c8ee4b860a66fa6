"""Batches that random ones seldom are: each has what a definition of the catalogue turns on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.extra_fields import spans
from tests.reference import Dump
from tests.worked_cases import A, B, rollouts_of, sample, train

TOLD: dict[str, Any] = {
    "weight_versions": [spans("3"), spans("3", "5")],
    "prefix_cache_info": {"cached_tokens": 3, "total_prompt_tokens": 10},
    "spec_info": {"spec_accept_token_num": 1, "spec_draft_token_num": 4, "spec_verify_ct": 1, "completion_tokens": 3},
    "non_generation_time": 0.5,
    "response": "ab" * 5_001,
    "prompt": [{"role": "user", "content": ""}, {"role": "tool", "content": ""}],
}
GRADED = {"acc": 1.0, "format": "ok"}
EVERYTHING = train(
    sample(GRADED, r=0, ad=A, tok=3, raw=0.5, **TOLD),
    sample(GRADED, r=0, ad=A, tok=2, raw=1.0, weight_versions=["6"]),
    sample({"acc": 0.0, "format": "late"}, r=1, ad=A, tok=2, raw=1.0, remove_sample=True),
    sample({"acc": 0.5, "format": 0.25}, r=2, ad=A, tok=4, raw=0.0, status="truncated"),
    sample({"acc": 0.25}, r=0, g=1, ad=B, tok=4, raw=0.0, status="aborted"),
    sample({"acc": 0.25}, r=1, g=1, ad=B, tok=1, raw=0.0, status="halted"),
)
"""A batch that has every metric there is, with `EVERYTHING_CHOSEN`."""
EVERYTHING_CHOSEN = {"reward_key": "acc", "log_reward_category": "format"}


@dataclass(frozen=True)
class Edge:
    id: str
    dumps: list[Dump]
    settings: dict[str, Any] = field(default_factory=dict)


def of_unknown_length(one: dict[str, Any], tokens: int) -> dict[str, Any]:
    return {name: value for name, value in one.items() if name != "response_length"} | {"trainable_tokens": tokens}


def removed(dump: Dump, *rows: int) -> Dump:
    for row in rows:
        dump.samples[row]["remove_sample"] = True
    return dump


def edge(name: str, *samples: dict[str, Any], **settings: Any) -> Edge:
    return Edge(name, [train(*samples)], settings)


EDGES = [
    Edge("everything", [EVERYTHING], EVERYTHING_CHOSEN),
    edge("the-mainstream-advantage-counts", sample(0.0, r=0), sample(1.0, r=0, tok=5), advantage_estimator="ppo"),
    edge("a-gradient-in-an-earlier-sibling-alone", sample(1.0, r=0), sample(0, r=0, tok=5), advantage_estimator="ppo"),
    edge("tokens-in-another-sibling", *rollouts_of(0.0, 1.0, tok=0), sample(5.0, r=0, tok=0), sample(5.0, r=1, tok=0)),
    edge("an-adapter-without-advantages", *rollouts_of(0.0, 1.0, ad=A), sample(None, r=0, ad=B)),
    edge("an-adapter-of-constant-groups", *rollouts_of(0.0, 1.0, ad=A), *rollouts_of(1.0, 1.0, ad=B)),
    edge("tokens-only-where-nothing-is-scored", *rollouts_of(0.0, 1.0, tok=0), sample(None, r=7, tok=9)),
    edge(
        "prompt-tokens-where-no-cache-is-told",
        sample(1.0, r=0, prefix_cache_info={"total_prompt_tokens": 5}),
        sample(1.0, r=1, prefix_cache_info={"cached_tokens": 0, "total_prompt_tokens": 0}),
    ),
    Edge("all-removed", [removed(train(*rollouts_of(0.0, 1.0, 0.5)), 0, 1, 2)]),
    Edge("all-but-one-removed", [removed(train(*rollouts_of(0.0, 1.0, 0.5)), 0, 1)]),
    Edge("an-unscored-one-removed", [removed(train(*rollouts_of(0.0, 1.0, None)), 2)]),
    Edge("removed-but-for-a-sibling", [removed(train(*rollouts_of(0.0, 1.0, 0.5), sample(0.2, r=1)), 1)]),
    Edge("removed-and-not-divided", [removed(train(*rollouts_of(0, 1, 5)), 2)], {"grpo_std_normalization": False}),
    Edge("removed-and-not-normalised", [removed(train(*rollouts_of(0, 1, 5)), 2)], {"rewards_normalization": False}),
    edge("huge-votes-of-some-removed", *rollouts_of(1e300, -1e300, 8.9e307), sample(1.0, r=9, remove_sample=True)),
    edge("nearly-equal-and-huge", *rollouts_of(1e16, 1e16 + 2, 1e16 + 6, raw=1.0), sample(0, r=9, remove_sample=True)),
    Edge("nearly-equal-and-huge-votes", [removed(train(*rollouts_of(1e16, 1e16 + 2, 1e16 + 6, 1e16, raw=1.0)), 3)]),
    edge("parts-that-cancel", *rollouts_of({"a": 1e300}, {"a": 1.0}, {"a": -1e300}, {"a": 1e16})),
    edge(
        "large-advantages-without-tokens",
        *rollouts_of(8.9e307, 1e-20, tok=0),
        sample(1e-20, r=9, tok=3),
        advantage_estimator="ppo",
    ),
    edge(
        "the-least-signal", sample(5e-324, r=0, ad=A, tok=3), sample(1.0, r=0, ad=B, tok=0), advantage_estimator="ppo"
    ),
    edge("tiny-beside-huge", *rollouts_of(1e300, -1e300, ad=A), *rollouts_of(1e-300, 3e-300, 0.1, ad=B)),
    edge("sizes-tie", *rollouts_of(1, 0, g=0), *rollouts_of(1, 0, 0, g=1), *rollouts_of(1, g=2), *rollouts_of(0, g=3)),
    edge("passes-of-eight", *rollouts_of(1, 0, 1, 0, 0, 0, 0, 0), pass_threshold=0.5),
    edge("passes-of-eleven", *rollouts_of(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0), n_samples_per_prompt=11),
    edge("more-wanted-than-any-group-has", *rollouts_of(1, 0), n_samples_per_prompt=2**31),
    edge("overfull", *rollouts_of(1, 0, 0), n_samples_per_prompt=2),
    edge("labels-round", *(sample(v, r=0, g=n) for n, v in enumerate([0.05, 0.15, 0.25, 0.35, -0.05, -0.04, 1e15]))),
    edge(
        "labels-of-far-numbers", *(sample(v, r=0, g=n) for n, v in enumerate([9.99e14, 9.6e15, 1e22, -8.9e307, 5e-324]))
    ),
    edge(
        "weights-in-order",
        *rollouts_of({"a": 0.1, "b": 0.7, "c": 0.2}, {"a": 1.0}, 1.0),
        reward_weights={"c": 1, "a": 1, "b": 1},
    ),
    edge(
        "some-lengths-not-told",
        of_unknown_length(sample(1.0, r=0, prompt_group=0), 5),
        sample(1.0, r=0, prompt_group=0, tok=3, status="aborted"),
        of_unknown_length(sample(1.0, r=1, prompt_group=0, ad=A), 2),
        of_unknown_length(sample(0.0, r=2, prompt_group=0, ad=A, remove_sample=True), 7),
    ),
    edge("no-length-told", of_unknown_length(sample(1.0, r=0, prompt_group=0), 5)),
    edge("weights-overflow", *rollouts_of({"a": 8.9e307, "b": 1.0}, {"a": -8.9e307}, 1.0), reward_weights={"a": 1e10}),
    edge(
        "a-weight-of-nothing", *rollouts_of({"a": 1.0, "b": "x"}, {"a": 1.0}, {}), reward_weights={"a": 0.5, "b": 0.0}
    ),
    edge("empty-dictionaries", *rollouts_of({}, {"a": None}, {"a": "x"}), log_reward_category="a"),
    Edge("no-samples", [train()]),
    Edge("evaluation", [Dump("A", "eval", 3, rollouts_of(0.0, 1.0, 0.5))]),
]
