"""A comparison against one made row by row in plain Python, and what it says of tolerances, columns and settings."""

from __future__ import annotations

import json
import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import NoInputError, UsageError
from pipeline.snapshots import table_comparison
from pipeline.snapshots.compare import Rules, compare
from pipeline.snapshots.content import TABLES, Content, TableContent
from pipeline.snapshots.facts import Diff
from pipeline.snapshots.tolerance import tolerances
from schemas.snapshot import SettingsUse, Versions
from tests.snapshots.contents import content, metrics, rollouts

Rows = dict[tuple[int, str | None, str], tuple[float | None, int]]
keys = st.tuples(st.integers(0, 2), st.sampled_from([None, "", "a", "b"]), st.sampled_from(["m", "n"]))
figures = st.tuples(
    st.sampled_from([None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0 + 2e-9, 1.0 + 1e-10, 1e-13, 3.0, -1e308]),
    st.integers(0, 2),
)
sides = st.dictionaries(keys, figures, max_size=8)


def frame(rows: Rows) -> pl.DataFrame:
    made = [
        metrics({metric: figure}, step=step, adapter_name=name, adapter_slot=None if name is None else 0)
        for (step, name, metric), figure in rows.items()
    ]
    return pl.concat([metrics({}), *made])


def state(value: float | None) -> str:
    return "null" if value is None else str(value) if not math.isfinite(value) else "number"


def same(old: float | None, new: float | None) -> bool:
    if old is None or new is None or state(old) != state(new):
        return old is None and new is None
    return state(old) != "number" or abs(old - new) <= max(1e-12, 1e-9 * max(abs(old), abs(new)))


@given(sides, sides, st.booleans())
def test_a_comparison_says_what_plain_python_says(old: Rows, new: Rows, in_small_chunks: bool) -> None:
    if not old and not new:
        return
    both = old.keys() & new.keys()
    expected = {
        "missing": len(old.keys() - new.keys()),
        "new": len(new.keys() - old.keys()),
        "values": sum(not same(old[key][0], new[key][0]) for key in both),
        "counts": sum(old[key][1] != new[key][1] for key in both),
    }
    with pytest.MonkeyPatch.context() as patch:
        if in_small_chunks:
            patch.setattr(table_comparison, "CHUNK_ROWS", 2)
            patch.setattr("pipeline.snapshots.compare.CHUNK_ROWS", 2)
            patch.setattr(table_comparison, "_CELLS", 1)
        told = compare(content(metrics=frame(old)), content("new", metrics=frame(new)))

    found = {
        "missing": told.missing_rows,
        "new": told.new_rows,
        "values": sum(one.differing for one in told.moved if not one.metric.endswith(".count")),
        "counts": sum(one.differing for one in told.moved if one.metric.endswith(".count")),
    }
    assert found == expected
    assert (told.verdict == "pass") == (not any(expected.values()))
    assert told.kept_rows == len(both)


@given(sides, sides)
def test_the_other_direction_finds_the_same_size(old: Rows, new: Rows) -> None:
    if not old and not new:
        return
    there = compare(content(metrics=frame(old)), content(metrics=frame(new)))
    back = compare(content(metrics=frame(new)), content(metrics=frame(old)))

    assert (there.differing, there.missing_rows, there.new_rows) == (back.differing, back.new_rows, back.missing_rows)


@given(sides.filter(bool))
def test_a_content_is_what_it_is(rows: Rows) -> None:
    assert compare(content(metrics=frame(rows)), content(metrics=frame(dict(reversed(rows.items()))))).verdict == "pass"


def test_the_largest_differences_come_first_changes_of_state_before_all() -> None:
    old = metrics({"m": (1.0, 1)}, step=0)
    frames_old = [metrics({"m": (1.0, 1)}, step=step) for step in range(20)]
    values: list[float | None] = [1.0 + step for step in range(19)]
    frames_new = [metrics({"m": (value, 1)}, step=step) for step, value in enumerate([*values, None])]

    told = compare(content(metrics=pl.concat(frames_old)), content(metrics=pl.concat(frames_new)))

    (moved,) = (one for one in told.moved if one.differing)
    assert old.height == 1
    assert (moved.differing, moved.compared) == (19, 20)
    assert [case.key["step"] for case in moved.worst] == [19, 18, 17, 16, 15]
    assert moved.states == {"number -> null": 1}


