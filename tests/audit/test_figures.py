"""Audits give the figures that were worked by hand, and those that the independent reference gives for real dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.audit.query import connected
from tests.audit.conftest import Ask, asker
from tests.audit.ledgers import published
from tests.fixture_dumps import load_expected, load_run
from tests.reference import Dump
from tests.worked_cases import A, B, sample, train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.reference import Row

MULTI_LORA = ["miles_multilora_run", "miles_multilora_fanout_run"]


def near(value: object) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Callable[..., Ask]]:
    """Publish some batches and return a function that asks them."""
    opened = []

    def publish(*dumps: Dump, **settings: Any) -> Ask:
        connection = connected(published(tmp_path / "ledger", dumps, settings))
        opened.append(connection)
        return asker(connection.__enter__())

    yield publish
    for connection in opened:
        connection.__exit__(None, None, None)


def rows(ask: Ask, name: str, **parameters: Any) -> list[Row]:
    return ask(name, **parameters).to_dicts()


# --- cases 2, 3 and 10 ------------------------------------------------------------------------------------------------


def test_an_adapter_overweighted_from_a_half_to_three_quarters(asking: dict[str, Ask]) -> None:
    a, b = rows(asking["cases"], "adapter_weighting", run="two")
    weights = ("weight_by_rows", "weight_unscoped", "weight_scoped", "weight_macro")
    assert [a[name] for name in weights] == near([0.75, 0.75, 0.5, 0.5])
    assert [b[name] for name in weights] == near([0.25, 0.25, 0.5, 0.5])
    assert (a["overweight_by_rows"], a["overweight_unscoped"]) == near((1.5, 1.5))
    assert (b["overweight_by_rows"], b["overweight_unscoped"]) == near((0.5, 0.5))
    assert (a["contribution_unscoped"], a["contribution_scoped"]) == near((0.75, 0.5))

    (batch,) = rows(asking["cases"], "metric_definitions", run="two")
    assert (batch["episode_raw_reward"], batch["unscoped_raw_reward"], batch["unscoped_difference"]) == (
        0.5,
        0.75,
        0.25,
    )

    (collision,) = rows(asking["cases"], "identity_collisions", run="two")
    assert (collision["dropped"], collision["merged_keys"], collision["samples"]) == ("adapter", 1, 4)
    assert (collision["episode_raw_reward"], collision["value_if_dropped"], collision["moves"]) == near(
        (0.5, 0.75, 0.25)
    )
    assert collision["first_rows"] == [0]

    (key,) = rows(asking["cases"], "merged_keys", run="two")
    assert (key["adapters"], key["adapter_rewards"], key["merged_reward"]) == (["a#0", "b#1"], [1.0, 0.0], near(0.75))
    assert (key["samples"], key["rows"]) == (4, [0, 1, 2, 3])


def test_token_totals_that_leak_from_adapter_to_adapter(asking: dict[str, Ask]) -> None:
    found = sorted(rows(asking["cases"], "token_denominators", run="three"), key=lambda row: row["rows"])

    assert [row["tokens"] for row in found] == [2, 4, 3, 5]
    assert [row["tokens_without_adapter"] for row in found] == [row["tokens_by_id"] for row in found] == [5, 9, 5, 9]
    assert [row["factor"] for row in found] == near([5 / 2, 9 / 4, 5 / 3, 9 / 5])
    assert sum(row["samples"] for row in found if row["changes"]) == 4
    shares = {row["adapter_name"]: row["adapter_token_share"] for row in found}
    assert shares == {"a": near(6 / 14), "b": near(8 / 14)}

    (collision,) = rows(asking["cases"], "identity_collisions", run="three")
    assert (collision["merged_keys"], collision["samples"]) == (2, 4)
    assert {row["token_share"] for row in rows(asking["cases"], "adapter_weighting", run="three")} == set(
        shares.values()
    )


def test_two_players_that_average_to_zero(asking: dict[str, Ask]) -> None:
    a, b = rows(asking["cases"], "adapter_weighting", run="ten")
    assert (a["episode_raw_reward"], b["episode_raw_reward"]) == near((1.0, -1.0))
    assert (a["weight_scoped"], a["weight_unscoped"]) == (0.5, 0.5)

    (batch,) = rows(asking["cases"], "metric_definitions", run="ten")
    assert batch["episode_raw_reward"] == near(0.0)
    assert (batch["lowest_adapter_reward"], batch["highest_adapter_reward"]) == near((-1.0, 1.0))
    assert batch["signs_cancel"]

    (collision,) = rows(asking["cases"], "identity_collisions", run="ten")
    assert (collision["merged_keys"], collision["moves"]) == (2, near(0.0))


# --- the trainer's own dumps ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=MULTI_LORA)
def expected_and_ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    ledger = published(tmp_path_factory.mktemp("run") / "ledger", load_run(request.param).values())
    with connected(ledger) as connection:
        yield load_expected(request.param)["batches"], asker(connection)


def test_weights_and_means_of_the_fixtures(expected_and_ask: tuple[dict[str, Any], Ask]) -> None:
    expected, ask = expected_and_ask
    found = rows(ask, "adapter_weighting")
    for step, batch in expected.items():
        own = {f"{row['adapter_name']}#{row['adapter_slot']}": row for row in found if row["step"] == int(step)}
        for weight in ("weight_scoped", "weight_unscoped", "weight_by_rows"):
            assert {name: row[weight] for name, row in own.items()} == near(batch[weight])
        assert {name: row["episode_raw_reward"] for name, row in own.items()} == near(batch["adapter_mean"])
        assert {name: row["rollouts"] for name, row in own.items()} == batch["adapter_rollouts"]
        for name, row in own.items():
            factor = batch["weight_unscoped"][name] / batch["weight_scoped"][name]
            assert row["overweight_unscoped"] == near(factor)


def test_collisions_of_the_fixtures(expected_and_ask: tuple[dict[str, Any], Ask]) -> None:
    expected, ask = expected_and_ask
    found = {str(row["step"]): row for row in rows(ask, "identity_collisions") if row["dropped"] == "adapter"}
    merging = {step for step, batch in expected.items() if batch["unscoped_raw_reward"] != batch["episode_raw_reward"]}

    assert merging <= found.keys()
    for step, row in found.items():
        assert row["episode_raw_reward"] == near(expected[step]["episode_raw_reward"])
        assert row["value_if_dropped"] == near(expected[step]["unscoped_raw_reward"])


def test_token_denominators_of_the_fixtures(expected_and_ask: tuple[dict[str, Any], Ask]) -> None:
    expected, ask = expected_and_ask
    found = rows(ask, "token_denominators", limit=None)
    for step, batch in expected.items():
        for row in (row for row in found if row["step"] == int(step)):
            assert row["tokens"] == sum(batch["trainable_tokens"][position] for position in row["rows"])
            under_the_key = {
                position
                for other in found
                if (other["step"], other["kind"], other["id"], other["group_index"])
                == (row["step"], row["kind"], row["id"], row["group_index"])
                for position in other["rows"]
            }
            total = sum(batch["trainable_tokens"][position] for position in under_the_key)
            assert row["tokens_without_adapter"] == total


def test_the_trainers_own_leaky_denominators(tmp_path: Path) -> None:
    """What the trainer dumped as `rollout_mask_sums` of step 0: sums of tokens of different adapters."""
    ledger = published(tmp_path / "ledger", [load_run("miles_multilora_run")["0"]])
    with connected(ledger) as connection:
        found = sorted(rows(asker(connection), "token_denominators"), key=lambda row: row["rows"])

    assert [row["tokens"] for row in found] == [7, 8, 16, 22, 0, 20, 15, 24]
    assert [row["tokens_by_id"] for row in found] == [7, 28, 31, 46] * 2
    assert [row["changes"] for row in found] == [False, True, True, True, True, True, True, True]


# --- the other audits, on small batches worked by hand ----------------------------------------------------------------


def test_kinds_that_merge_without_the_kind(case: Callable[..., Ask]) -> None:
    ask = case(train(sample(1, r=5), sample(0, i=5), sample(1, r=6)))
    (row,) = rows(ask, "identity_collisions")

    assert (row["dropped"], row["keys"], row["merged_keys"], row["samples"]) == ("kind", 2, 1, 2)
    assert row["largest_key"] == "5 in group 0"
    assert (row["episode_raw_reward"], row["value_if_dropped"]) == near((2 / 3, 0.75))


def test_fan_out(case: Callable[..., Ask]) -> None:
    ask = case(train(*[sample(1, r=0, ad=A)] * 3, sample(0, r=0, ad=B), sample(0, r=1, ad=B)))
    a, b = rows(ask, "fan_out")

    assert (a["adapter_name"], a["rollouts"], a["samples"], a["samples_per_rollout"], a["largest"]) == (
        "a",
        1,
        3,
        3.0,
        3,
    )
    assert (a["with_1"], a["with_3"], b["with_1"]) == (0, 1, 2)
    assert (a["overweight"], b["overweight"]) == near(((3 / 5) / (1 / 3), (2 / 5) / (2 / 3)))
    assert [row["adapter_name"] for row in rows(ask, "fan_out", adapter="b")] == ["b"]
    assert rows(ask, "fan_out", adapter="b")[0]["overweight"] == near(b["overweight"])


def test_siblings_that_disagree(case: Callable[..., Ask]) -> None:
    ask = case(train(sample(0, r=0, tok=2), sample(2, r=1, tok=1), sample(6, r=1, tok=3)), grpo_std_normalization=False)
    (row,) = rows(ask, "sibling_disagreement")

    assert (row["id"], row["mainstream_reward"], row["first_reward"], row["last_reward"]) == (1, 6.0, 2.0, 6.0)
    assert (row["mean_reward"], row["spread"]) == (4.0, 4.0)
    assert (row["advantage"], row["advantage_first"], row["advantage_last"], row["advantage_mean"]) == (
        3.0,
        1.0,
        3.0,
        2.0,
    )
    assert row["largest_change"] == 2.0


def test_siblings_that_disagree_divided_by_the_deviation(case: Callable[..., Ask]) -> None:
    ask = case(train(sample(0, r=0, tok=2), sample(2, r=1, tok=1), sample(6, r=1, tok=3)))
    (row,) = rows(ask, "sibling_disagreement")

    assert row["advantage"] == pytest.approx(0.707107, abs=1e-6)
    assert row["advantage_first"] == near(1 / (2**0.5 + 1e-6))


def test_choices_that_make_a_group_constant_or_are_not_normalised(case: Callable[..., Ask]) -> None:
    batch = train(sample(2, r=0, tok=2), sample(2, r=1, tok=1), sample(6, r=1, tok=3))
    (row,) = rows(case(batch), "sibling_disagreement")
    assert row["advantage_first"] == 0.0

    (row,) = rows(case(batch, advantage_estimator="ppo"), "sibling_disagreement")
    assert (row["advantage"], row["advantage_first"], row["advantage_mean"]) == (6.0, 2.0, 4.0)


def test_risks_of_the_mainstream_sample(case: Callable[..., Ask]) -> None:
    ask = case(
        train(
            sample(1, r=0, tok=3, status="truncated"),
            sample(0, r=1, tok=2, remove_sample=True),
            *[sample(reward, r=2, tok=2) for reward in (1, 0)],
            *[sample(reward, r=3, tok=tokens) for reward, tokens in ((5, 9), (0, 1), (1, 1))],
            *[sample(reward, r=4, tok=tokens) for reward, tokens in ((None, 9), (1, 1))],
            *[sample(reward, r=5, tok=tokens) for reward, tokens in ((1, 9), (0, 1))],
        )
    )
    found = {row["id"]: row for row in rows(ask, "mainstream_risk")}
    flags = ("truncated", "removed", "no_tokens", "tied", "outlier", "unscored")

    assert {key: [name for name in flags if row[name]] for key, row in found.items()} == {
        0: ["truncated"],
        1: ["removed", "no_tokens"],
        2: ["tied"],
        3: ["outlier"],
        4: ["unscored"],
    }
    assert rows(ask, "mainstream_risk")[0]["id"] == 1


def test_the_row_level_rule(case: Callable[..., Ask]) -> None:
    three_and_one = [*[sample(1, r=0)] * 3, sample(0, r=1)]
    other = [sample(0.5, r=2, g=1), sample(0.5, r=3, g=1)]
    (row,) = rows(case(train(*three_and_one, *other), grpo_std_normalization=False), "row_against_rollout")

    assert (row["prompt_group"], row["rollouts"], row["samples"], row["compared"]) == (0, 2, 4, 4)
    assert (row["rollout_mean"], row["row_mean"], row["largest_difference"]) == near((0.5, 0.75, 0.25))
    assert (row["mean_difference"], row["sign_flips"]) == (near(0.25), 0)


def test_a_sign_flip(case: Callable[..., Ask]) -> None:
    # Rollouts 0, 1, 0.6 have the mean 0.53; rows 0, 1, 1, 1, 0.6 have 0.72: 0.6 is good, or bad.
    batch = train(sample(0, r=0), *[sample(1, r=1)] * 3, sample(0.6, r=2))
    (row,) = rows(case(batch, grpo_std_normalization=False), "row_against_rollout")

    assert row["sign_flips"] == 1


def test_constant_groups_by_value(case: Callable[..., Ask]) -> None:
    groups: list[list[float]] = [[0, -0.0], [1, 1], [1], [0.5, 0.5], [0, 1]]
    samples = [sample(reward, i=i, g=g) for g, rewards in enumerate(groups) for i, reward in enumerate(rewards)]
    found = {row["value"]: row for row in rows(case(train(*samples)), "constant_groups")}

    assert {value: (row["label"], row["groups"], row["single"]) for value, row in found.items()} == {
        0.0: ("all_zero", 1, 0),
        1.0: ("all_one", 2, 1),
        0.5: ("constant", 1, 0),
    }
    assert (found[1.0]["scored_groups"], found[1.0]["share"], found[1.0]["rollouts"]) == (5, 0.4, 3)


def test_the_same_group_index_in_two_steps_is_two_groups(case: Callable[..., Ask]) -> None:
    ask = case(train(sample(1, r=0), sample(1, r=1)), train(sample(0, r=0), sample(0, r=1), step=50))

    assert {row["label"]: (row["first_step"], row["groups"]) for row in rows(ask, "constant_groups")} == {
        "all_one": (0, 1),
        "all_zero": (50, 1),
    }


def test_phantom_groups(case: Callable[..., Ask]) -> None:
    shaped = [sample(0.0, r=0, raw=0), sample(-0.5, r=1, raw=0)]
    fair = [sample(0.0, r=0, g=1, raw=0), sample(1.0, r=1, g=1, raw=1)]
    (row,) = rows(case(train(*shaped, *fair)), "phantom_groups")

    assert (row["prompt_group"], row["raw_reward"], row["spread"]) == (0, 0.0, 0.5)
    assert row["reward_std"] == pytest.approx(0.353553, abs=1e-6)


def test_unscored_samples(case: Callable[..., Ask]) -> None:
    ask = case(train(sample(None, r=0, ad=A), sample("x", r=0, ad=A), sample(1, r=1, ad=A), sample(float("nan"), r=0)))
    found = {(row["adapter_name"], row["measure"], row["state"]): row for row in rows(ask, "unscored")}

    assert set(found) == {
        (name, measure, state)
        for name, state in (("a", "missing"), ("a", "other"), (None, "nan"))
        for measure in ("reward", "raw_reward")
    }
    assert (found["a", "reward", "missing"]["share"], found["a", "reward", "missing"]["mainstream"]) == (near(1 / 3), 1)
    assert found[None, "reward", "nan"]["samples"] == 1


def test_group_recovery(case: Callable[..., Ask]) -> None:
    told = train(*[sample(1, i=i, g=i // 2) for i in range(4)], sample(1, i=4, g=2))
    guessed = train(*[sample(1, i=i, g=None) for i in range(3)], step=1)
    found = rows(case(told, guessed, n_samples_per_prompt=2), "group_recovery")

    assert [row["step"] for row in found] == [1, 0]
    whole, by_index = found
    assert (whole["group_source"], whole["is_fallback"], whole["overfull_groups"]) == ("whole_batch", True, 1)
    assert (by_index["group_source"], by_index["prompt_groups"], by_index["incomplete_groups"]) == ("group_index", 3, 1)
    assert (by_index["expected_rollouts"], by_index["smallest_group"], by_index["largest_group"]) == (2, 1, 2)


def test_blocks_of_several_adapters(case: Callable[..., Ask]) -> None:
    (row,) = rows(case(train(sample(1, i=0, ad=A), sample(1, i=0, ad=B), sizes=[2])), "group_recovery")

    assert (row["group_source"], row["mixed_blocks"], row["prompt_groups"]) == ("explicit", 1, 2)


def test_gaps(case: Callable[..., Ask]) -> None:
    full = [sample(1, i=i, g=g) for g in (0, 1) for i in range(2 * g, 2 * g + 2)]
    holes = [*full, sample(1, i=10, g=5)]
    evals = [Dump("A", "eval", step, [sample(1, i=0)], None) for step in (0, 5, 10, 20)]
    found = rows(case(train(*full), train(*holes, step=3), *evals, n_samples_per_prompt=2), "gaps", split="train")

    assert [(row["gap"], row["step"], row["first"], row["last"], row["missing"]) for row in found] == [
        ("missing_steps", 3, 1, 2, 2),
        ("missing_groups", 3, 0, 5, 3),
        ("missing_rollouts", 3, 1, 2, 1),
    ]


def test_gaps_of_evaluations_are_longer_than_their_interval(case: Callable[..., Ask]) -> None:
    evals = [Dump("A", "eval", step, [sample(1, i=0)], None) for step in (0, 5, 10, 20)]
    (row,) = rows(case(*evals), "gaps")

    assert (row["gap"], row["first"], row["last"], row["missing"]) == ("missing_steps", 15, 15, 1)


def test_metric_history(case: Callable[..., Ask]) -> None:
    rewards = [0.0, 0.1, 0.2, 0.9, None, 1.0]
    ask = case(*[train(sample(reward, r=0, ad=A), step=step) for step, reward in enumerate(rewards)])
    found = rows(ask, "metric_history", adapter="a")

    assert {row["scope"] for row in found} == {"adapter"}
    assert (found[0]["step"], found[0]["previous_step"], found[0]["jump"]) == (3, 2, near(7.0))
    assert {row["step"] for row in found} == {0, 1, 2, 3, 5}
    assert {row["metric"] for row in rows(ask, "metric_history", metric=None)} > {"episode_raw_reward"}
    assert {row["metric"] for row in rows(ask, "metric_history", metric="row_mean_raw_reward")} == {
        "row_mean_raw_reward"
    }


def test_registrations(asking: dict[str, Ask]) -> None:
    found = {(row["adapter_name"], row["adapter_slot"]): row for row in rows(asking["fanout"], "registrations")}

    north, moved, south = found["north", 0], found["north", 2], found["south", 1]
    assert (north["name_slots"], moved["name_slots"], south["name_slots"]) == (2, 2, 1)
    assert (moved["restarts"], moved["first_restart"], south["restarts"]) == (1, 2, 0)
    assert found["east", 0]["slot_names"] == 2
