"""Every sample with its identity, its group, its reward and its advantage: one wide lazy frame for all tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import advantages, groups, identity, keys, rewards, sums
from schemas.table import MAX_ROWS_IN_BATCH

if TYPE_CHECKING:
    from schemas.settings import Settings

ROLLOUT_VOTE, ROW_VOTE = "rollout_vote", "row_vote"


def identified(samples: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Add identity, reward, trainable tokens and prompt group to canonical samples.

    Also adds the columns `position`, `batch`, `adapter`, `group`, `rollout`, `episode` and `bucket`: each the position
    of the first sample of that key (see `keys.leader`).
    """
    return (
        samples.sort(*keys.BATCH, "row")
        .with_row_index("position")
        .with_columns(pl.col("position").cast(pl.Int64))
        .with_columns(
            batch=keys.leader(keys.BATCH),
            adapter=keys.leader(keys.ADAPTER),
            kind=identity.kind(),
            id=identity.identifier(),
            trainable_tokens=identity.trainable_tokens(),
            reward=rewards.reward(settings.reward_key),
            reward_state=rewards.reward_state(settings.reward_key),
        )
        .with_columns(group_source=groups.group_source(settings), uses_raw_reward=rewards.uses_raw_reward("batch"))
        .with_columns(
            group_rule=groups.rule_value(settings),
            raw_reward=rewards.raw_reward(),
            raw_reward_state=rewards.raw_reward_state(),
        )
        .with_columns(
            group=keys.leader((*keys.ADAPTER, "group_rule")),
            episode=keys.leader(keys.EPISODE_ROLLOUT),
            bucket=keys.leader(keys.UNSCOPED_ROLLOUT),
        )
        .with_columns(prompt_group=groups.ordinal("group"))
        .with_columns(rollout=keys.leader(keys.ROLLOUT))
    )


def with_mainstream(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add `is_mainstream` and the mainstream sample's row, reward, tokens and status to every sibling.

    Mainstream: most trainable tokens, the first by row on ties.
    """
    # Tokens and row in one number have no ties, so arg_max does not depend on an engine's order within a window.
    rank = pl.col("trainable_tokens") * MAX_ROWS_IN_BATCH - pl.col("row")
    mainstream = pl.col("position").get(rank.arg_max()).over("rollout")
    of_mainstream = pl.when("is_mainstream")
    return (
        frame.with_columns(is_mainstream=pl.col("position") == mainstream)
        .with_columns(rollout_vote=of_mainstream.then("reward"), row_vote=pl.col("reward"))
        .with_columns(
            mainstream_row=of_mainstream.then("row").max().over("rollout"),
            mainstream_reward=pl.col("rollout_vote").max().over("rollout"),
            mainstream_tokens=of_mainstream.then("trainable_tokens").max().over("rollout"),
            mainstream_truncated=(pl.col("is_mainstream") & pl.col("status").eq_missing("truncated"))
            .any()
            .over("rollout"),
        )
    )


def with_advantages(frame: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Add the votes of every prompt group, `advantage` and `row_advantage`; both null for evaluation batches."""
    names = (ROLLOUT_VOTE, ROW_VOTE) if settings.normalises else (ROLLOUT_VOTE,)
    frame = advantages.with_votes(frame, names, "group")
    advantage = row_advantage = pl.col("reward")
    if settings.normalises:
        divide = settings.divides_by_std
        advantage = advantages.Votes(ROLLOUT_VOTE).advantage(pl.col("mainstream_reward"), divide=divide)
        row_advantage = advantages.Votes(ROW_VOTE).advantage(pl.col("reward"), divide=divide)
    is_train = pl.when(pl.col("split") == "train")
    return frame.with_columns(advantage=is_train.then(advantage), row_advantage=is_train.then(row_advantage))


def with_episode_rewards(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the mean raw reward of every episode rollout, of every merged bucket, and the rollout's of the normalisation.

    `episode_reward` and `bucket_reward` stand on the first sample of their key only: a mean over them counts each once.
    """
    frame = frame.with_columns(in_episode="raw_reward", in_bucket="raw_reward", in_rollout="raw_reward")
    for column, key in (("in_episode", "episode"), ("in_bucket", "bucket"), ("in_rollout", "rollout")):
        frame = sums.with_sums(frame, (column,), key)
    return frame.with_columns(
        episode_reward=pl.when(keys.leads("episode")).then(sums.mean("in_episode")),
        bucket_reward=pl.when(keys.leads("bucket")).then(sums.mean("in_bucket")),
        bucket_share=pl.when(pl.col("raw_reward").is_not_null()).then(1.0 / pl.col("in_bucket_n")),
    )
