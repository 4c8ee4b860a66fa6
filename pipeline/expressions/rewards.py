"""Reward and raw reward of a sample, each a value and a state. Only `ok` values are ever averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schemas.canonical import OBJECT_STATE, RewardState
from schemas.frames import polars_type

if TYPE_CHECKING:
    from schemas.settings import Settings

STATES = polars_type(RewardState)
"""States of a reward, as a type of columns."""


def reward(settings: Settings) -> pl.Expr:
    """Return the sample's reward as float64, null where it is not ok.

    It is the number itself; of a dictionary `reward[reward_key]`, or with `reward_weights` the weighted sum of entries:
    one of weight 0 is not multiplied in (0 x NaN would be NaN), one of another weight has to be ok.
    """
    plain = pl.col("reward_value")
    if settings.reward_weights is not None:
        weighted = pl.lit(0.0)
        for key, weight in _weights(settings):
            weighted = weighted + _part(key).struct.field("value") * weight
        return pl.when(_is_object()).then(_finite(weighted)).otherwise(plain)
    if settings.reward_key is None:
        return plain
    return pl.when(_is_object()).then(_part(settings.reward_key).struct.field("value")).otherwise(plain)


def reward_state(settings: Settings) -> pl.Expr:
    """Return the reward's state; a dictionary is `other` without a key, and `missing` where the key is not in it.

    With `reward_weights` it is the state of the first entry, by name, that has a weight and is not ok.
    """
    plain = pl.col("reward_value_state")
    if settings.reward_weights is not None:
        states = [_state(key) for key, _ in _weights(settings)]
        failing = pl.coalesce(pl.when(state != "ok").then(state) for state in states)
        overflows = pl.when(reward(settings).is_null()).then(pl.lit("inf", STATES)).otherwise(pl.lit("ok", STATES))
        return pl.when(_is_object()).then(failing.fill_null(overflows)).otherwise(plain)
    if settings.reward_key is None:
        return pl.when(_is_object()).then(pl.lit("other", STATES)).otherwise(plain)
    return pl.when(_is_object()).then(_state(settings.reward_key)).otherwise(plain)


def _weights(settings: Settings) -> list[tuple[str, float]]:
    return sorted((key, weight) for key, weight in (settings.reward_weights or {}).items() if weight != 0)


def _finite(value: pl.Expr) -> pl.Expr:
    # -0.0 becomes 0.0, as everywhere.
    return pl.when(value == 0).then(pl.lit(0.0)).when(value.is_finite()).then(value)


def _state(key: str) -> pl.Expr:
    return _part(key).struct.field("state").fill_null("missing").cast(STATES)


def uses_raw_reward() -> pl.Expr:
    """Return whether the first sample of a batch has `metadata.raw_reward`, which decides for all: an aggregation."""
    return (pl.col("has_raw_reward") & (pl.col("first_row") == 0)).any()


def raw_reward() -> pl.Expr:
    """Return what the episode metrics average: metadata.raw_reward where the batch has it, else the reward."""
    return pl.when("uses_raw_reward").then(pl.col("raw_value")).otherwise(pl.col("reward"))


def raw_reward_state() -> pl.Expr:
    """Return the state of the raw reward."""
    return pl.when("uses_raw_reward").then(pl.col("raw_value_state")).otherwise(pl.col("reward_state"))


def _is_object() -> pl.Expr:
    return pl.col("reward_value_state") == OBJECT_STATE


def _part(key: str) -> pl.Expr:
    # Keys of a dictionary are unique, so the first match is the only one.
    return pl.col("reward_parts").list.filter(pl.element().struct.field("key") == key).list.first()
