"""The key sets, each named once. Every window of the accounting runs over one of them.

Nulls are equal to nulls in a key: `over()` treats them so, and joins on a key must say `nulls_equal=True`.
"""

from __future__ import annotations

import polars as pl

BATCH = ("run", "split", "step")
"""One training or evaluation step of one run."""
ADAPTER = (*BATCH, "adapter_name", "adapter_slot")
"""One adapter in a batch; every adapter numbers its own data, so ids mean nothing without it."""
EPISODE_ROLLOUT = (*ADAPTER, "kind", "id", "group_index")
"""One rollout, for episode metrics: within the sample's own group_index."""
PROMPT_GROUP = (*ADAPTER, "prompt_group")
"""One prompt group: what rewards are normalised over."""
ROLLOUT = (*ADAPTER, "kind", "id", "prompt_group")
"""One rollout, for normalisation: within the recovered prompt group."""
UNSCOPED_ROLLOUT = (*BATCH, "kind", "id", "group_index")
"""The faulty key without the adapter, kept to show what it would have said."""


def leader(keys: tuple[str, ...]) -> pl.Expr:
    """Return the position of the first sample that shares `keys`: one integer that stands for the whole key.

    Needs the column `position` (0-based, ascending by batch and row). Windows over the result cost a fraction of
    windows over the wide key, and `position == leader` picks one sample for each key.
    """
    return pl.col("position").min().over(*keys)


def leads(key: str) -> pl.Expr:
    """Return whether a sample is the first of its `key`, a column made by `leader`."""
    return pl.col("position") == pl.col(key)
