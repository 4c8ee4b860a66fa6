"""Every sample with its identity, its group, its reward and its advantage.

Samples that are alike to the accounting and lie one after another are a stretch: a rollout that was cut into five
samples of one reward is one row, which counts five times. All windows run over stretches, and what they find is looked
up by the samples. Sums are those of whole numbers (`pipeline.expressions.sums`), so that a value counted five times
gives the very bits that five values do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import advantages, groups, identity, keys, rewards, sums
from schemas.table import MAX_ROWS_IN_BATCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.settings import Settings

ROLLOUT_VOTE, ROW_VOTE = "rollout_vote", "row_vote"
SAMPLES, TOKENS = "samples", "all_trainable_tokens"
"""Columns of a stretch that say how many samples it stands for, and what they have of trainable tokens together."""
_NAMES = (*keys.BATCH, "adapter_name", "adapter_slot", "kind", "id", "group_index")
_VALUES = ("explicit_group", "reward", "raw_value", "has_raw_reward")
_OF_MAINSTREAM = ("row", "trainable_tokens", "status", "remove_sample", "reward_parts")
_ALIKE = ("batch", *_NAMES[len(keys.BATCH) :], *_VALUES)


def in_order(samples: pl.DataFrame) -> pl.DataFrame:
    """Return samples by batch and row; as they are where each batch's lie one after another, in their order."""
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in keys.BATCH)
    follows = (same & (pl.col("row") > pl.col("row").shift(1))).fill_null(value=False)
    firsts = samples.lazy().filter(~follows).select(keys.BATCH).collect()
    return samples.sort(*keys.BATCH, "row") if firsts.is_duplicated().any() else samples


