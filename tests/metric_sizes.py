"""How large the numbers are that a metric is made of: rounding grows with them where they cancel."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Row = Mapping[str, Any]

ADAPTER = ("run", "split", "step", "adapter_name", "adapter_slot")
GROUP = ("run", "split", "step", "prompt_group")
MADE_OF = {
    "mainstream_reward/": "reward",
    "episode_raw_reward": "raw_reward",
    "without_aborted/episode_raw_reward": "raw_reward",
    "row_mean_raw_reward": "raw_reward",
    "unscoped_raw_reward": "raw_reward",
    "adapter_macro_raw_reward": "raw_reward",
    "reward/": "reward_parts",
    "mean_abs_advantage": "advantage",
    "token_mean_abs_advantage": "advantage",
    "removed_vote_effect/": "vote",
}
"""Beginnings of the names of metrics that add floats, and what they add. All others are made of whole numbers."""
LEAST_DIVISOR = 1e-6


class MetricSizes:
    """The largest magnitudes of what the samples of each batch and adapter hold."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self.largest: dict[tuple[Any, ...], float] = defaultdict(float)
        votes: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for sample in samples:
            for column, value in numbers(sample):
                self.add(sample, column, abs(value))
            if sample["is_mainstream"] and sample["reward"] is not None:
                votes[tuple(sample[name] for name in GROUP)].append(sample)
        for voters in votes.values():
            kept = [sample for sample in voters if not sample["remove_sample"]]
            self.add(voters[0], "vote", vote_size(voters) + vote_size(kept))

    def add(self, sample: Row, column: str, size: float) -> None:
        for names in (ADAPTER[:3], ADAPTER):
            key = (*(sample[name] for name in names), column)
            self.largest[key] = max(self.largest[key], size)

    def of(self, row: Row) -> float:
        """The largest number that went into the metric of this row; 0 for one of whole numbers."""
        names = ADAPTER if row["scope"] == "adapter" else ADAPTER[:3]
        column = next((made_of for start, made_of in MADE_OF.items() if row["metric"].startswith(start)), "")
        return self.largest.get((*(row[name] for name in names), column), 0.0)


def numbers(sample: Row) -> Iterable[tuple[str, float]]:
    for column in ("reward", "raw_reward", "advantage"):
        if sample[column] is not None:
            yield column, sample[column]
    for part in sample["reward_parts"] or []:
        if part["value"] is not None:
            yield "reward_parts", part["value"]


def vote_size(voters: list[Row]) -> float:
    """What the rounding of an advantage among these votes grows with, whether it is divided or not.

    Mean and deviation are off by roundings of the largest reward; an advantage carries them over its divisor, which is
    no less than spread / sqrt(2n), and its own magnitude is at most sqrt(n).
    """
    rewards = [sample["reward"] for sample in voters]
    if not rewards or min(rewards) == max(rewards):
        return 0.0
    spread = max(max(rewards) / 2 - min(rewards) / 2, LEAST_DIVISOR)
    largest = max(abs(float(reward)) for reward in rewards)
    return float(largest * (1 + len(rewards) / spread))
