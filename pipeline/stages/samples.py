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
_KEYS = ("adapter_name", "adapter_slot", "kind", "id", "group_index")
_VALUES = ("explicit_group", "reward", "raw_value", "has_raw_reward")
_OF_MAINSTREAM = ("row", "trainable_tokens", "status", "remove_sample", "reward_parts")
ALIKE = ("batch", *_KEYS, *_VALUES)
"""Columns that the samples of a stretch have in common: all that the accounting knows of them, tokens apart."""


def in_order(samples: pl.LazyFrame) -> pl.LazyFrame:
    """Return settled samples by batch and row; as they are where each batch's lie one after another, in their order."""
    follows = (keys.continues(keys.BATCH) & (pl.col("row") > pl.col("row").shift(1))).fill_null(value=False)
    firsts = samples.filter(~follows).select(keys.BATCH).collect()
    return samples.sort(*keys.BATCH, "row") if firsts.is_duplicated().any() else samples


def identified(samples: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Add identity, reward and trainable tokens to canonical samples, and the `stretch` that each is part of.

    Args:
        samples: the samples of whole batches, each batch's one after another, by row.
        settings: what a reward is.
    """
    size = settings.n_samples_per_prompt
    block = pl.col("row") // (size or 1)
    blocks = [] if size is None else [block != block.shift(1)]
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
        .with_columns(starts=pl.any_horizontal(~keys.continues(ALIKE), *blocks))
        .with_columns(stretch=pl.col("starts").cum_sum().cast(pl.Int64) - 1)
    )


def stretches(
    frame: pl.LazyFrame, settings: Settings, counted: Mapping[str, pl.Expr], settle: sums.Settle
) -> pl.LazyFrame:
    """Return one row a stretch, with its samples, its keys and its prompt group.

    Of its samples it has the one with most trainable tokens, the first of them on ties; `first_row` is its first one's.
    Keys are the columns `adapter`, `group`, `rollout`, `episode` and `bucket`: each the position of the first stretch
    of that key (see `keys.leader`).

    Args:
        frame: samples with their stretch.
        settings: how prompt groups are found.
        counted: what else a stretch has of its samples together: whole numbers by name.
        settle: works a frame out.
    """
    # Tokens and row in one number have no ties, so what is largest does not depend on an engine's order.
    rank = pl.col("trainable_tokens") * MAX_ROWS_IN_BATCH - pl.col("row")
    together = {SAMPLES: pl.repeat(1, pl.len(), dtype=pl.Int64), TOKENS: pl.col("trainable_tokens"), **counted}
    # What there is up to the end of each stretch, less what there was up to the end of the one before.
    ends = {name: value.cast(pl.Int64).cum_sum() for name, value in together.items()}
    is_last = pl.col("starts").shift(-1, fill_value=True)
    lasts = (
        frame.select(is_last=is_last, **ends)
        .filter("is_last")
        .select(pl.col(name).diff().fill_null(pl.col(name)) for name in together)
    )
    firsts = frame.select("starts", first_row="row").filter("starts").drop("starts")
    best = frame.select("stretch", "batch", *keys.BATCH, *_KEYS, *_VALUES, *_OF_MAINSTREAM, rank=rank).filter(
        pl.col("rank") == pl.col("rank").max().over("stretch")
    )
    found = settle(pl.concat([best.rename({"stretch": "position"}), firsts, lasts], how="horizontal"))
    of_batches = found.group_by("batch").agg(uses_raw_reward=rewards.uses_raw_reward(), **groups.facts())
    found = settle(
        sums.looked_up(found, of_batches, "batch")
        .with_columns(group_source=groups.group_source(settings), raw_reward=rewards.raw_reward())
        .with_columns(
            adapter=keys.leader(keys.ADAPTER),
            bucket=keys.leader(keys.UNSCOPED_ROLLOUT),
            group_rule=groups.rule_value(settings),
        )
        .with_columns(keys.flagged("batch"), keys.flagged("adapter"), group=keys.leader(keys.PROMPT_GROUP))
        .with_columns(prompt_group=groups.ordinal("group"))
    )
    return _with_rollout_keys(found, settle)


def _with_rollout_keys(frame: pl.LazyFrame, settle: sums.Settle) -> pl.LazyFrame:
    """Add `episode` and `rollout`. There are about as many of them as rows, so that windows are worth being avoided."""
    wanted = {"episode": keys.EPISODE_ROLLOUT, "rollout": keys.ROLLOUT}
    in_order = settle(frame.select(keys.are_in_order(key).alias(name) for name, key in wanted.items())).collect()
    return frame.with_columns(
        (keys.leader_in_order(key) if in_order[name].item() else keys.leader(key)).alias(name)
        for name, key in wanted.items()
    )


def with_rollouts(frame: pl.LazyFrame, settle: sums.Settle) -> pl.LazyFrame:
    """Add to every stretch what is known of its rollout.

    Mainstream: most trainable tokens, the first by row on ties. Its row, reward, tokens and truncation are added as
    `mainstream_…`; the rollout's samples as `siblings`, the extremes of its rewards as `reward_min` and `reward_max`,
    and what is known of its raw rewards as `in_rollout_…` (see `_raw_rewards`).
    """
    several = settle(of_several(frame, "rollout", SAMPLES, "rank", "reward", "raw_reward"))
    found = several.group_by("rollout").agg(
        mainstream=pl.col("position").get(pl.col("rank").arg_max()),
        siblings=pl.col(SAMPLES).sum(),
        reward_min=pl.col("reward").min(),
        reward_max=pl.col("reward").max(),
    )
    alone = {"mainstream": "position", "siblings": SAMPLES, "reward_min": "reward", "reward_max": "reward"}
    new = of_each(frame, settle(found), "rollout", {name: pl.col(own) for name, own in alone.items()})
    parts = {f"in_rollout_{part}": part for part in ("n", "min", "max", "mean")}
    raw_rewards = _raw_rewards(frame, several, "rollout", settle, parts)
    frame = pl.concat([frame, new, raw_rewards], how="horizontal")
    # A position is a row number of this frame, so what belongs to the mainstream sample is looked up, not searched.
    return frame.with_columns(
        row_vote="reward",
        mainstream_row=pl.col("row").gather("mainstream"),
        mainstream_reward=pl.col("reward").gather("mainstream"),
        mainstream_tokens=pl.col("trainable_tokens").gather("mainstream"),
        mainstream_truncated=pl.col("status").eq_missing("truncated").gather("mainstream"),
    ).with_columns(rollout_vote=pl.when(keys.leads("rollout")).then("mainstream_reward"))


def with_advantages(frame: pl.LazyFrame, settings: Settings, settle: sums.Settle) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Add `advantage` and `row_advantage`, null for evaluation batches.

    Returns:
        Stretches; and one row a prompt group, in the order of their first stretches, with what is known of its votes.
    """
    names = (ROLLOUT_VOTE, ROW_VOTE) if settings.normalises else (ROLLOUT_VOTE,)
    votes = advantages.counted(frame, names, "group", settle, {ROW_VOTE: SAMPLES} if settings.normalises else {})
    voted = sums.looked_up(frame.select("group", "split", "reward", "mainstream_reward"), votes, "group")
    advantage = row_advantage = pl.col("reward")
    if settings.normalises:
        divide = settings.divides_by_std
        advantage = advantages.Votes(ROLLOUT_VOTE).advantage(pl.col("mainstream_reward"), divide=divide)
        row_advantage = advantages.Votes(ROW_VOTE).advantage(pl.col("reward"), divide=divide)
    is_train = pl.when(pl.col("split") == "train")
    found = settle(voted.select(advantage=is_train.then(advantage), row_advantage=is_train.then(row_advantage)))
    return pl.concat([frame, found], how="horizontal"), votes


def with_episode_rewards(frame: pl.LazyFrame, settle: sums.Settle) -> pl.LazyFrame:
    """Add the mean raw reward of every episode rollout and of every merged bucket.

    `episode_reward` and `bucket_reward` stand on the first stretch of their key only: a mean over them counts each
    once. `bucket_share` is what one sample is of its bucket.
    """
    # Where groups are those of group_index, episode rollouts are those of the normalisation, which are known already.
    is_known = frame.select((pl.col("episode") == pl.col("rollout")).all()).collect().item()
    known = frame.select(in_episode_n="in_rollout_n", in_episode_mean="in_rollout_mean")

    def found(key: str) -> pl.LazyFrame:
        several = settle(of_several(frame, key, SAMPLES, "raw_reward"))
        return _raw_rewards(frame, several, key, settle, {f"in_{key}_{part}": part for part in ("n", "mean")})

    of_episodes = known if is_known else found("episode")
    return pl.concat([frame, of_episodes, found("bucket")], how="horizontal").with_columns(
        episode_reward=pl.when(keys.leads("episode")).then("in_episode_mean"),
        bucket_reward=pl.when(keys.leads("bucket")).then("in_bucket_mean"),
        bucket_share=pl.when(pl.col("raw_reward").is_not_null()).then(
            sums.quotient(pl.lit(1.0), pl.col("in_bucket_n"))
        ),
    )


def _raw_rewards(
    frame: pl.LazyFrame,
    several: pl.LazyFrame,
    key: str,
    settle: sums.Settle,
    parts: Mapping[str, str],
) -> pl.LazyFrame:
    """Return of every row's key what `parts` names: of its ok raw rewards the number n, the min, the max, the mean.

    The mean of equal values is that very value.
    """
    low, high = pl.col("raw_reward_min"), pl.col("raw_reward_max")
    mean = pl.when(low == high).then(low).otherwise(sums.mean("raw_reward"))
    found = sums.summed(several, ("raw_reward",), key, settle, {"raw_reward": SAMPLES}).with_columns(
        raw_reward_mean=mean
    )
    is_scored = pl.col("raw_reward").is_not_null()
    count = pl.when(is_scored).then(SAMPLES).otherwise(0)
    alone = {name: count if part == "n" else pl.col("raw_reward") for name, part in parts.items()}
    found = found.select(key, *(pl.col(f"raw_reward_{part}").alias(name) for name, part in parts.items()))
    return of_each(frame, settle(found), key, alone)


def of_several(frame: pl.LazyFrame, key: str, *columns: str) -> pl.LazyFrame:
    """Return the stretches that share their key with others: few, as a rule, and all that has to be grouped."""
    narrow = frame.select("position", key, *columns)
    return narrow.join(narrow.filter(~keys.leads(key)).select(key).unique(), on=key, how="semi")


def of_each(frame: pl.LazyFrame, found: pl.LazyFrame, key: str, alone: Mapping[str, pl.Expr]) -> pl.LazyFrame:
    """Return for every row what was found of its key, where it is shared; `alone` says what it is where it is not.

    Args:
        frame: stretches, settled.
        found: one row a key of several stretches, settled, with the columns that `alone` names.
        key: column of both.
        alone: expressions over a stretch that has its key for itself.
    """
    own = frame.select(key, *(value.alias(f"__{name}") for name, value in alone.items()))
    return sums.looked_up(own, found, key).select(pl.coalesce(name, f"__{name}").alias(name) for name in alone)


def with_results(frame: pl.LazyFrame, found: pl.LazyFrame) -> pl.LazyFrame:
    """Return samples with what was found of their stretches.

    Args:
        frame: samples with their stretch.
        found: stretches as the accounting leaves them, by position.
    """
    names = ("uses_raw_reward", "adapter", "prompt_group", "mainstream_row", "advantage", "row_advantage")
    # A stretch's number is its row.
    places = frame.select("stretch").collect().to_series()
    of_stretch = found.select(names).collect()[places].lazy()
    return (
        pl.concat([frame, of_stretch], how="horizontal")
        .with_columns(
            is_mainstream=pl.col("row") == pl.col("mainstream_row"),
            raw_reward=rewards.raw_reward(),
            raw_reward_state=rewards.raw_reward_state(),
        )
        .drop("starts", "mainstream_row")
    )
