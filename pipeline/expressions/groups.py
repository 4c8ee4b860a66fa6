"""Prompt groups of a batch: which rule finds them, and the group of every sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import keys

if TYPE_CHECKING:
    from schemas.settings import Settings

EXPLICIT, GROUP_INDEX, FIXED_FANOUT, WHOLE_BATCH = "explicit", "group_index", "fixed_fanout", "whole_batch"
BLOCK_SOURCES = (EXPLICIT, FIXED_FANOUT)
"""Rules that cut a batch into blocks, whose samples ought to be of one adapter."""


def facts() -> dict[str, pl.Expr]:
    """Return what the rules ask of a batch, from its stretches: aggregations."""
    return {
        "__explicit": pl.col("explicit_group").null_count() == 0,
        "__grouped": pl.col("group_index").null_count() == 0,
        "__size": pl.col("samples").sum(),
        "__first": pl.col("position").min(),
    }


def group_source(settings: Settings) -> pl.Expr:
    """Return the first rule that applies to the batch, from its facts."""
    return (
        pl.when("__explicit")
        .then(pl.lit(EXPLICIT))
        .when("__grouped")
        .then(pl.lit(GROUP_INDEX))
        .when(_has_fixed_fanout(settings))
        .then(pl.lit(FIXED_FANOUT))
        .otherwise(pl.lit(WHOLE_BATCH))
    )


def rule_value(settings: Settings) -> pl.Expr:
    """Return what equal samples of one group share under the batch's rule, before the adapter is added."""
    return (
        pl.when(pl.col("group_source") == EXPLICIT)
        .then(pl.col("explicit_group"))
        .when(pl.col("group_source") == GROUP_INDEX)
        .then(pl.col("group_index"))
        .when(pl.col("group_source") == FIXED_FANOUT)
        .then(pl.col("first_row") // (settings.n_samples_per_prompt or 1))
        .otherwise(pl.lit(0, pl.Int64))
    )


def ordinal(leader: str) -> pl.Expr:
    """Return the 0-based ordinal of a group in its batch by first row, from the position of its first sample."""
    begun = keys.leads(leader).cum_sum().cast(pl.Int64)
    # The first stretch of a batch begins a group.
    return begun.gather(leader) - begun.gather("__first")


def _has_fixed_fanout(settings: Settings) -> pl.Expr:
    if settings.n_samples_per_prompt is None or settings.rollout_batch_size is None:
        return pl.lit(value=False)
    return pl.col("__size") == settings.n_samples_per_prompt * settings.rollout_batch_size
