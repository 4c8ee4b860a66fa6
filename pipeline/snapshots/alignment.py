"""Which row of one side is which of the other: by key, nulls equal to nulls, whatever the order."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

_LEFT, _RIGHT, _OCCURRENCE = "__left", "__right", "__occurrence"


@dataclass(frozen=True)
class Alignment:
    """Positions of the rows that both sides have, pairwise, and of those that one side has alone.

    `old` and `new` are null where all rows of both sides pair up in the order in which they stand.
    """

    pairs: int
    old: pl.Series | None
    new: pl.Series | None
    missing: pl.Series
    added: pl.Series
    repeated: int


def aligned(old: pl.DataFrame, new: pl.DataFrame) -> Alignment:
    """Return how the rows of two frames of keys pair up.

    A key that occurs several times pairs its n-th occurrence with the n-th of the other side; such rows are counted.
    """
    nothing = pl.Series(dtype=pl.UInt32)
    if old.equals(new, null_equal=True):
        return Alignment(old.height, None, None, nothing, nothing, 0)
    left, right = _coded(old, new)
    joined = _joined(left, right)
    if any(joined[side].drop_nulls().n_unique() < joined[side].count() for side in (_LEFT, _RIGHT)):
        left, right = _numbered(left), _numbered(right)
        joined = _joined(left, right)
    both = joined.drop_nulls().sort(_LEFT)
    return Alignment(
        pairs=both.height,
        old=both[_LEFT],
        new=both[_RIGHT],
        missing=joined.filter(pl.col(_RIGHT).is_null())[_LEFT].sort(),
        added=(added := joined.filter(pl.col(_LEFT).is_null())[_RIGHT].sort()),
        repeated=_repeated(right, added),
    )


def _coded(old: pl.DataFrame, new: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the keys in small numbers: texts by their code, columns of one value on both sides left out."""
    coded: list[list[pl.Series]] = [[], []]
    for place, name in enumerate(old.columns, 1):
        sides = [old[name], new[name]]
        values = pl.concat([side.unique() for side in sides]).unique()
        is_last_chance = place == len(old.columns) and not coded[0]
        if len(values) == 1 and not is_last_chance:
            continue
        if values.dtype == pl.String():
            codes = pl.Enum(values.drop_nulls())
            sides = [side.cast(codes).to_physical() for side in sides]
        for columns, side in zip(coded, sides, strict=True):
            columns.append(side)
    return pl.DataFrame(coded[0]), pl.DataFrame(coded[1])


def _joined(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    sides = left.with_row_index(_LEFT), right.with_row_index(_RIGHT)
    joined = sides[0].join(sides[1], on=left.columns, how="full", nulls_equal=True, coalesce=False)
    return joined.select(_LEFT, _RIGHT)


def _numbered(keys: pl.DataFrame) -> pl.DataFrame:
    return keys.with_columns(pl.int_range(pl.len(), dtype=pl.UInt32).over(keys.columns).alias(_OCCURRENCE))


def _repeated(keys: pl.DataFrame, added: pl.Series) -> int:
    """Return how many rows have the key of an earlier one. Without numbers, that can only be rows that are new."""
    if _OCCURRENCE in keys.columns:
        return int((keys[_OCCURRENCE] > 0).sum())
    return len(added) - keys[added].n_unique()
