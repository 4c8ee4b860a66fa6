"""Polars and the plain-Python reference agree on every metric, and on those that a batch or adapter cannot have."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from pipeline.expressions.catalogue import METRICS, record_of
from tests.accounting import accounted, accounted_frames
from tests.catalogue_cases import EDGES, EVERYTHING, EVERYTHING_CHOSEN, Edge
from tests.comparison import assert_tables_agree
from tests.metric_reference import FAMILIES, account_catalogue
from tests.metric_reference.held import scopes_of
from tests.reference import DEFAULTS, Dump, account
from tests.strategies import runs, settings
from tests.worked_cases import sample, train

if TYPE_CHECKING:
    from pipeline.stages.accounting import Engine

DEFAULT = hypothesis_settings.default or hypothesis_settings()
FEWER = hypothesis_settings(max_examples=max(DEFAULT.max_examples // 3, 20))
"""A batch of the whole catalogue takes several times as long as its accounting alone."""
A_FEW = hypothesis_settings(max_examples=max(DEFAULT.max_examples // 10, 10))
ALL: dict[str, Any] = {"metrics": None}
IN_MEMORY: Engine = "in-memory"
STREAMING: Engine = "streaming"
COMPARED = ("samples", "metrics", "absent_metrics")
FAR_STEPS = [2**40, 2**40 + 1, -(2**40), -(2**40) - 1, 2**63 - 1, -(2**63)]
CATEGORIES: list[Any] = ["timeout", 1, None, 0.15, "1.0", "none", [1], -0.04, 1e15, "t" * 201, math.nan, 2.5e-300, True]
OPENED: list[dict[str, Any]] = [
    {"reward_key": "acc", "log_reward_category": "format"},
    {"reward_weights": {"acc": 0.5, "format": 0.0}, "log_reward_category": "format", "pass_threshold": 0.5},
    {"reward_key": "acc", "grpo_std_normalization": False, "log_reward_category": "acc", "pass_threshold": 0.3},
    {"reward_key": "acc", "advantage_estimator": "ppo", "log_reward_category": "format", "n_samples_per_prompt": 2},
]
PATTERNS = ["accounting", "rewards", "versions", "lengths", "pass@*", "*_ratio", "weight_version/mean", "zero_std/*"]


def assert_metrics_agree(dumps: list[Dump], chosen: dict[str, Any], engine: Engine = IN_MEMORY) -> None:
    actual = accounted(dumps, chosen, engine)

    expected = account_catalogue(dumps, chosen, actual["samples"])
    assert_tables_agree(actual, {relation: expected[relation] for relation in COMPARED})
    assert all(row["reason"] for row in actual["absent_metrics"])


def eventful(dumps: list[Dump]) -> list[Dump]:
    """The same with what is drawn too seldom: dictionary rewards with a category, and votes of removed samples."""
    for dump in dumps:
        for row, one in enumerate(dump.samples):
            category = CATEGORIES[row % len(CATEGORIES)]
            one["reward"] = {"acc": one["reward"], **({} if category == "none" else {"format": category})}
            one["remove_sample"] = row % 3 == 1
    return dumps


def test_every_record_has_a_twin_and_no_other() -> None:
    dump = train(sample(1.0))
    whole, adapter = scopes_of(dump, account(dump, {})["samples"], DEFAULTS)
    twins = {
        (family, name, held.scope)
        for family, twins in FAMILIES.items()
        for held in (whole, adapter)
        for name in twins(held)
    }

    records = {(m.family, m.name, scope) for m in METRICS for scope in m.scopes if m.family != "accounting"}

    assert twins == records


@FEWER
@given(dumps=runs(extras=True), chosen=settings())
def test_every_metric_agrees_with_the_reference(dumps: list[Dump], chosen: dict[str, Any]) -> None:
    assert_metrics_agree(dumps, {**ALL, **chosen})


@FEWER
@given(dumps=runs(extras=True, tame=True, labels=True), chosen=settings())
def test_every_metric_of_everyday_numbers_agrees_with_the_reference(dumps: list[Dump], chosen: dict[str, Any]) -> None:
    assert_metrics_agree(dumps, {**ALL, **chosen})


@FEWER
@given(dumps=runs(extras=True).map(eventful), chosen=st.sampled_from(OPENED))
def test_dictionaries_and_removed_votes_agree_with_the_reference(dumps: list[Dump], chosen: dict[str, Any]) -> None:
    assert_metrics_agree(dumps, {**ALL, **chosen})


@pytest.mark.parametrize("case", EDGES, ids=lambda case: case.id)
def test_edge(case: Edge) -> None:
    assert_metrics_agree(case.dumps, {**ALL, **case.settings})


def test_one_batch_has_every_metric() -> None:
    tables = accounted([EVERYTHING], {**ALL, **EVERYTHING_CHOSEN})

    names = {record_of(row["metric"]) for row in tables["metrics"]}
    assert names == set(METRICS)
    assert [row for row in tables["absent_metrics"] if row["scope"] == "batch"] == []
    assert [row for row in tables["metrics"] if row["scope"] == "batch" and row["value"] is None] == []


@A_FEW
@given(dumps=runs(max_batches=3, extras=True), chosen=settings())
def test_both_engines_give_the_same_bits(dumps: list[Dump], chosen: dict[str, Any]) -> None:
    in_memory, streaming = (accounted_frames(dumps, {**ALL, **chosen}, engine) for engine in (IN_MEMORY, STREAMING))

    for name in ("metrics", "absent_metrics"):
        assert_frame_equal(in_memory[name], streaming[name], check_exact=True)


@A_FEW
@given(dumps=runs(max_batches=4, extras=True), chosen=settings(), data=st.data())
def test_metrics_do_not_depend_on_company(dumps: list[Dump], chosen: dict[str, Any], data: st.DataObject) -> None:
    together = accounted_frames(data.draw(st.permutations(dumps)), {**ALL, **chosen})

    alone = [accounted_frames([dump], {**ALL, **chosen}) for dump in dumps]

    for name in ("metrics", "absent_metrics"):
        apart = pl.concat([tables[name] for tables in alone])
        assert_frame_equal(together[name], apart, check_exact=True, check_row_order=False)


@pytest.mark.parametrize(
    "pattern", ["group_size/*", "removed_ratio", "pass@*", "signal_share", "unscored/*", "reward/*"]
)
def test_any_metric_can_be_had_alone(pattern: str) -> None:
    assert_metrics_agree([EVERYTHING], {**EVERYTHING_CHOSEN, "metrics": [pattern]})


@A_FEW
@given(dumps=runs(max_batches=2, extras=True), patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3))
def test_a_selection_is_that_part_of_all_metrics(dumps: list[Dump], patterns: list[str]) -> None:
    assert_metrics_agree(dumps, {"metrics": patterns})


@hypothesis_settings(max_examples=10)
@given(dumps=runs(max_batches=1, extras=True), step=st.sampled_from(FAR_STEPS))
def test_steps_too_far_off_have_no_staleness(dumps: list[Dump], step: int) -> None:
    assert_metrics_agree([replace(dump, step=step) for dump in dumps], {"metrics": ["versions"]})
