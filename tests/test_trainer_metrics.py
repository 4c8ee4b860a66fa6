"""On dumps that trainers wrote, a metric that names a tracker's key equals what the trainer's formula gives.

Where a batch has several adapters the trainer's keys merge rows that have nothing to do with each other: there the
formula equals the metric only once the adapter is part of its keys, and as it stands it gives another number.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline import RunPlan, Settings
from pipeline.expressions.catalogue import METRICS, record_of
from pipeline.recomputing import Options
from tests import trainer_formulas as trainer
from tests.fixture_dumps import FIXTURES, RUNS, InertUnpickler
from tests.trainer_formulas import Logged, Sample, by_adapter

SINGLE = ("miles_single_run", "slime_plain_run")
ROLLOUTS_A_PROMPT = 4
MEAN = "rollout/episode_raw_reward"
Published = dict[tuple[str, int], dict[str, float]]
Ledgers = Callable[[str], Published]


def stems(*names: str, evaluation: bool = False) -> list[tuple[str, Path]]:
    """Return (run, dump) of some fixtures."""
    paths = [(name, path) for name in names for path in sorted((FIXTURES / RUNS[name]).glob("*.pt"))]
    return [(name, path) for name, path in paths if path.stem.startswith("eval_") == evaluation]


def labels(value: object) -> str:
    return value.stem if isinstance(value, Path) else str(value)


def whole_samples(path: Path) -> list[Sample]:
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        samples = InertUnpickler(io.BytesIO(archive.read(name))).load()["samples"]
    return [{**sample, "adapter": adapter_of(sample)} for sample in samples]


def adapter_of(sample: Sample) -> tuple[str, int] | None:
    adapter = sample.get("adapter")
    return None if adapter is None else (adapter.state["name"], adapter.state["slot"])


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Ledgers:
    made: dict[str, Published] = {}

    def of(name: str) -> Published:
        if name not in made:
            made[name] = recomputed(name, tmp_path_factory.mktemp(name))
        return made[name]

    return of


def recomputed(name: str, ledger: Path) -> Published:
    plan = RunPlan((str(FIXTURES / RUNS[name]),), Settings(n_samples_per_prompt=ROLLOUTS_A_PROMPT), name)
    pipeline.recompute([plan], ledger, Options(still_seconds=0))
    rows = pipeline.sql("SELECT split, step, metric, value FROM metrics WHERE scope = 'batch'", ledger).rows()
    found: Published = {}
    for split, step, metric, value in rows:
        found.setdefault((split, step), {})[metric] = value
    return found


def of_batch(published: Ledgers, run: str, path: Path) -> dict[str, float]:
    split = "eval" if path.stem.startswith("eval_") else "train"
    return published(run)[split, int(path.stem.rsplit("_", 1)[-1])]


def tracked(figures: dict[str, float], prefixes: tuple[str, ...]) -> Logged:
    """Return the figures that trainers log as well, under the trainers' keys; null ones are not logged."""
    keys = {key_of(metric): value for metric, value in figures.items() if value is not None}
    return {key: value for key, value in keys.items() if key.startswith(prefixes)}


def key_of(metric: str) -> str:
    """Return the tracker's key of a published metric, empty where it has none."""
    record = record_of(metric)
    if record is None or record.tracker is None:
        return ""
    if record.label is None:
        return record.tracker
    member = metric.removeprefix(record.name.partition("{")[0])
    return record.tracker.partition("{")[0] + member


def close(wanted: object) -> Any:
    return pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("run", "path"), stems(*SINGLE), ids=labels)
def test_a_train_batch_of_one_adapter_and_one_sample_a_rollout(run: str, path: Path, published: Ledgers) -> None:
    samples = whole_samples(path)

    theirs = {
        **trainer.per_row(samples),
        **trainer.episode_raw_reward(samples),
        **trainer.episode_lengths(samples),
        **trainer.constant_groups(samples),
        **trainer.pass_rates(samples, ROLLOUTS_A_PROMPT),
    }

    figures = of_batch(published, run, path)
    assert figures["zero_std/all_zero_share"] == close(theirs.pop("rollout/zero_std/all_zero_percentage"))
    assert figures["zero_std/all_one_share"] == close(theirs.pop("rollout/zero_std/all_one_percentage"))
    assert tracked(figures, ("rollout/", "perf/", "passrate/")) == close(theirs)


