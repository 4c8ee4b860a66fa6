"""Whether two contestants have made the same tables: row by row, a range of steps at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.audit.query import sql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOLERANCE = 1e-9
_STEPS_AT_ONCE = 256
_ROLLOUT = "samples scored_samples raw_reward mainstream_row mainstream_reward mainstream_tokens mainstream_truncated"
_WEIGHTS = "weight_by_rows weight_unscoped weight_scoped weight_macro"
COMPARED = {
    "samples": ("step row", "id prompt_group trainable_tokens is_mainstream advantage row_advantage reward_state"),
    "rollouts": (
        "step adapter_name adapter_slot kind id prompt_group",
        f"{_ROLLOUT} reward_min reward_max siblings_differ advantage",
    ),
    "prompt_groups": (
        "step adapter_name adapter_slot prompt_group",
        "rollouts scored_rollouts samples reward_mean reward_std reward_min reward_max is_constant",
    ),
    "adapters": (
        "step adapter_name adapter_slot",
        f"samples rollouts scored_rollouts trainable_tokens episode_raw_reward {_WEIGHTS}",
    ),
    "metrics": ("step scope adapter_name adapter_slot metric", "value count"),
}
"""Of every table its key and what is compared."""


class Ledger:
    """What we have published."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def table(self, name: str, columns: list[str], first: int, last: int) -> pl.DataFrame:
        """Return some columns of some steps."""
        text = f"SELECT {', '.join(columns)} FROM {name} WHERE step BETWEEN {first} AND {last}"
        return sql(text, self._path, timeout=600)


class Files:
    """What a peer has written: DIRECTORY/part-*/TABLE.parquet."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def table(self, name: str, columns: list[str], first: int, last: int) -> pl.DataFrame:
        """Return some columns of some steps."""
        scanned = [pl.scan_parquet(path) for path in sorted(self._path.glob(f"part-*/{name}.parquet"))]
        wanted = [frame.select(columns).filter(pl.col("step").is_between(first, last)) for frame in scanned]
        return pl.concat(wanted, how="vertical_relaxed").collect()


def differences(ours: Ledger | Files, peer: Ledger | Files, steps: int) -> Iterator[str]:
    """Yield every column in which they differ, of the first `steps` steps."""
    for name, names in COMPARED.items():
        key, columns = (text.split() for text in names)
        for first in range(0, steps, _STEPS_AT_ONCE):
            last = min(first + _STEPS_AT_ONCE, steps) - 1
            one, other = (side.table(name, [*key, *columns], first, last) for side in (ours, peer))
            found = list(_between(name, _normal(one, key), _normal(other, key), key, columns))
            yield from found
            if found:
                break


def _normal(frame: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Return the frame in one order, of types in which equal values are equal; NaN is what pandas writes for null."""
    texts = [pl.col(name).cast(pl.String) for name, kind in frame.schema.items() if kind in (pl.Categorical, pl.Enum)]
    numbers = pl.selectors.numeric().cast(pl.Float64).fill_nan(None)
    return frame.with_columns(texts).with_columns(numbers).sort(key, nulls_last=True)


def _between(name: str, one: pl.DataFrame, other: pl.DataFrame, key: list[str], columns: list[str]) -> Iterator[str]:
    if one.height != other.height:
        yield f"{name}: {one.height:,} rows against {other.height:,}"
        return
    for column in (*key, *columns):
        a, b = one[column], other[column]
        differs = a.ne_missing(b)
        if a.dtype == pl.Float64:
            near = (a - b).abs() <= TOLERANCE * a.abs().clip(1.0)
            differs &= ~near.fill_null(value=False)
        if differs.any():
            place = differs.arg_true()[0]
            at = ", ".join(f"{part} {one[part][place]}" for part in key)
            yield f"{name}.{column}: {differs.sum():,} rows differ; first at {at}: {a[place]!r} against {b[place]!r}"
