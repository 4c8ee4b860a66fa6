"""Outcomes: how samples and rollouts ended, what of them is trained on, and how far rollouts fan out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.metric_reference.held import tokens_of
from tests.metric_reference.statistics import averaged, counted, described
from tests.reference import DIVIDING, Row, mainstream_of, normalised, ok

if TYPE_CHECKING:
    from tests.metric_reference.held import Held
    from tests.metric_reference.statistics import Found

KNOWN = {"pending", "completed", "truncated", "aborted", "failed"}


def outcomes(held: Held) -> Found:
    samples, rollouts = held.samples, held.rollouts
    siblings = [len(rollout) for rollout in rollouts]
    repetitive = held.known("is_repetitive")
    changes = vote_changes(held)
    return {
        **(by_status(held) if held.has_status else dict.fromkeys(by_status(held))),
        "removed_ratio": averaged(sample["remove_sample"] for sample in samples),
        "num_trained_samples": counted(sample["trainable_tokens"] > 0 for sample in samples),
        "untrained_rollout_ratio": averaged(tokens_of(rollout) == 0 for rollout in rollouts),
        **described("removed_vote_effect", changes, ["max"], given=bool(changes)),
        "repetition_frac": averaged(repetitive) if repetitive else None,
        **described("samples_per_rollout", siblings, ("mean", "max")),
        "fan_out_ratio": averaged(count > 1 for count in siblings),
    }


def by_status(held: Held) -> Found:
    statuses = held.known("status")
    kept = [sample for sample in held.samples if sample["status"] != "aborted"]
    kept_statuses = [sample["status"] for sample in kept if sample["status"] is not None]
    any_truncated = (any(sample["status"] == "truncated" for sample in rollout) for rollout in held.rollouts)
    main_truncated = (mainstream_of(rollout)["status"] == "truncated" for rollout in held.rollouts)
    return {
        "truncated_ratio": averaged(status == "truncated" for status in statuses),
        "aborted_ratio": averaged(status == "aborted" for status in statuses),
        "failed_ratio": averaged(status == "failed" for status in statuses),
        "unknown_status_ratio": averaged(status not in KNOWN for status in statuses),
        "without_aborted/truncated_ratio": averaged(status == "truncated" for status in kept_statuses),
        "without_aborted/response_length/mean": averaged(ok(sample["response_length"] for sample in kept)),
        "rollout_truncated_ratio/any": averaged(any_truncated),
        "rollout_truncated_ratio/mainstream": averaged(main_truncated),
    }


def vote_changes(held: Held) -> list[float]:
    """How far each advantage would move if rollouts of a removed mainstream sample had no vote."""
    if not held.normalises:
        return []
    divide = held.settings["advantage_estimator"] in DIVIDING and held.settings["grpo_std_normalization"]
    groups = [[mainstream_of(siblings) for siblings in group] for group in held.groups]
    return [change for voters in groups for change in changes_in(voters, divide)]


def changes_in(voters: list[Row], divide: bool) -> list[float]:
    scored = [sample for sample in voters if sample["advantage"] is not None]
    if not any(sample["remove_sample"] for sample in voters):
        return [0.0] * len(scored)
    kept = [sample for sample in scored if not sample["remove_sample"]]
    again = normalised([sample["reward"] for sample in kept], divide)
    return [abs(advantage - sample["advantage"]) for sample, advantage in zip(kept, again, strict=True)]
