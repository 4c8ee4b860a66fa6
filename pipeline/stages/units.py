"""The units of account with their measures: samples, rollouts, episode rollouts, prompt groups, each a lazy frame.

Every frame has `batch` and `adapter`, the keys that metrics are grouped by, and the names that stand for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import advantages, keys, measures, sums
from pipeline.expressions.catalogue.labels import labelled
from pipeline.stages import tries
from pipeline.stages.samples import TOKENS
from schemas.tables import AdapterRow

if TYPE_CHECKING:
    from schemas.settings import Settings

NAMES = AdapterRow.grain
KEPT_VOTE = "kept_vote"
OF_STRETCHES = {
    "truncated": pl.col("status").eq_missing("truncated"),
    "aborted": pl.col("status").eq_missing("aborted"),
    "statuses": pl.col("status").is_not_null(),
    "lengths": pl.col("response_length").is_not_null(),
    "all_response_length": pl.col("response_length").fill_null(0),
}
"""What the measures of rollouts need to know of the samples of a stretch together."""


def samples(wide: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Return one row a sample, with its measures."""
    return measures.with_signal(wide.with_columns(**measures.of_sample(settings)))


def rollouts(stretches: pl.LazyFrame, settings: Settings, settle: sums.Settle) -> pl.LazyFrame:
    """Return one row a rollout of the normalisation."""
    frame = stretches.with_columns(
        rollout_tokens=pl.col(TOKENS).sum().over("rollout"),
        any_truncated=pl.col("truncated").sum().over("rollout") > 0,
        any_aborted=pl.col("aborted").sum().over("rollout") > 0,
        statuses=pl.col("statuses").sum().over("rollout"),
        mainstream_parts=pl.col("reward_parts").gather("mainstream"),
        mainstream_removed=pl.col("remove_sample").gather("mainstream"),
        # Siblings share it only where it is normalised.
        advantage=pl.col("advantage").gather("mainstream"),
    ).filter(keys.leads("rollout"))
    frame = frame.with_columns(
        has_status=pl.when(pl.col("statuses") > 0).then(pl.lit(value=True)),
        samples="siblings",
        is_fan_out=pl.col("siblings") > 1,
        has_parts=pl.when(pl.col("mainstream_parts").list.len() > 0).then(pl.lit(value=True)),
        trains_nothing=pl.col("rollout_tokens") == 0,
    )
    return (
        frame.with_columns(vote_change=pl.lit(None, pl.Float64))
        if not settings.normalises
        else _revoted(settle(frame), settings, settle)
    )


def _revoted(frame: pl.LazyFrame, settings: Settings, settle: sums.Settle) -> pl.LazyFrame:
    """Add `vote_change`: how far an advantage would move if rollouts of a removed mainstream sample had no vote."""
    frame = frame.with_columns(
        touched=pl.col("mainstream_removed").any().over("group"),
        **{KEPT_VOTE: pl.when(~pl.col("mainstream_removed")).then("mainstream_reward")},
    )
    # Few groups have a removed sample: only theirs are normalised a second time.
    touched = settle(frame.filter("touched").select("position", "group", KEPT_VOTE))
    voted = sums.looked_up(touched, advantages.counted(touched, (KEPT_VOTE,), "group", settle), "group")
    changed = advantages.Votes(KEPT_VOTE).advantage(pl.col(KEPT_VOTE), divide=settings.divides_by_std)
    moved = voted.select("position", revoted=changed)
    frame = sums.looked_up(settle(frame), settle(moved), "position")
    counts = pl.col("advantage").is_not_null() & (~pl.col("touched") | pl.col("revoted").is_not_null())
    change = (pl.col("revoted") - pl.col("advantage")).abs().fill_null(0.0)
    return frame.with_columns(vote_change=pl.when(counts).then(change))


def episodes(stretches: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row a rollout of the episode metrics."""
    frame = stretches.with_columns(
        episode_response_length=pl.col(TOKENS).sum().over("episode"),
        __length=pl.col("all_response_length").sum().over("episode"),
        __lengths=pl.col("lengths").sum().over("episode"),
        any_aborted=pl.col("aborted").sum().over("episode") > 0,
        statuses=pl.col("statuses").sum().over("episode"),
    ).filter(keys.leads("episode"))
    return frame.with_columns(
        has_status=pl.when(pl.col("statuses") > 0).then(pl.lit(value=True)),
        episode_total_response_length=pl.when(pl.col("__lengths") > 0).then("__length"),
        reward_zero_filled=pl.col("episode_reward").fill_null(0.0),
        reward_where_trained=pl.when(pl.col("episode_response_length") > 0).then("episode_reward"),
        reward_where_not_aborted=pl.when(~pl.col("any_aborted")).then("episode_reward"),
    )


def prompt_groups(rollouts: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Return one row a prompt group, from its rollouts."""
    vote, kept = pl.col("mainstream_reward"), pl.when(~pl.col("any_aborted")).then("mainstream_reward")
    frame = rollouts.group_by("group").agg(
        pl.col("batch", "adapter", *NAMES).first(),
        rollouts=pl.len().cast(pl.Int64),
        scored=vote.count().cast(pl.Int64),
        passes=(vote >= settings.pass_threshold).sum().cast(pl.Int64),
        reward_low=vote.min(),
        reward_high=vote.max(),
        raw_low=pl.col("in_rollout_min").min(),
        raw_high=pl.col("in_rollout_max").max(),
        kept_low=kept.min(),
        kept_high=kept.max(),
        has_status=pl.col("has_status").max(),
        has_gradient=((pl.col("advantage") != 0) & (pl.col("rollout_tokens") > 0)).any(),
        has_advantages=(pl.col("split") == "train").first(),
    )
    frame = frame.with_columns(
        **_constancy("reward"),
        **_constancy("raw"),
        is_constant_where_not_aborted=pl.col("kept_low") == pl.col("kept_high"),
        has_advantages=pl.when("has_advantages").then(pl.lit(value=True)),
    )
    frame = frame.with_columns(
        is_phantom=(pl.col("raw_is_constant") & ~pl.col("reward_is_constant")).fill_null(value=False),
        has_gradient=pl.when(pl.col("has_advantages")).then("has_gradient"),
    )
    return tries.with_expected_size(frame, settings).with_columns(
        is_incomplete=pl.col("rollouts") < pl.col("expected"), is_overfull=pl.col("rollouts") > pl.col("expected")
    )


def _constancy(of: str) -> dict[str, pl.Expr]:
    """Return what is to be said of the lowest and highest value of a group, decided by comparing."""
    low, high = pl.col(f"{of}_low"), pl.col(f"{of}_high")
    return {
        f"{of}_is_numeric": low.is_not_null(),
        f"{of}_is_not_numeric": low.is_null(),
        f"{of}_is_constant": low == high,
        f"{of}_is_all_zero": (low == 0) & (high == 0),
        f"{of}_is_all_one": (low == 1) & (high == 1),
        f"{of}_constant": labelled(pl.when(low == high).then(low)),
    }


def parts(wide: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row an entry of a dictionary reward of a mainstream sample, as `part_key` and `part_value`."""
    entry = pl.col("reward_parts")
    return (
        wide.filter(pl.col("is_mainstream") & (entry.list.len() > 0))
        .select("batch", "adapter", *NAMES, entry)
        .explode("reward_parts")
        .with_columns(
            part_key=entry.struct.field("key"),
            part_value=pl.when(entry.struct.field("state") == "ok").then(entry.struct.field("value")),
        )
    )
