"""Public reports about comparing figures, by their numbers."""

from __future__ import annotations

import math

import polars as pl
import pytest

from pipeline.snapshots.compare import Rules, compare
from pipeline.snapshots.report import render
from pipeline.snapshots.tolerance import tolerances
from tests.snapshots.contents import content, groups_of, metrics, rollouts

ONE = "episode_raw_reward"


def verdict(old: pl.DataFrame, new: pl.DataFrame, rules: Rules | None = None) -> str:
    return compare(content(metrics=old), content(metrics=new), rules).verdict


# --- 63: last digits, nested values, non-numbers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (0.6, 0.6000000000000001, "pass"),
        (0.3, 0.3 + 1e-12, "pass"),
        (0.0, 1e-17, "pass"),
        (0.6, 0.600001, "fail"),
        (None, None, "pass"),
        (math.nan, math.nan, "pass"),
        (math.inf, math.inf, "pass"),
        (math.inf, -math.inf, "fail"),
        (None, math.nan, "fail"),
        (math.nan, None, "fail"),
        (0.0, None, "fail"),
        (None, 0.0, "fail"),
        (0.5, math.nan, "fail"),
        (math.inf, 1.7e308, "fail"),
        (1e308, -1e308, "fail"),
    ],
)
def test_case_63_values_and_their_states(old: float | None, new: float | None, expected: str) -> None:
    assert verdict(metrics({ONE: (old, 2)}), metrics({ONE: (new, 2)})) == expected


def test_case_63_a_relative_tolerance_alone_fails_at_0() -> None:
    rules = Rules(tolerances([f"{ONE}=0,1e-9"]))

    assert verdict(metrics({ONE: (0.0, 2)}), metrics({ONE: (1e-17, 2)}), rules) == "fail"


def test_case_63_an_integer_that_became_the_equal_float_is_reported_and_fails_only_if_strict() -> None:
    old, new = metrics({ONE: (0.5, 2)}), metrics({ONE: (0.5, 2)}).cast({"count": pl.Float64})

    told = compare(content(metrics=old), content(metrics=new))

    assert told.verdict == "pass"
    assert told.notes == ("column metrics.count was int and is float; its values were compared",)
    assert verdict(old, new, Rules(strict=True)) == "fail"
    assert verdict(old, new.with_columns(count=pl.col("count") + 0.5)) == "fail"


def test_case_63_another_type_is_a_difference() -> None:
    old, new = metrics({ONE: (0.5, 2)}), metrics({ONE: (0.5, 2)}).cast({"count": pl.String})

    told = compare(content(metrics=old), content(metrics=new))

    assert told.verdict == "fail"
    assert "column metrics.count: was int, is str" in render(told)


def test_case_63_the_order_of_rows_does_not_count() -> None:
    old = metrics({name: (float(place), 1) for place, name in enumerate("abc")})

    assert verdict(old, old.reverse()) == "pass"


# --- 64: NaN, vanished or collapsed metrics ---------------------------------------------------------------------------


def test_case_64_nan_a_vanished_metric_and_a_collapsed_count_each_fail() -> None:
    old = metrics({ONE: (0.5, 64), "pass@1": (0.4, 64)})
    new = metrics({ONE: (math.nan, 2)})

    told = compare(content(metrics=old), content(metrics=new))

    assert told.verdict == "fail"
    moved = {one.metric: one for one in told.moved if one.differing}
    assert set(moved) == {ONE, f"{ONE}.count"}
    assert moved[ONE].states == {"number -> NaN": 1}
    (count,) = moved[f"{ONE}.count"].worst
    assert (count.old, count.new, count.difference, count.ratio) == (64, 2, -62, 2 / 64)
    (gone,) = (rows for rows in told.rows if rows.missing)
    assert (gone.metric, gone.missing) == ("pass@1", 1)
    assert told.size == 3


@pytest.mark.parametrize("direction", [1, -1])
def test_case_64_both_sides_of_the_tolerance_fail(direction: int) -> None:
    rules = Rules(tolerances([f"{ONE}=0.01,0"]))

    assert verdict(metrics({ONE: (0.5, 64)}), metrics({ONE: (0.5 + direction * 0.009, 64)}), rules) == "pass"
    assert verdict(metrics({ONE: (0.5, 64)}), metrics({ONE: (0.5 + direction * 0.485, 64)}), rules) == "fail"


