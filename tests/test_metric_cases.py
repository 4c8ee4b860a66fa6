"""Faults that others met with metrics, by the number of their report: a dump, a recompute, the ledger's right values.

Figures are to six decimals, as they were reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline import RunPlan, Settings
from tests.one_batch import AT_ONCE, close, column, figures, recomputed, values, write
from tests.worked_cases import NO_STD, rollouts_of, sample

# --- what is in the dump ----------------------------------------------------------------------------------------------


def test_06_kept_groups_are_not_the_policys_reward(tmp_path: Path) -> None:
    solved = [sample(1, r=number, g=number // 2) for number in range(4)]
    kept = [sample(1, r=4, g=2), sample(0, r=5, g=2)]

    everything = values(recomputed(tmp_path / "all", *solved, *kept))
    filtered = values(recomputed(tmp_path / "kept", *kept))

    assert everything["episode_raw_reward"] == close(0.833333)
    assert filtered["episode_raw_reward"] == close(0.5)


def test_06_groups_that_a_filter_dropped_are_gaps(tmp_path: Path) -> None:
    ends = [sample(reward, r=number, g=3 * (number // 2)) for number, reward in enumerate([1, 0, 1, 0])]

    ledger = recomputed(tmp_path, *ends)

    (gap,) = pipeline.audit("gaps", ledger).to_dicts()
    assert gap["gap"] == "missing_groups"
    assert (gap["first"], gap["last"], gap["found"], gap["expected"], gap["missing"]) == (0, 3, 2, 4, 2)


def test_06_the_first_groups_of_a_run_are_missed_too(tmp_path: Path) -> None:
    ledger = recomputed(tmp_path, sample(1, r=4, g=2), sample(0, r=5, g=2))

    (gap,) = pipeline.audit("gaps", ledger).to_dicts()
    assert (gap["first"], gap["last"], gap["found"], gap["expected"], gap["missing"]) == (0, 2, 1, 3, 2)


def versioned(reward: float, number: int, oldest: int) -> dict[str, Any]:
    return sample(reward, r=number, step=5, weight_versions=[str(oldest), "5"])


SHARDS = (
    [versioned(1, 0, 0), versioned(1, 1, 4), versioned(0, 2, 4)],
    [versioned(0, 3, 4)],
)


def test_07_shards_of_a_batch_are_added_once(tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "all.jsonl", *SHARDS[0], *SHARDS[1])
    plan = RunPlan((str(tmp_path / "dumps" / "all.jsonl"),), Settings(), "run")

    pipeline.recompute([plan], tmp_path / "ledger", AT_ONCE)

    found = figures(tmp_path / "ledger")
    assert found["episode_raw_reward"] == (0.5, 4)
    assert found["staleness/max"] == (5.0, 4)
    assert found["num_training_samples"] == (4.0, 4)


def test_07_a_shard_that_two_ranks_wrote_is_never_counted_twice(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"rank_{rank}.jsonl", *SHARDS[0], *SHARDS[1]) for rank in (0, 1)]
    plan = RunPlan(tuple(map(str, paths)), Settings(), "run")

    outcome = pipeline.recompute([plan], tmp_path / "ledger", AT_ONCE)

    assert outcome.refused > 0
    assert pipeline.sql("SELECT coalesce(max(samples), 0) FROM batches", tmp_path / "ledger").item() in (0, 4)
    codes = pipeline.sql("SELECT DISTINCT code FROM findings WHERE severity = 'error'", tmp_path / "ledger")
    assert codes["code"].to_list() == ["duplicate_batch"]


def test_11_no_score_is_not_0_and_both_figures_are_there(tmp_path: Path) -> None:
    found = figures(recomputed(tmp_path, *rollouts_of(1.0, None, 0.5)))

    assert found["episode_raw_reward"] == (0.75, 2)
    assert found["episode_raw_reward_zero_filled"] == (0.5, 3)
    assert found["unscored/missing"] == (close(0.333333), 3)


# --- advantages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "advantage", "others"),
    [
        ([1, 0], 0.707106, {"stddev_pop(reward) OVER () + 1e-6": 0.999998}),
        (
            [1.001, 1.0],
            0.706108,
            {"stddev_samp(reward) OVER () + 1e-4": 0.619497, "stddev_samp(reward) OVER () + 1e-8": 0.707097},
        ),
    ],
)
def test_28_the_spread_is_unbiased_and_others_can_be_had_from_the_ledger(
    rewards: list[float], advantage: float, others: dict[str, float], tmp_path: Path
) -> None:
    ledger = recomputed(tmp_path, *rollouts_of(*rewards))

    assert column(ledger, "advantage") == close([advantage, -advantage])
    for divisor, other in others.items():
        assert column(ledger, f"(reward - avg(reward) OVER ()) / ({divisor})") == close([other, -other])
    (settings,) = pipeline.sql("SELECT normalises, divides FROM batch_settings", ledger).rows()
    assert settings == (True, True)


def test_29_zero_std_of_the_raw_and_of_the_shaped_reward(tmp_path: Path) -> None:
    ledger = recomputed(tmp_path, sample(0.0, r=0, raw=0), sample(-0.5, r=1, raw=0))

    found = figures(ledger)
    assert found["raw_zero_std/constant_share"] == found["raw_zero_std/all_zero_share"] == (1.0, 1)
    assert found["raw_zero_std/count_0.0"] == (1.0, 1)
    assert found["zero_std/constant_share"] == (0.0, 1)
    assert "zero_std/count_0.0" not in found
    assert found["phantom_groups"] == (1.0, 1)
    assert column(ledger, "advantage") == close([0.707105, -0.707105])
    assert pipeline.sql("SELECT reward_std FROM prompt_groups", ledger).item() == close(0.353553)


def test_30_dictionaries_and_none_are_no_constant_group(tmp_path: Path) -> None:
    rewards = [None, None, {"lp": 1}, {"lp": 2}, 1, 1]

    ledger = recomputed(tmp_path, *(sample(one, r=number, g=number // 2) for number, one in enumerate(rewards)))

    found = figures(ledger)
    assert found["zero_std/constant_share"] == (1.0, 1)
    assert found["zero_std/count_1.0"] == (1.0, 1)
    assert found["zero_std/non_numeric_groups"] == (2.0, 3)
    assert found["group_size/mean"] == (2.0, 3)


def test_31_a_part_of_weight_0_is_not_multiplied_in(tmp_path: Path) -> None:
    parts = [{"acc": 1, "fmt": 1, "judge": float("nan")}, {"acc": 0, "fmt": 1, "judge": 0.3}]
    weights = {"acc": 1, "fmt": 0.2, "judge": 0}

    ledger = recomputed(tmp_path, *rollouts_of(*parts), reward_weights=weights)

    found = figures(ledger)
    assert column(ledger, "reward") == close([1.2, 0.2])
    assert found["mainstream_reward/mean"] == (close(0.7), 2)
    assert found["episode_raw_reward"] == (close(0.7), 2)
    assert column(ledger, "advantage") == close([0.707106, -0.707106])
    # The part that is NaN is left out of its mean, whose count says so.
    assert found["reward/judge"] == (0.3, 1)
    assert found["reward/acc"] == (0.5, 2)


def test_31_a_missing_part_that_has_a_weight_makes_the_total_missing(tmp_path: Path) -> None:
    parts = [{"acc": 1}, {"acc": 0, "fmt": 1}]

    ledger = recomputed(tmp_path, *rollouts_of(*parts), reward_weights={"acc": 1, "fmt": 0.2})

    assert column(ledger, "reward_state") == ["missing", "ok"]
    assert figures(ledger)["mainstream_reward/mean"] == (close(0.2), 1)


@pytest.mark.parametrize(
    ("settings", "vote", "exclude", "effect"),
    [
        ({}, [0.866024, 0.866024, -0.866024, -0.866024], [1.154699, -0.577349, -0.577349], 0.288675),
        (NO_STD, [0.5, 0.5, -0.5, -0.5], [0.666667, -0.333333, -0.333333], 0.166667),
    ],
)
def test_32_what_the_votes_of_removed_samples_do(
    settings: dict[str, Any], vote: list[float], exclude: list[float], effect: float, tmp_path: Path
) -> None:
    samples = [sample(reward, r=number, remove_sample=number == 1) for number, reward in enumerate([1, 1, 0, 0])]

    voted = recomputed(tmp_path / "vote", *samples, **settings)
    excluded = recomputed(tmp_path / "exclude", *(one for one in samples if not one["remove_sample"]), **settings)

    assert column(voted, "advantage") == close(vote)
    assert column(excluded, "advantage") == close(exclude)
    assert figures(voted)["removed_vote_effect/max"] == (close(effect), 3)
    assert values(excluded)["removed_vote_effect/max"] == 0.0


# --- what trains, and how it ended ------------------------------------------------------------------------------------


def test_33_rows_that_train_nothing_are_counted_apart(tmp_path: Path) -> None:
    found = figures(
        recomputed(
            tmp_path,
            sample(1, r=0, tok=5),
            sample(1, r=1, tok=3, loss_mask=[0, 0, 0]),
            sample(0, r=2, tok=4),
            sample(0, r=2, tok=4, remove_sample=True),
        )
    )

    assert found["num_training_samples"] == (4.0, 4)
    assert found["num_trained_samples"] == (2.0, 4)
    assert found["episode_raw_reward"] == (close(0.666667), 3)
    assert found["episode_raw_reward_trained"] == (0.5, 2)
    assert found["removed_ratio"] == (0.25, 4)
    assert found["untrained_rollout_ratio"] == (close(0.333333), 3)


def test_34_aborted_rollouts_and_what_is_left_without_them(tmp_path: Path) -> None:
    ledger = recomputed(
        tmp_path,
        sample(1, r=0, tok=100),
        sample(1, r=1, tok=100, status="truncated"),
        sample(0, r=2, tok=0, status="aborted"),
        **NO_STD,
    )

    found = figures(ledger)
    assert found["episode_raw_reward"] == (close(0.666667), 3)
    assert found["response_length/mean"] == (close(66.666667), 3)
    assert found["truncated_ratio"] == found["aborted_ratio"] == (close(0.333333), 3)
    assert found["zero_std/constant_share"] == (0.0, 1)
    assert found["without_aborted/episode_raw_reward"] == (1.0, 2)
    assert found["without_aborted/response_length/mean"] == (100.0, 2)
    assert found["without_aborted/truncated_ratio"] == (0.5, 2)
    assert found["without_aborted/constant_share"] == (1.0, 1)
    assert column(ledger, "advantage") == close([1 / 3, 1 / 3, -2 / 3])


def test_36_the_longest_sample_is_not_a_truncated_one(tmp_path: Path) -> None:
    found = figures(recomputed(tmp_path, *(sample(1, r=number, tok=tok) for number, tok in enumerate([10, 20, 20]))))

    assert found["truncated_ratio"] == (0.0, 3)


def test_36_truncation_by_sample_and_by_rollout(tmp_path: Path) -> None:
    cut = [sample(1, r=0), sample(1, r=0), sample(1, r=0, status="truncated")]

    found = figures(recomputed(tmp_path, *cut, sample(1, r=1)))

    assert found["truncated_ratio"] == (0.25, 4)
    assert found["rollout_truncated_ratio/any"] == (0.5, 2)
    assert found["rollout_truncated_ratio/mainstream"] == (0.0, 2)


def test_36_an_unknown_status_is_a_bucket_of_its_own_and_a_warning(tmp_path: Path) -> None:
    ledger = recomputed(tmp_path, sample(1, r=0, status="cut_off"), sample(1, r=1))

    found = figures(ledger)
    assert found["unknown_status_ratio"] == (0.5, 2)
    assert found["truncated_ratio"] == (0.0, 2)
    (finding,) = pipeline.sql("SELECT code, severity, row, value FROM findings", ledger).rows()
    assert finding == ("unknown_status", "warning", 0, "cut_off")
