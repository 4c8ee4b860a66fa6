"""Keys of rows that come in order are found without a window: they have to be those that a window finds."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.expressions import keys
from pipeline.expressions.catalogue.statistics import P95, Columns

KEY = ("adapter", "id", "group_index")
"""The first of them is a position, and never null, as of every key that is looked up this way."""
SCHEMA = dict.fromkeys(KEY, pl.Int64)
_IDS = st.sampled_from([None, -(2**63), -1, 0, 1, 2**63 - 1])


def numbered(rows: list[tuple[int, int | None, int | None]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return frame.with_row_index("position").with_columns(pl.col("position").cast(pl.Int64))


def is_in_order(frame: pl.DataFrame) -> Any:
    return frame.select(keys.are_in_order(KEY)).item()


@given(rows=st.lists(st.tuples(st.integers(0, 2), _IDS, _IDS), max_size=8), is_sorted=st.booleans())
def test_of_rows_in_order_both_ways_find_the_same_leaders(
    rows: list[tuple[int, int | None, int | None]], *, is_sorted: bool
) -> None:
    # Nulls first, as the order is defined.
    ordered = sorted(rows, key=lambda row: [(value is not None, value or 0) for value in row])
    frame = numbered(ordered if is_sorted else rows)

    assert is_in_order(frame) == (rows == ordered or is_sorted)
    if is_in_order(frame):
        assert frame.select(keys.leader_in_order(KEY)).equals(frame.select(keys.leader(KEY)))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 1, 0), (0, None, 0), (0, 1, 0)], id="a null after a value, and the value again"),
        pytest.param([(0, None, 0), (0, 1, 0), (0, None, 0)], id="a value after a null, and the null again"),
        pytest.param([(0, 1, 1), (0, 2, 0), (0, 1, 1)], id="a later id with an earlier group"),
        pytest.param([(1, 0, 0), (0, 0, 0)], id="an earlier adapter"),
    ],
)
def test_rows_out_of_order_are_not_taken_for_ordered_ones(rows: list[tuple[int, int | None, int | None]]) -> None:
    assert is_in_order(numbered(rows)) is False


@pytest.mark.parametrize("others", [1, 7, 370, 5_000])
def test_a_quantile_has_the_same_bits_whatever_takes_no_part_in_it(others: int) -> None:
    values = [(number * 7_919) % 6_007 for number in range(370)]
    alone = pl.DataFrame({"key": 0, "length": values})
    in_company = pl.DataFrame({"key": 0, "length": [*values, *[None] * others]})
    (quantile,) = (value for name, value in P95.aggregates(Columns("length")).items() if name.startswith("0.95"))

    found = [frame.group_by("key").agg(quantile.alias("p95")).item(0, "p95") for frame in (alone, in_company)]

    assert found[0] == found[1]
