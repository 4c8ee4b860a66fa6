"""Polars and the plain-Python reference agree on every table and column; the worked cases come out as worked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from pipeline.recomputing.chunk import canonical_batches, compute_frames
from pipeline.stages import samples
from schemas.canonical import CanonicalSample
from schemas.frames import empty_frame
from schemas.settings import Settings
from schemas.tables import PUBLISHED
from tests.accounting import accounted, accounted_frames, batch_read
from tests.case_checks import Case, disagreements
from tests.comparison import assert_tables_agree
from tests.reference import Dump, account_all
from tests.strategies import broken_dumps, dumps, runs, settings
from tests.worked_cases import CASES

if TYPE_CHECKING:
    from pipeline.stages.accounting import Engine

BEYOND_THE_REFERENCE = ("unknown_status", "unknown_estimator")
"""Warnings about words, which change no number."""
EVERY_METRIC: dict[str, Any] = {"metrics": None}
IN_MEMORY: Engine = "in-memory"
STREAMING: Engine = "streaming"


@given(dumps=runs(extras=True), chosen=settings())
def test_every_table_agrees_with_the_reference(dumps: list[Dump], chosen: dict[str, Any]) -> None:
    actual = accounted(dumps, chosen)
    actual["findings"] = [row for row in actual["findings"] if row["code"] not in BEYOND_THE_REFERENCE]

    expected = account_all(dumps, chosen)

    assert_tables_agree(actual, expected)


@hypothesis_settings(max_examples=200)
@given(broken=broken_dumps())
def test_a_broken_batch_is_refused_for_the_right_field(broken: tuple[Dump, str]) -> None:
    dump, field = broken

    tables = accounted([dump], {})

    assert tables["batches"] == []
    assert tables["samples"] == []
    named = [row["field"].split(".") for row in tables["findings"] if row["severity"] == "error"]
    assert any(field in path for path in named)


@hypothesis_settings(max_examples=200)
@given(dumps=runs(max_batches=3, extras=True), chosen=settings())
def test_both_engines_give_the_same_bits(dumps: list[Dump], chosen: dict[str, Any]) -> None:
    in_memory = accounted_frames(dumps, chosen, IN_MEMORY)

    streaming = accounted_frames(dumps, chosen, STREAMING)

    for name, frame in in_memory.items():
        assert_frame_equal(frame, streaming[name], check_exact=True)


@hypothesis_settings(max_examples=50)
@given(dumps=runs(max_batches=4), chosen=settings(), data=st.data())
def test_a_batch_does_not_depend_on_its_company(dumps: list[Dump], chosen: dict[str, Any], data: st.DataObject) -> None:
    together = accounted_frames(data.draw(st.permutations(dumps)), chosen)

    alone = [accounted_frames([dump], chosen) for dump in dumps]

    for name, frame in together.items():
        if name != "findings":
            apart = pl.concat([tables[name] for tables in alone]).sort(frame.columns[:4])
            assert_frame_equal(frame.sort(frame.columns[:4]), apart, check_exact=True, check_row_order=False)


@hypothesis_settings(max_examples=30)
@given(dumps=runs(max_batches=3, extras=True), chosen=settings())
def test_alike_samples_that_count_several_times_give_the_bits_of_each_by_itself(
    dumps: list[Dump], chosen: dict[str, Any]
) -> None:
    together = accounted_frames(dumps, chosen | EVERY_METRIC)

    # With the row among what has to be alike, every sample is a stretch of its own.
    with patch.object(samples, "ALIKE", (*samples.ALIKE, "row")):
        apart = accounted_frames(dumps, chosen | EVERY_METRIC)

    for name, frame in together.items():
        assert_frame_equal(frame, apart[name], check_exact=True, check_row_order=name != "rollouts")


@hypothesis_settings(max_examples=30)
@given(dumps=runs(max_batches=3, extras=True), chosen=settings(), seed=st.integers(0, 9))
def test_samples_in_any_order_give_the_same_tables(dumps: list[Dump], chosen: dict[str, Any], seed: int) -> None:
    read = [batch_read(dump) for dump in dumps]
    chunk = [batch for batch in read if not batch.refused]
    canonical = pl.concat([batch.samples for batch in chunk] or [empty_frame(CanonicalSample)])
    batches = canonical_batches(chunk)

    def tables(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
        return compute_frames(frame, batches, Settings(**chosen), IN_MEMORY).tables

    expected, shuffled = tables(canonical), tables(canonical.sample(fraction=1, shuffle=True, seed=seed))

    for table in PUBLISHED:
        if table.relation in expected:
            grain = list(table.grain)
            sides = (side[table.relation].sort(grain, nulls_last=True) for side in (expected, shuffled))
            assert_frame_equal(*sides, check_exact=True)


@given(dump=dumps(max_samples=200))
@hypothesis_settings(max_examples=10)
def test_larger_batches_agree_with_the_reference(dump: Dump) -> None:
    actual = accounted([dump], {})
    actual["findings"] = []

    expected = account_all([dump], {}) | {"findings": []}

    assert_tables_agree(actual, expected)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_worked_case(case: Case) -> None:
    tables = accounted([dump for dump, _ in case.batches], case.settings)

    found = [line for dump, expected in case.batches for line in disagreements(tables, dump, expected)]

    assert found == []