def test_case_64_no_tolerance_lets_nan_or_a_missing_metric_pass() -> None:
    rules = Rules(tolerances(["*=1e9,0.4"]))

    assert verdict(metrics({ONE: (0.5, 64)}), metrics({ONE: (math.nan, 64)}), rules) == "fail"
    assert verdict(metrics({ONE: (0.5, 64), "pass@1": (0.4, 64)}), metrics({ONE: (0.5, 64)}), rules) == "fail"
    assert verdict(metrics({ONE: (0.5, 64)}), metrics({ONE: (0.5, 63)}), rules) == "fail"


# --- 66: an unreadable diff -------------------------------------------------------------------------------------------

KEY = "run=A split=train step=7 adapter=a#0 rollout=12 prompt_group=6"
DDOF = "looks like ddof, the standard deviation divided by n (ddof 0) instead of n - 1"
FAULTY = 1 / (0.5 + 1e-6) / 2
RIGHT = 0.5 / (math.sqrt(0.5) + 1e-6)


def test_case_66_one_changed_one_added_and_the_order_of_rows() -> None:
    old = rollouts(groups_of([1.0, 0.0], [RIGHT, -RIGHT], groups=500))
    extra = rollouts([{"id": 5_000, "prompt_group": 999, "advantage": 0.0}])
    changed = pl.when(pl.col("id") == 12).then(FAULTY).otherwise("advantage")
    new = pl.concat([old, extra]).with_columns(advantage=changed).sample(fraction=1, shuffle=True, seed=1)

    told = compare(content(rollouts=old), content("new", rollouts=new))

    assert told.differing == 1
    assert (told.new_rows, told.missing_rows) == (1, 0)
    headline, header, *lines = render(told).splitlines()
    assert headline == "FAIL  old against new: 1 of 12,000 values differ in 1 metric, 1 row new"
    assert header.split() == ["table", "metric", "differ", "largest", "at", "old", "new", "difference", "ratio"]
    assert lines == [
        f"rollouts  advantage  1 of 1,000  {KEY}  0.707106  0.999998   +0.292892  1.414213",
        "new: rollouts, 1 of 1,001 rows: run=A split=train step=7 adapter=a#0 rollout=5000 prompt_group=999",
        f"hint: rollouts.advantage: ratio 1.414213 is sqrt(2/1): {DDOF}",
    ]


def test_case_66_a_removed_row_is_told_by_its_key() -> None:
    old = rollouts(groups_of([1.0, 0.0], [RIGHT, -RIGHT], groups=2))

    told = compare(content(rollouts=old), content("new", rollouts=old.filter(pl.col("id") != 3)))

    assert "missing: rollouts, 1 of 4 rows: run=A split=train step=7 adapter=a#0 rollout=3 prompt_group=1" in render(
        told
    )


# --- 28: ddof and epsilon differ between trainers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "spread", "epsilon", "expected"),
    [
        ([1.0, 0.0], 0.5, 1e-6, "ddof, the standard deviation divided by n (ddof 0)"),
        ([1.0, 1.001], 7.07107e-4, 1e-4, "epsilon of 1e-04"),
        ([1.0, 1.001], 7.07107e-4, 1e-8, "epsilon of 1e-08"),
        ([3.0, 0.0, 1.5], 1.0, 0.0, "no longer divided by it"),
    ],
)
def test_case_28_ddof_and_epsilon_are_told_apart(
    rewards: list[float], spread: float, epsilon: float, expected: str
) -> None:
    n, mean = len(rewards), sum(rewards) / len(rewards)
    unbiased = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (n - 1))
    spread = unbiased if epsilon not in (0.0, 1e-6) else spread
    old = rollouts(groups_of(rewards, [(r - mean) / (unbiased + 1e-6) for r in rewards]))
    new = rollouts(groups_of(rewards, [(r - mean) / (spread + epsilon) for r in rewards]))

    (hint,) = compare(content(rollouts=old), content(rollouts=new)).hints

    assert expected in hint


def test_a_ratio_that_is_no_known_faults_gives_no_hint() -> None:
    old = rollouts(groups_of([1.0, 0.0], [RIGHT, -RIGHT], groups=3))
    new = old.with_columns(advantage=pl.col("advantage") * 1.4)

    assert compare(content(rollouts=old), content(rollouts=new)).hints == ()


def test_a_ratio_of_another_group_size_gives_no_hint() -> None:
    old = rollouts(groups_of([1.0, 0.0], [RIGHT, -RIGHT], groups=3))
    new = old.with_columns(advantage=pl.col("advantage") * math.sqrt(3 / 2))

    assert compare(content(rollouts=old), content(rollouts=new)).hints == ()
