"""Rewards: of the mainstream samples, of rollouts under other rules, of the entries of a dictionary, and unscored."""

from __future__ import annotations

from pipeline.expressions.catalogue.record import Metric, Support
from pipeline.expressions.catalogue.statistics import EXACT_MEAN, MAX, MEAN, MEDIAN, MIN, P25, P75, SHARE, STD

FAMILY = "rewards"
_MAINSTREAM = {
    "mean": (EXACT_MEAN, "mean"),
    "std": (STD, "unbiased standard deviation (n - 1)"),
    "min": (MIN, "smallest"),
    "p25": (P25, "lower quartile"),
    "median": (MEDIAN, "median"),
    "p75": (P75, "upper quartile"),
    "max": (MAX, "largest"),
}
_STATES = {
    "missing": "absent",
    "nan": "NaN",
    "inf": "infinite",
    "other": "no number",
}

METRICS: tuple[Metric, ...] = (
    *(
        Metric(
            f"mainstream_reward/{name}",
            FAMILY,
            "rollout",
            statistic,
            "mainstream_reward",
            meaning=f"{words} of the rewards of the mainstream samples, one a rollout",
            count_of="scored rollouts",
            direction="neutral" if name == "std" else "higher",
        )
        for name, (statistic, words) in _MAINSTREAM.items()
    ),
    Metric(
        "episode_raw_reward_zero_filled",
        FAMILY,
        "episode",
        EXACT_MEAN,
        "reward_zero_filled",
        meaning="episode_raw_reward if a rollout without a score had scored 0",
        count_of="rollouts",
        direction="higher",
        compare="eval/NAME",
        differs="evaluation logs read a missing score as 0, sample by sample; here it is a figure beside the right one",
        source="miles, evaluation metrics",
    ),
    Metric(
        "episode_raw_reward_trained",
        FAMILY,
        "episode",
        EXACT_MEAN,
        "reward_where_trained",
        meaning="episode_raw_reward of the rollouts that have trainable tokens",
        count_of="scored rollouts with trainable tokens",
        direction="higher",
    ),
    Metric(
        "without_aborted/episode_raw_reward",
        FAMILY,
        "episode",
        EXACT_MEAN,
        "reward_where_not_aborted",
        meaning="episode_raw_reward of the rollouts none of whose samples was aborted",
        count_of="scored rollouts without an aborted sample",
        direction="higher",
        support=Support("has_status", "no sample has a status"),
    ),
    *(
        Metric(
            f"unscored/{state}",
            FAMILY,
            "sample",
            MEAN,
            f"reward_is_{state}",
            meaning=f"share of samples whose reward is {words}",
            count_of="samples",
            direction="lower",
            tracker="eval/NAME-none_reward_ratio" if state == "missing" else None,
            source="miles, evaluation metrics" if state == "missing" else "here",
        )
        for state, words in _STATES.items()
    ),
    Metric(
        "reward/{key}",
        FAMILY,
        "rollout",
        EXACT_MEAN,
        "part_value",
        label="part_key",
        meaning="mean of one entry of a dictionary reward, over mainstream samples",
        count_of="rollouts whose mainstream sample has the entry as an ok number",
        support=Support("has_parts", "no mainstream sample has a dictionary for a reward"),
    ),
    Metric(
        "error_cat/{category}",
        FAMILY,
        "sample",
        SHARE,
        "category",
        label="category",
        meaning="share of samples whose entry log_reward_category is this category",
        count_of="samples",
        support=Support("category", "no sample has an entry of the setting log_reward_category"),
        tracker="rollout/error_cat/{category}",
        source="miles and slime, reward categories",
    ),
)
"""The records of this family."""
