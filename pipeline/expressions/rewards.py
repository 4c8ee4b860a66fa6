"""Reward and raw reward of a sample, each a value and a state. Only `ok` values are ever averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from schemas.canonical import OBJECT_STATE

if TYPE_CHECKING:
    from collections.abc import Sequence


def reward(reward_key: str | None) -> pl.Expr:
    """Return the sample's reward as float64, null where it is not ok: the number itself, or `reward[reward_key]`."""
    if reward_key is None:
        return pl.col("reward_value")
    return pl.when(_is_object()).then(_part(reward_key).struct.field("value")).otherwise(pl.col("reward_value"))


def reward_state(reward_key: str | None) -> pl.Expr:
    """Return the reward's state; a dictionary is `other` without a key, and `missing` where the key is not in it."""
    plain = pl.col("reward_value_state")
    if reward_key is None:
        return pl.when(_is_object()).then(pl.lit("other")).otherwise(plain)
    chosen = _part(reward_key).struct.field("state").fill_null("missing")
    return pl.when(_is_object()).then(chosen).otherwise(plain)


def uses_raw_reward(batch: str | Sequence[str]) -> pl.Expr:
    """Return whether the first sample of the batch has `metadata.raw_reward`, which decides for all of them."""
    keys = [batch] if isinstance(batch, str) else list(batch)
    return (pl.col("has_raw_reward") & (pl.col("row") == 0)).any().over(*keys)


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