def identified(samples: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Add identity, reward and trainable tokens to canonical samples, and the `stretch` that each is part of.

    Args:
        samples: the samples of whole batches, each batch's one after another, by row.
        settings: what a reward is.
    """
    size = settings.n_samples_per_prompt
    blocks = [] if size is None else [pl.col("row") // size]
    starts = [value.ne_missing(value.shift(1)) for value in (*map(pl.col, _ALIKE), *blocks)]
    return (
        samples.with_columns(
            batch=keys.batch(),
            kind=identity.kind(),
            id=identity.identifier(),
            trainable_tokens=identity.trainable_tokens(),
            effective_response_length=identity.unmasked_tokens(),
            reward=rewards.reward(settings),
            reward_state=rewards.reward_state(settings),
        )
        .with_columns(starts=pl.any_horizontal(starts))
        .with_columns(stretch=pl.col("starts").cum_sum().cast(pl.Int64) - 1)
    )


def stretches(frame: pl.LazyFrame, settings: Settings, counted: Mapping[str, pl.Expr]) -> pl.LazyFrame:
    """Return one row a stretch, with its samples, its keys and its prompt group.

    Of its samples it has the one with most trainable tokens, the first of them on ties; `first_row` is its first one's.
    Keys are the columns `adapter`, `group`, `rollout`, `episode` and `bucket`: each the position of the first stretch
    of that key (see `keys.leader`).

    Args:
        frame: samples with their stretch.
        settings: how prompt groups are found.
        counted: what else a stretch has of its samples together: whole numbers by name.
    """
    # Tokens and row in one number have no ties, so what is largest does not depend on an engine's order.
    rank = pl.col("trainable_tokens") * MAX_ROWS_IN_BATCH - pl.col("row")
    together = {SAMPLES: pl.lit(1, pl.Int64), TOKENS: pl.col("trainable_tokens"), **counted}
    frame = frame.with_columns(rank=rank, **{name: value.cast(pl.Int64) for name, value in together.items()})
    frame = frame.with_columns(
        first_row=pl.when("starts").then("row").forward_fill(),
        is_best=pl.col("rank") == pl.col("rank").max().over("stretch"),
        **{f"__end_{name}": pl.col(name).sum() for name in together},
        **{name: pl.when("starts").then(pl.col(name).cum_sum() - pl.col(name)).forward_fill() for name in together},
    )
    own = ("batch", *_NAMES, *_VALUES, *_OF_MAINSTREAM, "rank", "first_row")
    return (
        frame.filter("is_best")
        # What there was before the next stretch, less what there was before this one.
        .with_columns(
            pl.coalesce(pl.col(name).shift(-1), pl.col(f"__end_{name}")) - pl.col(name) for name in together
        )
        .select(*own, *together)
        .with_row_index("position")
        .with_columns(pl.col("position").cast(pl.Int64))
        .with_columns(group_source=groups.group_source(settings), uses_raw_reward=rewards.uses_raw_reward())
        .with_columns(
            adapter=keys.leader(keys.ADAPTER),
            bucket=keys.leader(keys.UNSCOPED_ROLLOUT),
            group_rule=groups.rule_value(settings),
            raw_reward=rewards.raw_reward(),
        )
        .with_columns(group=keys.leader(keys.PROMPT_GROUP), episode=keys.leader(keys.EPISODE_ROLLOUT))
        .with_columns(rollout=keys.leader(keys.ROLLOUT), prompt_group=groups.ordinal("group"))
    )


def with_rollouts(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add to every stretch what is known of its rollout.

    Mainstream: most trainable tokens, the first by row on ties. Its row, reward, tokens and truncation are added as
    `mainstream_…`; the rollout's samples and extremes of reward and raw reward as `in_rollout_…` and `reward_…`.
    """
    weights = {"in_rollout": SAMPLES}
    frame = frame.with_columns(in_rollout="raw_reward", row_vote="reward").with_columns(
        *sums.extremes(("in_rollout",), "rollout", weights),
        mainstream=pl.col("position").get(pl.col("rank").arg_max()).over("rollout"),
        siblings=pl.col(SAMPLES).sum().over("rollout"),
        reward_min=pl.col("reward").min().over("rollout"),
        reward_max=pl.col("reward").max().over("rollout"),
    )
    # A position is a row number of this frame, so what belongs to the mainstream sample is looked up, not searched.
    frame = frame.with_columns(
        *sums.exponents(("in_rollout",)),
        mainstream_row=pl.col("row").gather("mainstream"),
        mainstream_reward=pl.col("reward").gather("mainstream"),
        mainstream_tokens=pl.col("trainable_tokens").gather("mainstream"),
        mainstream_truncated=pl.col("status").eq_missing("truncated").gather("mainstream"),
    ).with_columns(rollout_vote=pl.when(keys.leads("rollout")).then("mainstream_reward"))
    values = {"in_rollout": sums.scaled(pl.col("in_rollout"), pl.col("in_rollout_exp"))}
    return sums.with_scaled_sums(frame, values, "rollout", suffix="sum", weights=weights)


def with_advantages(frame: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Add the votes of every prompt group, `advantage` and `row_advantage`; both null for evaluation batches."""
    names = (ROLLOUT_VOTE, ROW_VOTE) if settings.normalises else (ROLLOUT_VOTE,)
    frame = advantages.with_votes(frame, names, "group", {ROW_VOTE: SAMPLES})
    advantage = row_advantage = pl.col("reward")
    if settings.normalises:
        divide = settings.divides_by_std
        advantage = advantages.Votes(ROLLOUT_VOTE).advantage(pl.col("mainstream_reward"), divide=divide)
        row_advantage = advantages.Votes(ROW_VOTE).advantage(pl.col("reward"), divide=divide)
    is_train = pl.when(pl.col("split") == "train")
    return frame.with_columns(advantage=is_train.then(advantage), row_advantage=is_train.then(row_advantage))


def with_episode_rewards(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add the mean raw reward of every episode rollout and of every merged bucket.

    `episode_reward` and `bucket_reward` stand on the first stretch of their key only: a mean over them counts each
    once. `bucket_share` is what one sample is of its bucket.
    """
    frame = frame.with_columns(in_episode="raw_reward", in_bucket="raw_reward")
    for column, key in (("in_episode", "episode"), ("in_bucket", "bucket")):
        frame = sums.with_sums(frame, (column,), key, {column: SAMPLES})
    return frame.with_columns(
        episode_reward=pl.when(keys.leads("episode")).then(sums.mean("in_episode")),
        bucket_reward=pl.when(keys.leads("bucket")).then(sums.mean("in_bucket")),
        bucket_share=pl.when(pl.col("raw_reward").is_not_null()).then(
            sums.quotient(pl.lit(1.0), pl.col("in_bucket_n"))
        ),
    )


def with_results(frame: pl.LazyFrame, found: pl.LazyFrame) -> pl.LazyFrame:
    """Return samples with what was found of their stretches.

    Args:
        frame: samples with their stretch.
        found: stretches as the accounting leaves them, by position.
    """
    looked_up = found.select(
        "uses_raw_reward", "adapter", "prompt_group", "mainstream_row", "advantage", "row_advantage", stretch="position"
    )
    frame = frame.join(looked_up, on="stretch", how="left", maintain_order="left")
    return frame.with_columns(
        is_mainstream=pl.col("row") == pl.col("mainstream_row"),
        raw_reward=rewards.raw_reward(),
        raw_reward_state=rewards.raw_reward_state(),
    ).drop("starts", "mainstream_row")