@pytest.mark.parametrize(("run", "path"), stems(*RUNS), ids=labels)
def test_what_needs_no_grouping_is_equal_in_every_train_batch(run: str, path: Path, published: Ledgers) -> None:
    samples = whole_samples(path)
    if not samples:
        assert of_batch(published, run, path).keys() <= {metric.name for metric in METRICS if not metric.support}
        return

    theirs = trainer.per_row(samples)

    ours = tracked(of_batch(published, run, path), ("rollout/", "perf/"))
    assert {key: ours.get(key) for key in theirs} == close(theirs)
    grouped = ("rollout/zero_std/", "rollout/episode_")
    assert {key for key in ours if not key.startswith(grouped)} == set(theirs)


@pytest.mark.parametrize(("run", "path"), stems(*SINGLE, evaluation=True), ids=labels)
def test_an_evaluation_batch(run: str, path: Path, published: Ledgers) -> None:
    samples = whole_samples(path)

    per_row, evaluated = trainer.per_row(samples), trainer.evaluation(samples)

    figures = of_batch(published, run, path)
    ours = tracked(figures, ("rollout/", "eval/"))
    assert {key: ours.get(key) for key in per_row} == close(per_row)
    assert ours["eval/NAME-none_reward_ratio"] == close(evaluated["eval/NAME-none_reward_ratio"])
    # A dump holds several data sets, each of which counts its samples from 0, and names none: only rows compare.
    scored = 1 - figures["unscored/missing"]
    assert figures["row_mean_raw_reward"] * scored == close(evaluated["eval/NAME"])


def test_slime_takes_the_reward_for_a_raw_reward_that_is_absent() -> None:
    """Here it is missing, and a finding: of these 16 samples 8 have a raw reward, and eight rewards are no raw ones."""
    samples = whole_samples(FIXTURES / RUNS["slime_plain_run"] / "0.pt")
    raws = [sample["metadata"].get("raw_reward") for sample in samples]
    filled = [sample["reward"] if raw is None else raw for sample, raw in zip(samples, raws, strict=True)]

    ours = trainer.episode_raw_reward(samples)

    assert raws.count(None) == 8
    assert sum(filled) / 16 == close(1.375)
    assert ours == close({MEAN: 2.25})


# --- several adapters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "step", "without_adapter", "right"),
    [
        # North and south both have index 0 and 1 in group 0: 10 rollouts of 12.
        ("miles_multilora_run", 0, 2.5 / 10, 2 / 12),
        # South's ids go on at 4 and north's at 8: nothing merges, and the two agree.
        ("miles_multilora_run", 1, -1 / 8, -1 / 8),
        # East (-1) and north (1) both have index 0 in group 0: 14 rollouts of 15.
        ("miles_multilora_run", 2, -1 / 14, -1 / 15),
        # North and south both have execution 1 in group 0, north in three rows and south in two: 11 rollouts of 12.
        ("miles_multilora_fanout_run", 0, 3 / 11, 3 / 12),
        # As above, south's ids go on at 4 and north's at 8.
        ("miles_multilora_fanout_run", 1, 3 / 8, 3 / 8),
        # East (1) and north (-1) both have index 0 in group 0: 14 rollouts of 15.
        ("miles_multilora_fanout_run", 2, -4 / 14, -4 / 15),
    ],
)
def test_equal_ids_of_several_adapters_are_one_rollout_for_the_trainer(
    run: str, step: int, without_adapter: float, right: float, published: Ledgers
) -> None:
    """Of the fan-out's step 0 the trainer merges two more rows: see the next test."""
    samples = whole_samples(FIXTURES / RUNS[run] / f"{step}.pt")

    figures = published(run)["train", step]

    assert trainer.episode_raw_reward(kinds_apart(samples))[MEAN] == close(without_adapter)
    assert trainer.episode_raw_reward(samples, by_adapter)[MEAN] == close(right)
    assert figures["episode_raw_reward"] == close(right)
    assert figures["unscoped_raw_reward"] == close(without_adapter)


def kinds_apart(samples: list[Sample]) -> list[Sample]:
    """Return samples whose indexes are no rollout_id of another, as no trainer does it."""
    return [{**sample, "index": (sample["index"],)} for sample in samples]


def test_an_index_of_one_adapter_is_a_rollout_id_of_another_for_the_trainer(published: Ledgers) -> None:
    """North's row 0 (1) has index 0 and no rollout_id, two rows of south (-1) have rollout_id 0: the three are one."""
    samples = whole_samples(FIXTURES / RUNS["miles_multilora_fanout_run"] / "0.pt")

    figures = published("miles_multilora_fanout_run")["train", 0]

    assert trainer.episode_raw_reward(samples)[MEAN] == close((3 - 1 / 3) / 10)
    assert figures["unscoped_raw_reward"] == close(3 / 11)
    assert figures["episode_raw_reward"] == close(3 / 12)


