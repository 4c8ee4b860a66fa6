"""The units of account with their measures: samples, rollouts, episode rollouts, prompt groups, each a lazy frame.

Every frame has `batch` and `adapter`, the keys that metrics are grouped by, and the names that stand for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import advantages, keys, measures, sums
from pipeline.expressions.catalogue.labels import labelled
from pipeline.stages import tries
from pipeline.stages.samples import TOKENS, of_each, of_several
from schemas.tables import AdapterRow

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_OF_ROLLOUTS = (
    "group",
    "mainstream_reward",
    "mainstream_truncated",
    "mainstream_parts",
    "mainstream_removed",
    "siblings",
    "in_rollout_min",
    "in_rollout_max",
    "advantage",
)


def samples(wide: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Return one row a sample, with its measures."""
    return measures.with_signal(wide.with_columns(**measures.of_sample(settings)))


def rollouts(stretches: pl.LazyFrame, settings: Settings, settle: sums.Settle) -> pl.LazyFrame:
    """Return one row a rollout of the normalisation."""
    frame = stretches.with_columns(
        mainstream_parts=pl.col("reward_parts").gather("mainstream"),
        mainstream_removed=pl.col("remove_sample").gather("mainstream"),
        # Siblings share it only where it is normalised.
        advantage=pl.col("advantage").gather("mainstream"),
    )
    together = (TOKENS, "truncated", "aborted", "statuses")
    frame = _leaders(frame, "rollout", together, _OF_ROLLOUTS, settle).with_columns(
        rollout_tokens=TOKENS, any_truncated=pl.col("truncated") > 0, any_aborted=pl.col("aborted") > 0
    )
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


def episodes(stretches: pl.LazyFrame, settle: sums.Settle) -> pl.LazyFrame:
    """Return one row a rollout of the episode metrics."""
    together = (TOKENS, "all_response_length", "lengths", "aborted", "statuses")
    frame = _leaders(stretches, "episode", together, ("episode_reward",), settle).with_columns(
        episode_response_length=TOKENS, any_aborted=pl.col("aborted") > 0
    )
    return frame.with_columns(
        has_status=pl.when(pl.col("statuses") > 0).then(pl.lit(value=True)),
        episode_total_response_length=pl.when(pl.col("lengths") > 0).then("all_response_length"),
        reward_zero_filled=pl.col("episode_reward").fill_null(0.0),
        reward_where_trained=pl.when(pl.col("episode_response_length") > 0).then("episode_reward"),
        reward_where_not_aborted=pl.when(~pl.col("any_aborted")).then("episode_reward"),
    )


def _leaders(
    stretches: pl.LazyFrame, key: str, together: Sequence[str], kept: Sequence[str], settle: sums.Settle
) -> pl.LazyFrame:
    """Return the first stretch of every key, with what all stretches of that key have together."""
    stretches = settle(stretches.select("position", "batch", "adapter", *NAMES, key, *kept, *together))
    found = of_several(stretches, key, *together).group_by(key).agg(pl.col(together).sum())
    leaders = settle(stretches.filter(keys.leads(key)))
    summed = of_each(leaders, settle(found), key, {name: pl.col(name) for name in together})
    return pl.concat([leaders.drop(together), summed], how="horizontal")


def prompt_groups(rollouts: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Return one row a prompt group, from its rollouts."""
    vote = pl.col("mainstream_reward")
    # Columns, not conditions within an aggregation, which would be worked out group by group.
    frame = rollouts.with_columns(
        __passes=vote >= settings.pass_threshold,
        __kept=pl.when(~pl.col("any_aborted")).then(vote),
        __has_gradient=(pl.col("advantage") != 0) & (pl.col("rollout_tokens") > 0),
        __is_train=pl.col("split") == "train",
    )
    frame = frame.group_by("group").agg(
        pl.col("batch", "adapter", *NAMES).first(),
        rollouts=pl.len().cast(pl.Int64),
        scored=vote.count().cast(pl.Int64),
        passes=pl.col("__passes").sum().cast(pl.Int64),
        reward_low=vote.min(),
        reward_high=vote.max(),
        raw_low=pl.col("in_rollout_min").min(),
        raw_high=pl.col("in_rollout_max").max(),
        kept_low=pl.col("__kept").min(),
        kept_high=pl.col("__kept").max(),
        has_status=pl.col("has_status").max(),
        has_gradient=pl.col("__has_gradient").any(),
        has_advantages=pl.col("__is_train").first(),
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