def test_a_key_that_occurs_twice_is_a_difference_even_if_new_keys_are_allowed() -> None:
    old, new = metrics({"m": (1.0, 1)}), metrics({"m": (1.0, 1), "n": (1.0, 1)})
    for more in (new.head(1), new.tail(1)):
        told = compare(content(metrics=old), content(metrics=pl.concat([new, more])), Rules(allow_new=True))

        assert told.verdict == "fail"
        assert told.repeated_rows == 1


def test_new_rows_are_a_difference_unless_allowed() -> None:
    old, new = metrics({"m": (1.0, 1)}), metrics({"m": (1.0, 1), "n": (1.0, 1)})

    assert compare(content(metrics=old), content(metrics=new)).verdict == "fail"
    assert compare(content(metrics=old), content(metrics=new), Rules(allow_new=True)).verdict == "pass"
    assert compare(content(metrics=new), content(metrics=old), Rules(allow_new=True)).verdict == "fail"


def test_a_table_that_is_gone_is_a_difference() -> None:
    one, other = metrics({"m": (1.0, 1)}), rollouts([{"id": 1, "prompt_group": 0}])

    told = compare(content(metrics=one, rollouts=other), content(metrics=one))

    assert (told.verdict, told.missing_rows) == ("fail", 1)


def test_a_vanished_column_is_a_difference_and_a_new_one_a_note() -> None:
    old = rollouts([{"id": 1, "prompt_group": 0}])

    gone = compare(content(rollouts=old), content(rollouts=old.drop("advantage")))
    added = compare(content(rollouts=old.drop("advantage")), content(rollouts=old))

    assert gone.verdict == "fail"
    assert added.verdict == "pass"
    assert added.notes == ("column rollouts.advantage is new and was not compared",)


def test_integers_beyond_2_to_the_53_are_compared_exactly() -> None:
    old, new = metrics({"m": (1.0, 2**53)}), metrics({"m": (1.0, 2**53 + 1)})

    assert compare(content(metrics=old), content(metrics=new)).verdict == "fail"


def test_what_cannot_be_compared() -> None:
    rows = metrics({"m": (1.0, 1)})

    with pytest.raises(NoInputError, match="schema version"):
        compare(content(metrics=rows), content(metrics=rows, schema=2))
    with pytest.raises(NoInputError, match="nothing to compare"):
        compare(content(metrics=rows.clear()), content(metrics=rows.clear()))


# --- settings and versions --------------------------------------------------------------------------------------------


def with_header(rows: pl.DataFrame, settings: dict[str, Any] | None = None, version: int = 1) -> Content:
    use = {"x": SettingsUse(runs={"A": 1}, values=settings or {})}
    table = TableContent(TABLES["metrics"], rows.schema, (rows.lazy(),))
    return Content("a", (Versions(schema=1, metrics={"m": version}),), use, {"metrics": table})


def test_settings_that_changed_are_a_difference_though_no_value_moved() -> None:
    rows = metrics({"m": (1.0, 1)})

    told = compare(with_header(rows), with_header(rows, {"grpo_std_normalization": False}))

    assert told.verdict == "fail"
    assert told.hints == ("settings of run A: grpo_std_normalization was true, is false",)


def test_a_setting_that_is_not_named_has_its_default() -> None:
    rows = metrics({"m": (1.0, 1)})

    assert compare(with_header(rows), with_header(rows, {"grpo_std_normalization": True})).verdict == "pass"


def test_another_version_of_a_metric_is_a_hint() -> None:
    old, new = metrics({"m": (1.0, 1)}), metrics({"m": (2.0, 1)})

    told = compare(with_header(old), with_header(new, version=2))

    assert "m is defined anew: version 1 -> 2" in told.hints


# --- tolerances -------------------------------------------------------------------------------------------------------

EPISODE = "episode_raw_reward"


def moved_by(distance: float, *options: str) -> Diff:
    rules = Rules(tolerances(options))
    return compare(
        content(metrics=metrics({EPISODE: (0.5, 100)})),
        content(metrics=metrics({EPISODE: (0.5 + distance, 100)})),
        rules,
    )


