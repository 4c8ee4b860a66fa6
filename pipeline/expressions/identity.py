"""Identity of a rollout: what kind of id a sample has, and which."""

from __future__ import annotations

import polars as pl

from schemas.frames import polars_type
from schemas.tables import Kind

KINDS = polars_type(Kind)


def kind() -> pl.Expr:
    """Return `rollout` where rollout_id is set, else `sample` where the index is, else `position`."""
    return (
        pl.when(pl.col("rollout_id").is_not_null())
        .then(pl.lit("rollout", KINDS))
        .when(pl.col("sample_index").is_not_null())
        .then(pl.lit("sample", KINDS))
        .otherwise(pl.lit("position", KINDS))
    )


def identifier() -> pl.Expr:
    """Return the id of that kind: rollout_id, else the sample's index, else its row."""
    return pl.coalesce("rollout_id", "sample_index", "row")


def trainable_tokens() -> pl.Expr:
    """Return the tokens that reach the loss: 0 if removed, else the mask's sum, else response_length.

    The order matters: dumps hold the mask from before the trainer zeroes it for a removed sample.
    """
    return pl.when(pl.col("remove_sample")).then(pl.lit(0, pl.Int64)).otherwise(unmasked_tokens())


def unmasked_tokens() -> pl.Expr:
    """Return the mask's sum, else response_length: what a trainer calls the effective response length."""
    return pl.coalesce("mask_tokens", "response_length")
