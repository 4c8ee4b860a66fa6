"""The published tables: of the samples, and of their stretches (`pipeline.stages.samples`) all others."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import advantages, keys, sums
from pipeline.expressions.catalogue.accounting import PREPARED
from pipeline.stages.samples import ROLLOUT_VOTE, SAMPLES, TOKENS
from schemas.canonical import REWARD_STATES
from schemas.frames import polars_schema, stored_schema
from schemas.tables import AdapterRow, MetricRow, PromptGroupRow, RolloutRow, SampleRow

if TYPE_CHECKING:
    from collections.abc import Collection

    from schemas.settings import Settings
    from schemas.table import Table


def stored_samples(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row a sample: the published columns, then the canonical ones that a recomputation starts from."""
    return frame.select(_sample_columns())


@cache
def _sample_columns() -> list[pl.Expr]:
    return [pl.col(name).cast(dtype) for name, dtype in stored_schema(SampleRow).items()]


def rollouts(frame: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Return one row a rollout within a prompt group (`RolloutRow`)."""
    advantage = pl.col("advantage")
    if not settings.normalises:
        advantage = pl.when(pl.col("split") == "train").then(pl.col("mainstream_reward"))
    return published(
        frame.filter(keys.leads("rollout")).with_columns(
            samples="siblings",
            scored_samples=pl.col("in_rollout_n"),
            raw_reward=pl.col("in_rollout_mean"),
            siblings_differ=(pl.col("reward_min") < pl.col("reward_max")).fill_null(value=False),
            advantage=advantage,
        ),
        RolloutRow,
    )


def prompt_groups(frame: pl.LazyFrame, votes: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row a prompt group (`PromptGroupRow`).

    Args:
        frame: stretches.
        votes: one row a prompt group, in the order of their first stretches.
    """
    counted = (
        frame.select("group", SAMPLES, rollouts=keys.leads("rollout").cast(pl.Int64))
        .group_by("group", maintain_order=True)
        .agg(pl.col("rollouts", SAMPLES).sum())
    )
    names = frame.filter(keys.leads("group")).select(PromptGroupRow.grain)
    vote = advantages.Votes(ROLLOUT_VOTE)
    return published(
        pl.concat([names, counted, votes.drop("group")], how="horizontal").with_columns(
            scored_rollouts=pl.col(f"{ROLLOUT_VOTE}_n"),
            reward_mean=vote.mean,
            reward_std=vote.std,
            reward_min=pl.col(f"{ROLLOUT_VOTE}_min"),
            reward_max=pl.col(f"{ROLLOUT_VOTE}_max"),
            is_constant=vote.is_constant.fill_null(value=False),
        ),
        PromptGroupRow,
    )


def weighed(frame: pl.LazyFrame, settle: sums.Settle) -> pl.LazyFrame:
    """Return one row an adapter, with its own figures and those of its batch that the weights and metrics need.

    Columns named `batch_…` are the batch's, equal on all of its adapters.
    """
    figures = frame.select(
        *AdapterRow.grain,
        "batch",
        "adapter",
        SAMPLES,
        TOKENS,
        leads_episode=keys.leads("episode"),
        a_episode="episode_reward",
        a_row="raw_reward",
        a_share="bucket_share",
        batch_episode="episode_reward",
        batch_row="raw_reward",
        batch_unscoped="bucket_reward",
    )
    frame = settle(figures)
    counted = frame.group_by("adapter").agg(
        pl.col(*AdapterRow.grain, "batch").first(),
        a_samples=pl.col(SAMPLES).sum(),
        a_rollouts=pl.col("leads_episode").sum().cast(pl.Int64),
        a_tokens=pl.col(TOKENS).sum(),
    )
    own = ("a_episode", "a_row", "a_share")
    found = counted.join(
        sums.summed(frame, own, "adapter", settle, {"a_row": SAMPLES, "a_share": SAMPLES}), on="adapter", how="left"
    )
    found = settle(found.with_columns(batch_macro=sums.mean("a_episode")).sort("adapter"))
    of_batch = sums.summed(
        frame, ("batch_episode", "batch_row", "batch_unscoped"), "batch", settle, {"batch_row": SAMPLES}
    )
    macro = sums.summed(found, ("batch_macro",), "batch", settle)
    return (
        found.drop("batch_macro")
        .join(of_batch, on="batch", how="left", maintain_order="left")
        .join(macro, on="batch", how="left", maintain_order="left")
    )


def adapters(weighed: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row an adapter in a batch (`AdapterRow`), its weight under every definition of the mean beside it."""
    share = sums.power_of_two(pl.col("a_share_exp")) * pl.col("a_share_sum")
    scored = pl.col("batch_row_n") > 0
    return published(
        weighed.with_columns(
            samples="a_samples",
            rollouts="a_rollouts",
            scored_rollouts="a_episode_n",
            trainable_tokens="a_tokens",
            episode_raw_reward=sums.mean("a_episode"),
            weight_by_rows=pl.when(scored).then(sums.quotient(pl.col("a_row_n"), pl.col("batch_row_n"))),
            weight_unscoped=pl.when(scored).then(sums.quotient(share, pl.col("batch_unscoped_n"))),
            weight_scoped=pl.when(scored).then(sums.quotient(pl.col("a_episode_n"), pl.col("batch_episode_n"))),
            weight_macro=pl.when(scored).then(
                sums.quotient((pl.col("a_episode_n") > 0).cast(pl.Float64), pl.col("batch_macro_n"))
            ),
        ),
        AdapterRow,
    )


def batches(samples: pl.LazyFrame, stretches: pl.LazyFrame, weighed: pl.LazyFrame, read: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row a batch with its counts, also for batches without samples.

    `read` has one row a batch (`CanonicalBatch`); its columns are kept.
    """
    counted = (
        stretches.filter(keys.leads("group"))
        .group_by(keys.BATCH)
        .agg(prompt_groups=pl.len().cast(pl.Int64), found_by=pl.col("group_source").first())
    )
    scored = weighed.group_by(keys.BATCH).agg(
        rollouts=pl.col("a_rollouts").sum(),
        scored_rollouts=pl.col("a_episode_n").sum(),
        **{name: pl.col(name).first() for metric in PREPARED for name in metric.batch_columns()},
    )
    is_unscored = (pl.col("reward_state") != "ok") | (pl.col("raw_reward_state") != "ok")
    states = (
        samples.filter(is_unscored)
        .group_by(keys.BATCH)
        .agg(
            (pl.col(f"{column}_state") == state).sum().cast(pl.Int64).alias(f"{column}_{state}")
            for column in ("reward", "raw_reward")
            for state in REWARD_STATES[1:]
        )
    )
    joined = read
    for other in (counted, scored, states):
        joined = joined.join(other, on=list(keys.BATCH), how="left")
    explicit = pl.when("explicit_groups").then(pl.lit("explicit")).otherwise(pl.lit("whole_batch"))
    filled = ("prompt_groups", "rollouts", "scored_rollouts", "^reward_.*$", "^raw_reward_.*$", "^batch_.*_n$")
    return joined.with_columns(group_source=pl.coalesce("found_by", explicit)).with_columns(
        pl.col(*filled).fill_null(0)
    )


def metrics(batches: pl.LazyFrame, weighed: pl.LazyFrame, chosen: Collection[str]) -> pl.LazyFrame:
    """Return one row a metric of the accounting itself, of a batch or of one of its adapters (`MetricRow`)."""
    nobody = {"adapter_name": pl.lit(None, pl.String), "adapter_slot": pl.lit(None, pl.Int64)}
    frames = [
        (batches if scope == "batch" else weighed).with_columns(
            scope=pl.lit(scope),
            metric=pl.lit(metric.name),
            value=metric.value(scope).cast(pl.Float64),
            count=metric.count(scope).cast(pl.Int64),
            **(nobody if scope == "batch" else {}),
        )
        for metric in PREPARED
        if metric.name in chosen
        for scope in metric.scopes
    ]
    nothing = polars_schema(MetricRow).to_frame().lazy()
    return pl.concat([nothing, *(published(frame, MetricRow) for frame in frames)])


def published(frame: pl.LazyFrame, table: type[Table]) -> pl.LazyFrame:
    """Return exactly the columns of a published table, in their types."""
    return frame.select(_columns(table))


@cache
def _columns(table: type[Table]) -> list[pl.Expr]:
    return [pl.col(name).cast(dtype) for name, dtype in polars_schema(table).items()]