def test_a_name_counts_over_a_pattern_and_options_over_the_file() -> None:
    def allowed(options: list[str], section: dict[str, str]) -> float:
        parsed = {name: tolerances([f"{name}={text}"]).layers[1][0][1] for name, text in section.items()}
        return tolerances(options, parsed).of("metrics", EPISODE).absolute

    assert allowed([], {}) == 1e-12
    assert allowed([], {"*": "0.1,0", EPISODE: "0.2,0"}) == 0.2
    assert allowed([], {EPISODE: "0.2,0", "*": "0.1,0"}) == 0.2
    assert allowed(["*=0.3,0"], {EPISODE: "0.2,0"}) == 0.3
    assert allowed([f"{EPISODE}=0.3,0", "*=0.1,0"], {}) == 0.3
    assert allowed(["*raw*=0.3,0", "metrics.*=0.1,0"], {}) == 0.1
    assert allowed(["adapters.*=0.3,0"], {}) == 1e-12


@pytest.mark.parametrize(
    "option",
    [
        f"{EPISODE}=nan,0",
        f"{EPISODE}=0,nan",
        f"{EPISODE}=-1,0",
        f"{EPISODE}=0,-1e-9",
        f"{EPISODE}=inf,0",
        f"{EPISODE}=0,0.5",
        f"{EPISODE}=0,7",
        f"{EPISODE}=x,0",
        f"{EPISODE}=",
        f"{EPISODE}=1,2,3",
        EPISODE,
        "=1,0",
        "no_such_metric=0.1,0",
        "num_training_samples=0.1,0",
        "count=1,0",
    ],
)
def test_a_tolerance_that_cannot_fail_or_fits_nothing_is_refused(option: str) -> None:
    with pytest.raises(UsageError):
        tolerances([option])


def test_counts_have_no_tolerance() -> None:
    old, new = metrics({"num_training_samples": (64.0, 64)}), metrics({"num_training_samples": (65.0, 64)})

    assert compare(content(metrics=old), content(metrics=new), Rules(tolerances(["*=10,0.4"]))).verdict == "fail"


def test_a_tolerance_below_one_case_or_as_wide_as_the_values_is_pointed_out() -> None:
    assert moved_by(0.0).notes == ()
    assert "less than one case of 100 (0.01)" in moved_by(0.0, f"{EPISODE}=0.001,0").notes[0]
    assert moved_by(0.0, f"{EPISODE}=0.02,0").notes == ()
    assert "hardly anything fails" in moved_by(0.0, f"{EPISODE}=0.5,0").notes[0]


def test_what_moved_within_the_tolerance_is_noted() -> None:
    told = moved_by(0.01, f"{EPISODE}=0.02,0")

    assert told.verdict == "pass"
    assert told.notes == (f"metrics {EPISODE}: 1 values moved within the tolerance",)


# --- hints of metrics -------------------------------------------------------------------------------------------------


def batches_of(figures_: dict[str, list[tuple[float, int]]]) -> pl.DataFrame:
    return pl.concat(
        metrics({name: values[step] for name, values in figures_.items()}, step=step)
        for step in range(len(next(iter(figures_.values()))))
    )


def test_a_metric_that_says_what_another_said_is_told_by_value_and_count() -> None:
    right = {"episode_raw_reward": [(0.5, 4), (0.25, 4)], "unscoped_raw_reward": [(0.6, 3), (0.2, 3)]}
    wrong = {**right, "episode_raw_reward": right["unscoped_raw_reward"]}
    by_value_alone = {**right, "episode_raw_reward": [(0.6, 4), (0.2, 4)]}

    (hint,) = compare(content(metrics=batches_of(right)), content(metrics=batches_of(wrong))).hints
    nothing = compare(content(metrics=batches_of(right)), content(metrics=batches_of(by_value_alone))).hints

    assert "adapters merged" in hint
    assert nothing == ()


def test_two_metrics_that_fit_alike_give_no_hint() -> None:
    right = {"episode_raw_reward": [(0.5, 4)], "unscoped_raw_reward": [(0.6, 3)], "row_mean_raw_reward": [(0.6, 3)]}
    wrong = {**right, "episode_raw_reward": [(0.6, 3)]}

    assert compare(content(metrics=batches_of(right)), content(metrics=batches_of(wrong))).hints == ()


def test_a_sum_that_stayed_while_the_count_grew_is_told() -> None:
    right, wrong = {"episode_raw_reward": [(0.75, 2)]}, {"episode_raw_reward": [(0.5, 3)]}

    (hint,) = compare(content(metrics=batches_of(right)), content(metrics=batches_of(wrong))).hints

    assert "what is not scored (missing, NaN) counts as 0" in hint
    assert json.dumps(hint)
