"""The comparison that the parity tests rest on finds what it should, and forgives rounding only."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from tests.comparison import assert_tables_agree, differences
from tests.reference import Dump, Tables, account
from tests.strategies import dumps
from tests.worked_cases import sample, train

ORDINARY = train(sample(1.0, r=0), sample(0.25, r=1), sample(0.5, r=1), sample(None, r=2), sample(0.7, r=0, g=1))


def changed(relation: str, row: int, column: str, value: object) -> Tables:
    tables = copy.deepcopy(account(ORDINARY, {}))
    tables[relation][row][column] = value
    return tables


@hypothesis_settings(max_examples=100, deadline=None)
@given(dumps())
def test_tables_agree_with_themselves_in_any_order(dump: Dump) -> None:
    tables = account(dump, {})
    reversed_rows = {name: rows[::-1] for name, rows in tables.items()}

    assert_tables_agree(reversed_rows, tables)


def test_further_columns_are_allowed() -> None:
    assert differences(changed("batches", 0, "source", "0.pt"), account(ORDINARY, {})) == []


@pytest.mark.parametrize(
    ("relation", "row", "column", "value"),
    [
        ("samples", 0, "advantage", 0.7071),
        ("samples", 0, "advantage", None),
        ("samples", 0, "advantage", math.nan),
        ("samples", 0, "advantage", math.inf),
        ("samples", 3, "advantage", 0.0),
        ("samples", 4, "advantage", 1e-17),
        ("samples", 0, "reward", 1.0 + 2**-52),
        ("samples", 0, "reward", 1),
        ("samples", 0, "is_mainstream", 1),
        ("samples", 0, "group_index", 0.0),
        ("samples", 0, "adapter_name", ""),
        ("rollouts", 0, "samples", 2),
        ("rollouts", 1, "raw_reward", 0.375 + 1e-9),
        ("prompt_groups", 0, "reward_std", 0.5303),
        ("adapters", 0, "weight_scoped", 0.999999),
        ("metrics", 0, "value", 0.5),
        ("batches", 0, "group_source", "explicit"),
    ],
)
def test_a_changed_cell_is_named(relation: str, row: int, column: str, value: object) -> None:
    (problem,) = differences(changed(relation, row, column, value), account(ORDINARY, {}))

    assert problem.startswith(relation)
    assert column in problem
    assert repr(value) in problem


@pytest.mark.parametrize("relation", ["samples", "rollouts", "prompt_groups", "adapters", "metrics", "batches"])
def test_missing_unexpected_and_repeated_rows_are_named(relation: str) -> None:
    tables = account(ORDINARY, {})
    fewer = {**tables, relation: tables[relation][1:]}
    repeated = {**tables, relation: [*tables[relation], tables[relation][0]]}

    assert ["missing" in line for line in differences(fewer, tables)] == [True]
    assert ["unexpected" in line for line in differences(tables, fewer)] == [True]
    assert ["2 rows" in line for line in differences(repeated, tables)] == [True]


def test_a_missing_relation_and_column_are_named() -> None:
    tables = account(ORDINARY, {})
    no_metrics = {name: rows for name, rows in tables.items() if name != "metrics"}
    no_format = {**tables, "batches": [{**tables["batches"][0], "format": "pt"}]}

    assert differences(no_metrics, tables) == ["metrics: the relation is missing"]
    assert "format is missing" in differences(tables, no_format)[0]


def test_findings_are_counted() -> None:
    tables = account(train(sample(0, r=0, raw=1), sample(0, r=1)), {})
    silent: dict[str, list[dict[str, Any]]] = {**tables, "findings": []}

    assert "missing" in differences(silent, tables)[0]
    assert "unexpected" in differences(tables, silent)[0]


def test_rounding_is_forgiven_at_the_size_of_the_rewards_only() -> None:
    tables = account(train(sample(1e16, r=0), sample(1e16 + 2, r=1), sample(1.0, r=2, g=1), sample(2.0, r=3, g=1)), {})
    rounded_mean, small_group = copy.deepcopy(tables), copy.deepcopy(tables)
    # What float64 gives with the mean rounded to 1e16, and a fault in the group beside it.
    rounded_mean["samples"][0]["advantage"], rounded_mean["samples"][1]["advantage"] = 0.0, 1.4142125623746548
    small_group["samples"][2]["advantage"] += 1e-6

    assert differences(rounded_mean, tables) == []
    assert len(differences(small_group, tables)) == 1


def test_a_long_list_is_cut() -> None:
    tables = account(train(*(sample(float(row), r=row) for row in range(50))), {})
    shifted = {**tables, "samples": [{**row, "advantage": row["advantage"] + 1} for row in tables["samples"]]}

    with pytest.raises(AssertionError, match="50 differences") as failure:
        assert_tables_agree(shifted, tables)

    assert "and 30 more" in str(failure.value)
