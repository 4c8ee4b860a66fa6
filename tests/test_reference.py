"""The plain-Python reference gives the published right values, to 1e-9."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from tests.case_checks import Case, disagreements
from tests.fixture_dumps import RUNS, load_expected, load_run
from tests.reference import ContractBroken, Dump, Row, Tables, account, account_all
from tests.strategies import accounts, broken_dumps, dumps, runs
from tests.worked_cases import CASES, sample, train

ADVANTAGE_SETTINGS: dict[str, dict[str, Any]] = {
    "grpo": {"advantage_estimator": "grpo"},
    "grpo_nostd": {"advantage_estimator": "grpo", "grpo_std_normalization": False},
    "reinforce_plus_plus_baseline": {"advantage_estimator": "reinforce_plus_plus_baseline"},
    "ppo": {"advantage_estimator": "ppo"},
}
EXPECTED = {name: load_expected(name) for name in RUNS}
DUMPS = {name: load_run(name) for name in RUNS}
BATCHES = [(name, stem) for name in RUNS for stem in EXPECTED[name]["batches"]]


def close(value: object) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def batch_figures(tables: Tables) -> dict[str, float]:
    return {row["metric"]: row["value"] for row in tables["metrics"] if row["scope"] == "batch"}


def adapter_label(row: Row) -> str:
    return "-" if row["adapter_name"] is None else f"{row['adapter_name']}#{row['adapter_slot']}"


def adapter_figures(tables: Tables, column: str) -> dict[str, float]:
    return {adapter_label(row): row[column] for row in tables["adapters"]}


def test_every_dump_has_an_expectation() -> None:
    dumps = {name: set(DUMPS[name]) for name in RUNS}

    expected = {name: set(EXPECTED[name]["batches"]) for name in RUNS}

    assert dumps == expected


@pytest.mark.parametrize(("name", "stem"), BATCHES)
@pytest.mark.parametrize("setting", ADVANTAGE_SETTINGS)
def test_advantages_of_the_fixtures(name: str, stem: str, setting: str) -> None:
    settings = EXPECTED[name]["settings"] | ADVANTAGE_SETTINGS[setting]
    dump = DUMPS[name][stem]
    want = EXPECTED[name]["batches"][stem]["advantage"][setting] or [None] * len(dump.samples)  # null: evaluation

    tables = account(dump, settings)

    got = [row["advantage"] for row in tables["samples"]]
    assert got == [None if value is None else close(value) for value in want]


@pytest.mark.parametrize(("name", "stem"), BATCHES)
def test_figures_of_the_fixtures(name: str, stem: str) -> None:
    want = EXPECTED[name]["batches"][stem]

    tables = account(DUMPS[name][stem], EXPECTED[name]["settings"])

    metrics, (batch,) = batch_figures(tables), tables["batches"]
    for metric in ("num_training_samples", "episode_raw_reward", "unscoped_raw_reward", "row_mean_raw_reward"):
        assert metrics[metric] == close(want[metric]), metric
    assert batch["scored_rollouts"] == want["scored_rollouts"]
    assert batch["group_source"] == want["segment_source"]
    assert sorted(row["mainstream_row"] for row in tables["rollouts"]) == want["mainstream_rows"]
    assert [row["row"] for row in tables["samples"] if row["is_mainstream"]] == want["mainstream_rows"]
    assert [row["trainable_tokens"] for row in tables["samples"]] == want["trainable_tokens"]


@pytest.mark.parametrize(("name", "stem"), BATCHES)
def test_adapters_of_the_fixtures(name: str, stem: str) -> None:
    want = EXPECTED[name]["batches"][stem]

    tables = account(DUMPS[name][stem], EXPECTED[name]["settings"])

    assert adapter_figures(tables, "episode_raw_reward") == close(want["adapter_mean"])
    assert adapter_figures(tables, "scored_rollouts") == want["adapter_rollouts"]
    for weight in ("weight_scoped", "weight_unscoped", "weight_by_rows"):
        assert adapter_figures(tables, weight) == close(want[weight]), weight


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_worked_case(case: Case) -> None:
    tables = account_all([dump for dump, _ in case.batches], case.settings)

    found = [line for dump, expected in case.batches for line in disagreements(tables, dump, expected)]

    assert not found, f"{case.title}: {found}"


def test_case_ids_are_distinct() -> None:
    ids = [case.id for case in CASES]

    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("reward", "state", "value"),
    [
        (np.float32(0.1), "ok", float(np.float32(0.1))),
        (np.int64(3), "ok", 3.0),
        (np.bool_(True), "ok", 1.0),
        (np.array([[0.5]]), "ok", 0.5),
        (np.array(2), "ok", 2.0),
        (np.float64("nan"), "nan", None),
        (np.array([-np.inf]), "inf", None),
        (np.array([1.0, 2.0]), "other", None),
        (np.array([]), "other", None),
        (np.array(["1.0"]), "other", None),
        (np.array([None]), "other", None),
        (Fraction(1, 2), "other", None),
        (1 + 0j, "other", None),
        (2**53 + 1, "ok", float(2**53)),
    ],
)
def test_state_of_a_reward(reward: object, state: str, value: float | None) -> None:
    (row,) = account(train(sample(reward)), {})["samples"]

    assert (row["reward_state"], row["reward"]) == (state, value)


def test_spread_and_advantages_of_extremes_stay_finite() -> None:
    largest = 8.9e307

    tables = account(train(*(sample(value, r=row) for row, value in enumerate([largest, -largest, 5e-324]))), {})

    (group,) = tables["prompt_groups"]
    assert group["reward_std"] == pytest.approx(largest, rel=1e-12)
    assert group["reward_mean"] == 0.0
    assert [row["advantage"] for row in tables["samples"]] == pytest.approx([1.0, -1.0, 0.0])


def test_neighbouring_values_are_told_apart_from_a_constant_group() -> None:
    tables = account(train(sample(1e16, r=0), sample(1e16 + 2, r=1)), {})

    (group,) = tables["prompt_groups"]
    assert not group["is_constant"]
    assert group["reward_std"] == pytest.approx(math.sqrt(2), rel=1e-15)
    assert [row["advantage"] for row in tables["samples"]] == pytest.approx([-0.707106, 0.707106], abs=1e-6)


def test_unknown_setting_is_an_error() -> None:
    with pytest.raises(ValueError, match="estimator"):
        account(train(), {"estimator": "grpo"})


@hypothesis_settings(max_examples=150, deadline=None)
@given(accounts())
def test_every_figure_is_finite_and_every_sample_is_counted_once(batch: tuple[Dump, dict[str, Any]]) -> None:
    dump, drawn = batch
    settings = {**drawn, "sibling_rewards": "mainstream"}

    tables = account(dump, settings)

    figures = [value for rows in tables.values() for row in rows for value in row.values() if isinstance(value, float)]
    assert all(math.isfinite(figure) for figure in figures)
    for relation in ("rollouts", "prompt_groups", "adapters"):
        assert sum(row["samples"] for row in tables[relation]) == len(dump.samples)
    assert sum(row["is_mainstream"] for row in tables["samples"]) == len(tables["rollouts"])


@hypothesis_settings(max_examples=100, deadline=None)
@given(dumps(tame=True, split="train"))
def test_ordinary_float64_arithmetic_gives_the_same_advantages(dump: Dump) -> None:
    tables = account(dump, {})

    for group in tables["prompt_groups"]:
        rollouts = [row for row in tables["rollouts"] if row["prompt_group"] == group["prompt_group"]]
        rewards = [row["mainstream_reward"] for row in rollouts if row["mainstream_reward"] is not None]
        if len(set(rewards)) > 1:
            mean, spread = sum(rewards) / len(rewards), stdev(rewards)
            want = [(reward - mean) / (spread + 1e-6) for reward in rewards]
            assert ok_advantages(rollouts) == pytest.approx(want, rel=1e-9, abs=1e-9)
        else:
            assert ok_advantages(rollouts) == [0.0] * len(rewards)


def ok_advantages(rollouts: list[Row]) -> list[float]:
    return [row["advantage"] for row in rollouts if row["mainstream_reward"] is not None]


@hypothesis_settings(max_examples=100, deadline=None)
@given(broken_dumps())
def test_broken_input_is_refused_with_its_field(broken: tuple[Dump, str]) -> None:
    dump, field = broken

    with pytest.raises(ContractBroken) as refusal:
        account(dump, {})

    assert field in [problem["field"] for problem in refusal.value.problems]


@hypothesis_settings(max_examples=50, deadline=None)
@given(runs())
def test_batches_of_a_run_do_not_touch_one_another(batches: list[Dump]) -> None:
    together = account_all(batches, {})

    for dump in batches:
        alone = account(dump, {})
        for relation, rows in alone.items():
            assert [row for row in together[relation] if is_of(row, dump)] == rows


def is_of(row: Row, dump: Dump) -> bool:
    return (row["run"], row["split"], row["step"]) == (dump.run, dump.split, dump.step)
