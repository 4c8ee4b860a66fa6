"""What trainers log of a batch, worked out in plain Python from samples as they are dumped.

None of it knows of adapters: rows are grouped by `group_index`, and rollouts told apart by their ids alone. To apply a
formula within adapters as well, give `apart`, which adds to those keys.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import fmean, median
from typing import Any

Sample = dict[str, Any]
Logged = dict[str, float]
Apart = Callable[[Sample], Hashable]


def together(_: Sample) -> Hashable:
    """No adapter in any key, as trainers have it."""
    return None


def by_adapter(sample: Sample) -> Hashable:
    adapter: Hashable = sample["adapter"]
    return adapter


def spread(prefix: str, values: Iterable[float]) -> Logged:
    known = list(values)
    figures: dict[str, Callable[[list[float]], float]] = {"mean": fmean, "median": median, "max": max, "min": min}
    return {f"{prefix}/{name}": float(made(known)) for name, made in figures.items()} if known else {}


def per_row(samples: Sequence[Sample]) -> Logged:
    """Everything that no grouping is needed for."""
    n = len(samples)
    return {
        "rollout/num_training_samples": n,
        **spread("rollout/response_len", map(unmasked, samples)),
        "rollout/truncated_ratio": sum(sample["status"] == "truncated" for sample in samples) / n,
        "rollout/repetition_frac": sum(repeats(sample["response"]) for sample in samples) / n,
        **versions(samples),
        **caches(samples),
        **drafts(samples),
        **waiting(samples),
    }


def unmasked(sample: Sample) -> int:
    mask = sample["loss_mask"]
    return int(sample["response_length"] if mask is None else sum(mask))


def repeats(text: str) -> bool:
    tail = text[-10_000:].encode()
    return len(text) > 10_000 and len(tail) > 10 * len(zlib.compress(tail, 9))


def versions(samples: Sequence[Sample]) -> Logged:
    numbers = [[int(version) for version in sample["weight_versions"] if version.isdigit()] for sample in samples]
    mixed = sum(len(set(sample["weight_versions"])) > 1 for sample in samples) / len(samples)
    found = spread("rollout/weight_version", [min(some) for some in numbers if some])
    return {**found, "rollout/weight_version/mixed_version_ratio": mixed} if found else {}


def caches(samples: Sequence[Sample]) -> Logged:
    cached = sum(sample["prefix_cache_info"]["cached_tokens"] for sample in samples)
    prompt = sum(sample["prefix_cache_info"]["total_prompt_tokens"] for sample in samples)
    if prompt == 0:
        return {}
    return {
        "rollout/prefix_cache_hit_rate": cached / prompt,
        "rollout/avg_cached_tokens_per_sample": cached / len(samples),
    }


def drafts(samples: Sequence[Sample]) -> Logged:
    names = ("spec_accept_token_num", "spec_draft_token_num", "completion_token_num", "spec_verify_ct")
    accepted, proposed, tokens, passes = (sum(sample["spec_info"][name] for sample in samples) for name in names)
    rate = {"rollout/spec_accept_rate": accepted / proposed} if proposed else {}
    return rate | ({"rollout/spec_accept_length": tokens / passes} if passes else {})


def waiting(samples: Sequence[Sample]) -> Logged:
    seconds = [sample["non_generation_time"] for sample in samples]
    return spread("perf/non_generation_time", seconds) if max(seconds) > 0 else {}


def gathered(samples: Sequence[Sample], key: Callable[[int, Sample], Hashable]) -> list[list[Sample]]:
    found: dict[Hashable, list[Sample]] = defaultdict(list)
    for row, sample in enumerate(samples):
        found[key(row, sample)].append(sample)
    return list(found.values())


def rollouts(samples: Sequence[Sample], apart: Apart = together) -> list[list[Sample]]:
    def execution(row: int, sample: Sample) -> Hashable:
        known = [value for value in (sample["rollout_id"], sample["index"], row) if value is not None]
        return apart(sample), sample["group_index"], known[0]

    return gathered(samples, execution)


def prompts(samples: Sequence[Sample], apart: Apart = together) -> list[list[Sample]]:
    return gathered(samples, lambda _, sample: (apart(sample), sample["group_index"]))


def episode_raw_reward(samples: Sequence[Sample], apart: Apart = together) -> Logged:
    """Raw rewards are the metadata's if the first sample has one; there is none where it is absent, or no number."""
    has_raw = "raw_reward" in samples[0]["metadata"]

    def raw(sample: Sample) -> Any:
        return sample["metadata"].get("raw_reward") if has_raw else sample["reward"]

    raws = [[raw(sample) for sample in some if raw(sample) is not None] for some in rollouts(samples, apart)]
    return {"rollout/episode_raw_reward": fmean(map(fmean, filter(None, raws)))}


def episode_lengths(samples: Sequence[Sample], apart: Apart = together) -> Logged:
    """Logged where a batch has one adapter at most."""
    if len({repr(sample["adapter"]) for sample in samples}) > 1:
        return {}
    found = rollouts(samples, apart)
    trained = [sum(0 if sample["remove_sample"] else unmasked(sample) for sample in some) for some in found]
    whole = [sum(sample["response_length"] for sample in some) for some in found]
    return {
        **spread("rollout/episode_response_length", trained),
        "rollout/episode_total_response_length/mean": fmean(whole),
    }


def constant_groups(samples: Sequence[Sample], apart: Apart = together) -> Logged:
    """Counted by the value that all rows of a group have; nothing where a single reward is no number."""
    if not all(isinstance(sample["reward"], (int, float)) for sample in samples):
        return {}
    rewards = [{sample["reward"] for sample in some} for some in prompts(samples, apart)]
    values = [str(round(float(min(some)), 1)) for some in rewards if len(some) == 1]
    counts = {f"rollout/zero_std/count_{value}": float(values.count(value)) for value in values}
    return counts | {
        f"rollout/zero_std/all_{name}_percentage": values.count(value) / len(rewards)
        for name, value in (("zero", "0.0"), ("one", "1.0"))
    }


def pass_rates(samples: Sequence[Sample], n: int, apart: Apart = together) -> Logged:
    """Of the groups that have exactly n rows; a row is an attempt, and 1 is a pass."""
    passes = [sum(sample["reward"] == 1 for sample in some) for some in prompts(samples, apart) if len(some) == n]
    ks = [2**power for power in range(n.bit_length())]
    return {f"passrate/pass@{k}": fmean(at_least_one(n, c, k) for c in passes) for k in ks} if passes else {}


def at_least_one(n: int, c: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k)."""
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def evaluation(samples: Sequence[Sample]) -> Logged:
    """Of one data set; a score that is missing counts as 0."""
    rewards = [sample["reward"] for sample in samples]
    return {
        "eval/NAME": fmean(reward or 0 for reward in rewards),
        "eval/NAME-none_reward_ratio": rewards.count(None) / len(rewards),
    }
