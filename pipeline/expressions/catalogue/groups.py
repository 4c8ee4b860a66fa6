"""Prompt groups: which teach nothing, how large they are, and how often a prompt is solved in k tries."""

from __future__ import annotations

from pipeline.expressions.catalogue.record import Metric, Support
from pipeline.expressions.catalogue.statistics import EXACT_MEAN, MAX, MEAN, MEDIAN, MIN, TOTAL

FAMILY = "groups"
_TRAINER = "miles, zero-std metrics"
_ROWS = (
    "the trainer compares all rows by group_index alone: groups of several adapters merge, and one reward that is no "
    "number leaves the whole batch out"
)
_ADVANTAGES = Support("has_advantages", "evaluation batches have no advantages")


def _constant(prefix: str, of: str, what: str, *, is_reward: bool) -> tuple[Metric, ...]:
    """Return the metrics of constant groups, for the reward or the raw reward."""
    numeric = f"prompt groups with {what}"
    shares = {
        "constant_share": (f"{of}_is_constant", "equal", None, ""),
        "all_zero_share": (f"{of}_is_all_zero", "exactly 0", "all_zero_percentage", "0.04 for 0"),
        "all_one_share": (f"{of}_is_all_one", "exactly 1", "all_one_percentage", "0.96 for 1"),
    }
    return (
        Metric(
            f"{prefix}/count_{{value}}",
            FAMILY,
            "prompt_group",
            TOTAL,
            f"{of}_is_numeric",
            label=f"{of}_constant",
            meaning=f"{numeric} all of whose values are equal, by that value rounded to one decimal",
            count_of=numeric,
            tracker="rollout/zero_std/count_{value}" if is_reward else None,
            differs=f"{_ROWS}; rewards dumped as integers are count_1 there, not count_1.0" if is_reward else None,
            source=_TRAINER if is_reward else "here",
            support=Support(f"{of}_is_numeric", f"no prompt group has {what}", positive=True),
        ),
        *(
            Metric(
                f"{prefix}/{name}",
                FAMILY,
                "prompt_group",
                MEAN,
                measure,
                where=f"{of}_is_numeric",
                meaning=f"share of the prompt groups with {what} all of whose values are {words}",
                count_of=numeric,
                direction="lower",
                compare=f"rollout/zero_std/{trainer}" if trainer and is_reward else None,
                differs=f"{_ROWS}; it also takes {taken}, by rounding" if trainer and is_reward else None,
                source=_TRAINER if trainer and is_reward else "here",
            )
            for name, (measure, words, trainer, taken) in shares.items()
        ),
        Metric(
            f"{prefix}/non_numeric_groups",
            FAMILY,
            "prompt_group",
            TOTAL,
            f"{of}_is_not_numeric",
            meaning=f"prompt groups without {what}",
            count_of="prompt groups",
            direction="lower",
        ),
    )


METRICS: tuple[Metric, ...] = (
    *_constant("zero_std", "reward", "a scored mainstream reward", is_reward=True),
    *_constant("raw_zero_std", "raw", "an ok raw reward", is_reward=False),
    Metric(
        "phantom_groups",
        FAMILY,
        "prompt_group",
        TOTAL,
        "is_phantom",
        meaning="prompt groups of constant raw reward and varied reward: what they teach is the shaping alone",
        count_of="prompt groups",
        direction="lower",
    ),
    Metric(
        "without_aborted/constant_share",
        FAMILY,
        "prompt_group",
        MEAN,
        "is_constant_where_not_aborted",
        meaning="zero_std/constant_share if rollouts with an aborted sample were dropped",
        count_of="prompt groups with a scored mainstream reward of a rollout without an aborted sample",
        direction="lower",
        support=Support("has_status", "no sample has a status"),
    ),
    Metric(
        "effective_group_share",
        FAMILY,
        "prompt_group",
        MEAN,
        "has_gradient",
        meaning="share of prompt groups with a rollout of advantage other than 0 and trainable tokens",
        count_of="prompt groups",
        direction="higher",
        support=_ADVANTAGES,
    ),
    *(
        Metric(
            f"group_size/{name}",
            FAMILY,
            "prompt_group",
            statistic,
            "rollouts",
            meaning=f"{words} number of rollouts of a prompt group",
            count_of="prompt groups",
        )
        for name, statistic, words in (
            ("mean", MEAN, "mean"),
            ("median", MEDIAN, "median"),
            ("min", MIN, "smallest"),
            ("max", MAX, "largest"),
        )
    ),
    Metric(
        "incomplete_groups",
        FAMILY,
        "prompt_group",
        TOTAL,
        "is_incomplete",
        meaning="prompt groups with fewer rollouts than n_samples_per_prompt (else than most groups of the adapter)",
        count_of="prompt groups",
        direction="lower",
    ),
    Metric(
        "overfull_groups",
        FAMILY,
        "prompt_group",
        TOTAL,
        "is_overfull",
        meaning="prompt groups with more rollouts than that",
        count_of="prompt groups",
        direction="lower",
    ),
    Metric(
        "pass@{k}",
        FAMILY,
        "prompt_group",
        EXACT_MEAN,
        "pass_at_k",
        label="k",
        meaning="chance that one of k rollouts of a prompt passes: 1 - C(n - c, k) / C(n, k), c of n with reward >= "
        "pass_threshold; mean over complete groups whose rollouts are all scored",
        count_of="prompt groups used: complete, all scored",
        direction="higher",
        tracker="passrate/pass@{k}",
        differs="the trainer counts rows for attempts and groups by group_index alone",
        source="miles, compute_pass_rate; Chen et al., 2021",
        support=Support("rollouts", "no prompt group"),
    ),
)
"""The records of this family."""
