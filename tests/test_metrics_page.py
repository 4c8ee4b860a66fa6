"""`docs/metrics.md` is the catalogue, and its worked example is right: by hand, by command, by the trainers' formulas.

To make the page again: `python -c "from pipeline.audit.metrics_page import page; print(page(), end='')"`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.audit import worked_example
from pipeline.audit.arithmetic import value_of
from pipeline.audit.metrics_page import page
from pipeline.cli.app import run
from pipeline.expressions.catalogue import FAMILIES, METRICS, record_of
from tests import trainer_formulas as trainer
from tests.trainer_formulas import Logged, Sample

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
WORKED = worked_example.arithmetic()
DIFFERING = {name: worked["trainer"] for name, worked in WORKED.items() if "trainer" in worked}


def close(wanted: object) -> Any:
    return pytest.approx(wanted, rel=1e-12, abs=1e-12)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_the_one_that_is_made() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_family_is_a_section_and_every_metric_a_row() -> None:
    text = page()

    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[: len(FAMILIES)] == list(FAMILIES)
    assert all(f"\n| `{metric.name}` | {metric.unit} | " in text for metric in METRICS)


# --- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("none", None),
        ("7", 7.0),
        ("(4 + 6) / 2 - 1", 4.0),
        ("2 * 3**2", 18.0),
        ("1 - C(3, 2) / C(4, 2)", 0.5),
        ("max(sqrt(4), 1e-6) + min(1, 0)", 2.0),
    ],
)
def test_arithmetic_is_worked_out(text: str, value: float | None) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize("text", ["x", "open('file')", "C.real", "True", "'a' * 9", "[1][0]", "1 if 1 else 0"])
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no arithmetic"):
        value_of(text)


def test_every_metric_of_the_catalogue_is_worked_out_and_no_other() -> None:
    records = [record_of(name) for name in WORKED]

    assert {record.name for record in records if record is not None} == {metric.name for metric in METRICS}
    assert None not in records


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float | None, int]]:
    """The metrics of the example as the command publishes them, by name."""
    ledger = tmp_path_factory.mktemp("example")
    settings = ["--reward-key", "acc", "--log-reward-category", "error", "--n-samples-per-prompt", "2"]
    code = run(["recompute", "--still", "0", str(worked_example.BATCH), "--ledger", str(ledger), *settings])
    assert code == 0
    question = """
        SELECT metric, value, count FROM metrics
        WHERE step = 7 AND (scope = 'batch' OR metric = 'signal_share' AND adapter_name = 'a')
    """
    return {metric: (value, count) for metric, value, count in pipeline.sql(question, ledger).rows()}


def test_the_command_gives_what_was_worked_out_by_hand(published: dict[str, tuple[float | None, int]]) -> None:
    by_hand = {name: value_of(worked["arithmetic"]) for name, worked in WORKED.items()}

    assert {name: value for name, (value, _) in published.items() if value is not None} == close(known(by_hand))
    assert {name: count for name, (_, count) in published.items()} == {n: w["count"] for n, w in WORKED.items()}


def known(figures: dict[str, float | None]) -> Logged:
    return {name: value for name, value in figures.items() if value is not None}


def test_the_page_shows_those_figures(published: dict[str, tuple[float | None, int]]) -> None:
    figures = worked_example.figures()

    assert {figure.metric: (figure.value, figure.count) for figure in figures} == published


# --- by the trainers' formulas ----------------------------------------------------------------------------------------


def test_metrics_that_differ_on_purpose_have_the_trainers_figure() -> None:
    expected = {name for name in WORKED if (record := record_of(name)) is not None and record.differs is not None}

    assert set(DIFFERING) == expected


def test_the_trainers_figures_are_what_their_formulas_give() -> None:
    samples = [flat(sample) for sample in worked_example.records()]
    raws = [raw for sample in samples if (raw := sample["metadata"]["raw_reward"]) is not None]
    logged = {
        "rollout/num_training_samples": float(len(samples)),
        "rollout/truncated_ratio": [sample["status"] for sample in samples].count("truncated") / len(samples),
        "rollout/raw_reward": math.fsum(raws) / len(raws),
        **trainer.episode_raw_reward(samples),
        **trainer.episode_lengths(samples),
        **trainer.constant_groups(samples),
        **trainer.pass_rates(samples, 2),
        **trainer.evaluation(samples),
    }

    theirs = {name: of_trainer(name, logged) for name in DIFFERING}

    assert known(theirs) == close(known({name: value_of(text) for name, text in DIFFERING.items()}))


def flat(sample: Sample) -> Sample:
    """Return a sample whose reward is the entry that the trainer was told to take, and whose adapter can be a key."""
    reward, adapter = sample["reward"], sample["adapter"]
    return {
        **sample,
        "reward": None if reward is None else reward["acc"],
        "adapter": (adapter["name"], adapter["slot"]),
    }


def of_trainer(name: str, logged: Logged) -> float | None:
    record = record_of(name)
    assert record is not None
    key = str(record.tracker or record.compare)
    member = name.removeprefix(record.name.partition("{")[0])
    return logged.get(key if record.label is None else key.partition("{")[0] + member)
