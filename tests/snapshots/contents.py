"""Contents made of plain rows, for comparisons without a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.snapshots.content import TABLES, Content, TableContent, kept_schema
from schemas.snapshot import Versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLACE = {"run": "A", "split": "train", "step": 7}


def content(title: str = "old", schema: int = 1, **tables: pl.DataFrame) -> Content:
    made = {name: TableContent(TABLES[name], frame.schema, (frame.lazy(),)) for name, frame in tables.items()}
    return Content(title, (Versions(schema=schema),), {}, made)


def metrics(values: Mapping[str, tuple[float | None, int]], **place: Any) -> pl.DataFrame:
    """One row a metric of one batch: value and count."""
    fixed = {**PLACE, "scope": "batch", "adapter_name": None, "adapter_slot": None, **place}
    rows = [{**fixed, "metric": name, "value": value, "count": count} for name, (value, count) in values.items()]
    return pl.DataFrame(rows, schema=kept_schema(TABLES["metrics"]))


def rollouts(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rollouts of one sample each; a row gives what is special about it."""
    fixed: dict[str, Any] = {**PLACE, "adapter_name": "a", "adapter_slot": 0, "kind": "rollout", "samples": 1}
    fixed |= {"scored_samples": 1, "mainstream_tokens": 1, "siblings_differ": False, "mainstream_truncated": False}
    full = [{**fixed, "group_index": row.get("prompt_group"), "mainstream_row": row["id"], **row} for row in rows]
    return pl.DataFrame(full, schema=kept_schema(TABLES["rollouts"]))


def groups_of(rewards: Sequence[float], advantages: Sequence[float], groups: int = 1) -> list[dict[str, Any]]:
    """The same group several times over."""
    size = len(rewards)
    return [
        {
            "id": group * size + place,
            "prompt_group": group,
            "raw_reward": reward,
            "mainstream_reward": reward,
            "reward_min": reward,
            "reward_max": reward,
            "advantage": advantage,
        }
        for group in range(groups)
        for place, (reward, advantage) in enumerate(zip(rewards, advantages, strict=True))
    ]
