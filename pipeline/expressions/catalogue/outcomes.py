"""Outcomes: how samples and rollouts ended, what of them is trained on, and how far rollouts fan out."""

from __future__ import annotations

from pipeline.expressions.catalogue.record import Metric, Support
from pipeline.expressions.catalogue.statistics import MAX, MEAN, TOTAL

FAMILY = "outcomes"
_STATUS = Support("has_status", "no sample has a status")


def _share(name: str, measure: str, meaning: str, tracker: str | None = None) -> Metric:
    return Metric(
        name,
        FAMILY,
        "sample",
        MEAN,
        measure,
        meaning=f"share of samples {meaning}",
        count_of="samples that have a status",
        direction="lower",
        support=_STATUS,
        tracker=tracker,
        source="miles and slime, rollout metrics" if tracker else "here",
    )


METRICS: tuple[Metric, ...] = (
    _share("truncated_ratio", "is_truncated", "that were truncated, by status", "rollout/truncated_ratio"),
    _share("aborted_ratio", "is_aborted", "that were aborted"),
    _share("failed_ratio", "is_failed", "that failed"),
    _share("unknown_status_ratio", "is_of_unknown_status", "of a status that no trainer is known to write"),
    Metric(
        "without_aborted/truncated_ratio",
        FAMILY,
        "sample",
        MEAN,
        "is_truncated",
        where="is_not_aborted",
        meaning="truncated_ratio of the samples that were not aborted",
        count_of="samples that have a status, aborted ones left out",
        direction="lower",
        support=_STATUS,
    ),
    Metric(
        "without_aborted/response_length/mean",
        FAMILY,
        "sample",
        MEAN,
        "response_length",
        where="is_not_aborted",
        meaning="mean response length of the samples that were not aborted",
        count_of="samples of known length, aborted ones left out",
        support=_STATUS,
    ),
    *(
        Metric(
            f"rollout_truncated_ratio/{name}",
            FAMILY,
            "rollout",
            MEAN,
            measure,
            meaning=f"share of rollouts {words} was truncated",
            count_of="rollouts",
            direction="lower",
            compare="rollout/truncated_ratio",
            differs="by rollout: a rollout cut into many samples counts once",
            support=_STATUS,
        )
        for name, measure, words in (
            ("any", "any_truncated", "of which a sample"),
            ("mainstream", "mainstream_truncated", "whose mainstream sample"),
        )
    ),
    Metric(
        "removed_ratio",
        FAMILY,
        "sample",
        MEAN,
        "is_removed",
        meaning="share of samples that are removed from the loss",
        count_of="samples",
        direction="lower",
    ),
    Metric(
        "num_trained_samples",
        FAMILY,
        "sample",
        TOTAL,
        "is_trained",
        meaning="samples with trainable tokens",
        count_of="samples",
        compare="rollout/num_training_samples",
        differs="the trainer counts every row, also those that train nothing",
    ),
    Metric(
        "untrained_rollout_ratio",
        FAMILY,
        "rollout",
        MEAN,
        "trains_nothing",
        meaning="share of rollouts without trainable tokens: they vote and train nothing",
        count_of="rollouts",
        direction="lower",
    ),
    Metric(
        "removed_vote_effect/max",
        FAMILY,
        "rollout",
        MAX,
        "vote_change",
        meaning="largest change of an advantage if rollouts whose mainstream sample is removed had no vote",
        count_of="rollouts that have an advantage either way",
        direction="lower",
        support=Support("vote_change", "no advantages are normalised here: other settings, or an evaluation batch"),
    ),
    Metric(
        "repetition_frac",
        FAMILY,
        "sample",
        MEAN,
        "is_repetitive",
        meaning="share of samples whose response is over 10,000 characters, the last of which compress over tenfold",
        count_of="samples with a response text",
        direction="lower",
        tracker="rollout/repetition_frac",
        source="miles and slime, has_repetition",
        support=Support("is_repetitive", "no sample has its response text"),
    ),
    Metric(
        "samples_per_rollout/mean",
        FAMILY,
        "rollout",
        MEAN,
        "samples",
        meaning="mean number of samples that a rollout was cut into",
        count_of="rollouts",
    ),
    Metric(
        "samples_per_rollout/max",
        FAMILY,
        "rollout",
        MAX,
        "samples",
        meaning="largest number of samples that a rollout was cut into",
        count_of="rollouts",
    ),
    Metric(
        "fan_out_ratio",
        FAMILY,
        "rollout",
        MEAN,
        "is_fan_out",
        meaning="share of rollouts with more than one sample",
        count_of="rollouts",
    ),
)
"""The records of this family."""
