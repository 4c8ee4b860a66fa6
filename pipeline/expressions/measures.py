"""Measures of a sample: what the metrics average, one column each, null where a sample takes no part.

The SQL view `measures_of_sample` has the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import sums
from pipeline.expressions.catalogue.labels import labelled
from schemas.canonical import REWARD_STATES

if TYPE_CHECKING:
    from schemas.settings import Settings

KNOWN_STATUSES = ("pending", "completed", "truncated", "aborted", "failed")
"""Statuses that trainers write; another one counts as none of them."""
MAX_STEP = 2**40
"""Beyond it, either way, a step is no number to subtract a policy version from."""


def of_sample(settings: Settings) -> dict[str, pl.Expr]:
    """Return the measures of a sample by name, the signal apart."""
    passes = pl.col("reward") >= settings.pass_threshold
    status = pl.col("status")
    has_advantage = pl.when(pl.col("advantage").is_not_null())
    is_near_step = pl.col("step").is_between(-MAX_STEP, MAX_STEP)
    return {
        "has_status": status,
        "is_correct": passes,
        "is_incorrect": ~passes,
        "is_truncated": status == "truncated",
        "is_aborted": status == "aborted",
        "is_failed": status == "failed",
        "is_of_unknown_status": ~status.is_in(KNOWN_STATUSES),
        "is_not_aborted": status.ne_missing("aborted"),
        "is_removed": pl.col("remove_sample"),
        "is_trained": pl.col("trainable_tokens") > 0,
        **{f"reward_is_{state}": pl.col("reward_state") == state for state in REWARD_STATES[1:]},
        "version_span": pl.col("version_newest") - pl.col("version_oldest"),
        "staleness": pl.when(is_near_step).then(pl.col("step") - pl.col("version_oldest")),
        "is_of_mixed_versions": pl.col("versions_seen").fill_null(0) > 1,
        "has_version": pl.col("version_oldest").is_not_null(),
        "abs_advantage": pl.col("advantage").abs(),
        "has_no_signal": has_advantage.then(pl.col("advantage") == 0),
        "signal_tokens": has_advantage.then("trainable_tokens"),
        "category": _category(settings),
    }


def with_signal(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Add `signal`: |advantage| x trainable tokens, in units of 2^signal_unit, which is the batch's.

    `batch_signal` holds the same, to be added over the batch; `batch_has_signal` is null in a batch that has none.
    """
    # Without tokens nothing is carried, and such an advantage must not set the unit, in which others might vanish.
    carried = pl.when(pl.col("trainable_tokens") > 0).then("abs_advantage").otherwise(pl.col("abs_advantage") * 0.0)
    frame = frame.with_columns(carried=carried)
    frame = frame.with_columns(signal_unit=sums.exponent(pl.col("carried").max().over("batch"))).with_columns(
        signal=sums.scaled(pl.col("carried"), pl.col("signal_unit")) * pl.col("trainable_tokens")
    )
    return frame.with_columns(
        batch_signal="signal",
        batch_has_signal=pl.when((pl.col("signal") > 0).any().over("batch")).then(pl.lit(value=True)),
    )


def _category(settings: Settings) -> pl.Expr:
    """Return the sample's entry of `log_reward_category`, as text; null where the setting or the entry is not there."""
    if settings.log_reward_category is None:
        return pl.lit(None, pl.String)
    found = pl.col("reward_parts").list.filter(pl.element().struct.field("key") == settings.log_reward_category)
    part = found.list.first()
    return pl.coalesce(part.struct.field("text"), labelled(part.struct.field("value")))
