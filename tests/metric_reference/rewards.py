"""Rewards: of mainstream samples, of rollouts under other rules, of the entries of a dictionary, and unscored."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.metric_reference.held import tokens_of, was_aborted
from tests.metric_reference.statistics import averaged, described, label
from tests.reference import STATES, Row, by, mainstream_of, mean, ok

if TYPE_CHECKING:
    from tests.metric_reference.held import Held
    from tests.metric_reference.statistics import Figure, Found


def rewards(held: Held) -> Found:
    votes = ok(mainstream_of(siblings)["reward"] for siblings in held.rollouts)
    states = {f"unscored/{s}": averaged(sample["reward_state"] == s for sample in held.samples) for s in STATES}
    return {
        **described("mainstream_reward", votes, ("mean", "std", "min", "p25", "median", "p75", "max")),
        **episodes(held),
        **states,
        "reward/{key}": entries(held),
        "error_cat/{category}": categories(held),
    }


def episodes(held: Held) -> Found:
    scores = [(siblings, mean(ok(sample["raw_reward"] for sample in siblings))) for siblings in held.episodes]
    scored = [(siblings, score) for siblings, score in scores if score is not None]
    finished = averaged(score for siblings, score in scored if not was_aborted(siblings))
    return {
        "episode_raw_reward_zero_filled": averaged(score or Fraction(0) for _, score in scores),
        "episode_raw_reward_trained": averaged(score for siblings, score in scored if tokens_of(siblings) > 0),
        "without_aborted/episode_raw_reward": finished if held.has_status else None,
    }


def entries(held: Held) -> dict[str, Figure] | None:
    """The mean of every entry that a mainstream sample's dictionary has."""
    parts = [part for siblings in held.rollouts for part in mainstream_of(siblings)["reward_parts"] or []]
    if not parts:
        return None
    return {f"reward/{same[0]['key']}": averaged(ok(part["value"] for part in same)) for same in by(parts, key_of)}


def key_of(part: Row) -> str:
    return str(part["key"])


def categories(held: Held) -> dict[str, Figure] | None:
    """The share of samples of every category."""
    found = [category_of(sample, held.settings["log_reward_category"]) for sample in held.samples]
    counts = Counter(category for category in found if category is not None)
    if not counts:
        return None
    whole = len(held.samples)
    return {f"error_cat/{category}": (members / whole, whole) for category, members in counts.items()}


def category_of(sample: Row, key: str | None) -> str | None:
    """The entry's text, or its number as it would stand in a name."""
    for part in sample["reward_parts"] or []:
        if part["key"] == key:
            if part["text"] is not None:
                return str(part["text"])
            return None if part["value"] is None else label(part["value"])
    return None