@pytest.mark.parametrize(
    ("run", "step", "without_adapter", "right"),
    [
        # South's group 1 is constant (1, 1), north's group 1 is not (1, 0, 1, 1): merged, none is.
        ("miles_multilora_run", 0, {}, {"1.0": 1}),
        # South's group 3 is constant and nobody else's; the merged group 2 is not, as are the two that it is made of.
        ("miles_multilora_run", 1, {"1.0": 1}, {"1.0": 1}),
        # East's groups 0 and 1 are single zeros, and vanish in north's groups 0 and 1.
        ("miles_multilora_run", 2, {"0.0": 2, "1.0": 1}, {"0.0": 4, "1.0": 1}),
        ("miles_multilora_fanout_run", 0, {}, {"1.0": 1}),
        ("miles_multilora_fanout_run", 1, {"1.0": 1}, {"1.0": 1}),
        # East's group 0 (1) and north's group 0 (all 0) are constant, each by itself; so is east's group 1 (all 0.5).
        ("miles_multilora_fanout_run", 2, {"0.0": 1, "1.0": 1}, {"0.0": 2, "0.5": 1, "1.0": 2}),
    ],
)
def test_a_group_that_is_constant_for_one_adapter_is_lost_among_the_rows_of_another(
    run: str, step: int, without_adapter: dict[str, int], right: dict[str, int], published: Ledgers
) -> None:
    samples = whole_samples(FIXTURES / RUNS[run] / f"{step}.pt")

    figures = published(run)["train", step]

    assert constant(trainer.constant_groups(samples), "rollout/zero_std/count_") == without_adapter
    assert constant(trainer.constant_groups(samples, by_adapter), "rollout/zero_std/count_") == right
    assert constant(figures, "zero_std/count_") == right


def constant(figures: Logged, prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in figures.items() if name.startswith(prefix)}


@pytest.mark.parametrize("step", [0, 1])
def test_groups_of_two_adapters_have_too_many_rows_for_the_trainers_pass_rates(step: int, published: Ledgers) -> None:
    """North's four rows and south's two are one group of six: not the four that make a group whole."""
    samples = whole_samples(FIXTURES / RUNS["miles_multilora_run"] / f"{step}.pt")

    figures = published("miles_multilora_run")["train", step]

    right = trainer.pass_rates(samples, ROLLOUTS_A_PROMPT, by_adapter)
    assert trainer.pass_rates(samples, ROLLOUTS_A_PROMPT) == {}
    assert len(right) == 3
    assert tracked(figures, ("passrate/",)) == close(right)


def test_rows_are_attempts_for_the_trainers_pass_rates(published: Ledgers) -> None:
    """In step 2 two rollouts of south in four rows are a whole group of four for the trainer, and none of north's is.

    Of north's four rollouts in group 0, and in group 1, none has a reward of 1: pass@k is 0. The trainer leaves these
    groups out, for they have more than four rows, and takes south's 3 of 4 passing rows for three passes.
    """
    samples = whole_samples(FIXTURES / RUNS["miles_multilora_fanout_run"] / "2.pt")
    one_row_each = [rows[0] for rows in trainer.rollouts(samples, by_adapter)]

    figures = published("miles_multilora_fanout_run")["train", 2]

    right = trainer.pass_rates(one_row_each, ROLLOUTS_A_PROMPT, by_adapter)
    theirs = trainer.pass_rates(samples, ROLLOUTS_A_PROMPT)
    assert right == {"passrate/pass@1": 0, "passrate/pass@2": 0, "passrate/pass@4": 0}
    assert theirs == close({"passrate/pass@1": 0.75, "passrate/pass@2": 11 / 12, "passrate/pass@4": 1})
    assert tracked(figures, ("passrate/",)) == close(right)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_the_trainer_logs_no_length_of_episodes_of_several_adapters(step: int, published: Ledgers) -> None:
    samples = whole_samples(FIXTURES / RUNS["miles_multilora_fanout_run"] / f"{step}.pt")

    figures = published("miles_multilora_fanout_run")["train", step]

    whole = [sum(sample["response_length"] for sample in rows) for rows in trainer.rollouts(samples, by_adapter)]
    assert trainer.episode_lengths(samples) == {}
    assert figures["episode_total_response_length/mean"] == close(sum(whole) / len(whole))
