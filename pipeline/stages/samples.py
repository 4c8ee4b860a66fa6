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
            batch=keys.batch(),
            kind=identity.kind(),
            id=identity.identifier(),
            trainable_tokens=identity.trainable_tokens(),
            effective_response_length=identity.unmasked_tokens(),
            reward=rewards.reward(settings),
            reward_state=rewards.reward_state(settings),
        )
        .with_columns(group_source=groups.group_source(settings), uses_raw_reward=rewards.uses_raw_reward("batch"))
        .with_columns(
            adapter=keys.leader(keys.ADAPTER),
            bucket=keys.leader(keys.UNSCOPED_ROLLOUT),
            group_rule=groups.rule_value(settings),
            raw_reward=rewards.raw_reward(),
            raw_reward_state=rewards.raw_reward_state(),
        )
        .with_columns(group=keys.leader(keys.PROMPT_GROUP), episode=keys.leader(keys.EPISODE_ROLLOUT))
        .with_columns(rollout=keys.leader(keys.ROLLOUT), prompt_group=groups.ordinal("group"))
    )


def with_rollouts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add `is_mainstream`, and to every sibling what is known of its rollout.

    Mainstream: most trainable tokens, the first by row on ties. Its row, reward, tokens and truncation are added as
    `mainstream_…`; the rollout's samples and extremes of reward and raw reward as `in_rollout_…` and `reward_…`.
    """
    # Tokens and row in one number have no ties, so arg_max does not depend on an engine's order within a window.
    rank = pl.col("trainable_tokens") * MAX_ROWS_IN_BATCH - pl.col("row")
    frame = frame.with_columns(in_rollout="raw_reward", row_vote="reward", __rank=rank).with_columns(
        *sums.extremes(("in_rollout",), "rollout"),
        mainstream=pl.col("position").get(pl.col("__rank").arg_max()).over("rollout"),
        siblings=pl.len().over("rollout").cast(pl.Int64),
        reward_min=pl.col("reward").min().over("rollout"),
        reward_max=pl.col("reward").max().over("rollout"),
    )
    # A position is a row number of this frame, so what belongs to the mainstream sample is looked up, not searched.
    frame = frame.with_columns(
        *sums.exponents(("in_rollout",)),
        is_mainstream=pl.col("position") == pl.col("mainstream"),
        mainstream_row=pl.col("row").gather("mainstream"),
        mainstream_reward=pl.col("reward").gather("mainstream"),
        mainstream_tokens=pl.col("trainable_tokens").gather("mainstream"),
        mainstream_truncated=pl.col("status").eq_missing("truncated").gather("mainstream"),
    ).with_columns(rollout_vote=pl.when("is_mainstream").then("reward"))
    values = {"in_rollout": sums.scaled(pl.col("in_rollout"), pl.col("in_rollout_exp"))}
    return sums.with_scaled_sums(frame, values, "rollout", suffix="sum").drop("__rank")


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
    """Add the mean raw reward of every episode rollout and of every merged bucket.

    `episode_reward` and `bucket_reward` stand on the first sample of their key only: a mean over them counts each once.
    """
    frame = frame.with_columns(in_episode="raw_reward", in_bucket="raw_reward")
    for column, key in (("in_episode", "episode"), ("in_bucket", "bucket")):
        frame = sums.with_sums(frame, (column,), key)
    return frame.with_columns(
        episode_reward=pl.when(keys.leads("episode")).then(sums.mean("in_episode")),
        bucket_reward=pl.when(keys.leads("bucket")).then(sums.mean("in_bucket")),
        bucket_share=pl.when(pl.col("raw_reward").is_not_null()).then(
            sums.quotient(pl.lit(1.0), pl.col("in_bucket_n"))
        ),
    )
