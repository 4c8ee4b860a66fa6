"""The key sets, each named once. Every window of the accounting runs over one of them.

Nulls are equal to nulls in a key: `over()` treats them so, and joins on a key must say `nulls_equal=True`.

Keys are nested: a batch holds adapters, an adapter prompt groups, a group rollouts. Each level is also a column
(`adapter`, `group`, `rollout`, `episode`, `bucket`): the position of the first row of that key, one integer that stands
for the whole key. A window over it costs a fraction of one over names and ids, and `position == key` picks one row of
each key. `batch` counts batches.
"""

from __future__ import annotations

from functools import cache

import polars as pl

BATCH = ("run", "split", "step")
"""One training or evaluation step of one run."""
ADAPTER = ("batch", "adapter_name", "adapter_slot")
"""One adapter in a batch; every adapter numbers its own data, so ids mean nothing without it."""
EPISODE_ROLLOUT = ("adapter", "kind", "id", "group_index")
"""One rollout, for episode metrics: within the sample's own group_index."""
PROMPT_GROUP = ("adapter", "group_rule")
"""One prompt group: what rewards are normalised over."""
ROLLOUT = ("group", "kind", "id")
"""One rollout, for normalisation: within the recovered prompt group."""
UNSCOPED_ROLLOUT = ("batch", "kind", "id", "group_index")
"""The faulty key without the adapter, kept to show what it would have said."""


# Expressions are values: the same ones for every chunk, and to build them takes a tenth of the time of using them.
@cache
def continues(keys: tuple[str, ...]) -> pl.Expr:
    """Whether a row shares `keys` with the one before it. One of them is never null, so the first row does not."""
    return pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in keys)


@cache
def batch() -> pl.Expr:
    """Return the number of the batch, from 1. Needs every batch's samples one after another."""
    return (~continues(BATCH)).cum_sum().cast(pl.Int64)


@cache
def leader(keys: tuple[str, ...]) -> pl.Expr:
    """Return the position of the first row that shares `keys`."""
    return pl.col("position").min().over(*keys)


@cache
def are_in_order(keys: tuple[str, ...]) -> pl.Expr:
    """Return whether rows come in the order of `keys`, nulls first: equal ones then lie one after another."""
    follows = pl.lit(value=True)
    for name in reversed(keys):
        value, before = pl.col(name), pl.col(name).shift(1)
        is_later = (value > before).fill_null(before.is_null() & value.is_not_null())
        follows = is_later | (value.eq_missing(before) & follows)
    return follows.slice(1).all()


@cache
def leader_in_order(keys: tuple[str, ...]) -> pl.Expr:
    """Return what `leader` does, of rows that come in the order of `keys`: no window, which costs by its groups."""
    return pl.when(~continues(keys)).then("position").forward_fill()


def flagged(key: str) -> pl.Expr:
    """Return a key of few values, known to be sorted if it is: rows are then grouped where they lie, not gathered."""
    return pl.col(key).map_batches(_flagged, return_dtype=pl.Int64)


def _flagged(key: pl.Series) -> pl.Series:
    return key.set_sorted() if key.is_sorted() else key


@cache
def leads(key: str) -> pl.Expr:
    """Return whether a row is the first of its `key`, a column made by `leader`."""
    return pl.col("position") == pl.col(key)
