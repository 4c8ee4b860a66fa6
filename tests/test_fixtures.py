"""The dumps that the trainers' own code wrote give the published right values, through the command and the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pipeline
from pipeline.cli.app import run
from tests.fixture_dumps import FIXTURES, RUNS, load_expected

OPTIONS = {
    "grpo": ["--advantage-estimator", "grpo"],
    "grpo_nostd": ["--no-grpo-std-normalization"],
    "reinforce_plus_plus_baseline": ["--advantage-estimator", "reinforce_plus_plus_baseline"],
    "ppo": ["--advantage-estimator", "ppo"],
}
PARTIAL = FIXTURES / "miles" / "partial"


def close(value: object) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def recomputed(name: str, ledger: Path, *options: str) -> dict[str, Any]:
    expected = load_expected(name)
    chosen = [
        part for key, value in expected["settings"].items() for part in (f"--{key.replace('_', '-')}", str(value))
    ]
    code = run(
        [
            "recompute",
            "--still",
            "0",
            str(FIXTURES / RUNS[name]),
            "--ledger",
            str(ledger),
            "--run",
            name,
            *chosen,
            *options,
        ]
    )
    assert code == 0
    return expected


def place(stem: str) -> str:
    split = "eval" if stem.startswith("eval_") else "train"
    return f"split = '{split}' AND step = {stem.rsplit('_', 1)[-1]}"


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("setting", OPTIONS)
def test_advantages(name: str, setting: str, tmp_path: Path) -> None:
    expected = recomputed(name, tmp_path, *OPTIONS[setting])

    for stem, batch in expected["batches"].items():
        rows = pipeline.sql(f"SELECT advantage FROM samples WHERE {place(stem)} ORDER BY row", tmp_path)
        wanted = (batch["advantage"] or {}).get(setting)
        if wanted is None:
            assert rows["advantage"].null_count() == rows.height
        else:
            assert rows["advantage"].to_list() == close(wanted)


@pytest.mark.parametrize("name", RUNS)
def test_metrics_and_counts(name: str, tmp_path: Path) -> None:
    expected = recomputed(name, tmp_path)

    for stem, batch in expected["batches"].items():
        metrics = pipeline.sql(f"SELECT metric, value FROM metrics WHERE scope = 'batch' AND {place(stem)}", tmp_path)
        (counts,) = pipeline.sql(f"SELECT * FROM batches WHERE {place(stem)}", tmp_path).to_dicts()
        figures = dict(metrics.iter_rows())
        for metric in ("num_training_samples", "episode_raw_reward", "unscoped_raw_reward", "row_mean_raw_reward"):
            assert figures[metric] == close(batch[metric])
        assert counts["scored_rollouts"] == batch["scored_rollouts"]
        assert counts["group_source"] == batch["segment_source"]


@pytest.mark.parametrize("name", RUNS)
def test_samples(name: str, tmp_path: Path) -> None:
    expected = recomputed(name, tmp_path)

    for stem, batch in expected["batches"].items():
        rows = pipeline.sql(f"SELECT row, is_mainstream, trainable_tokens FROM samples WHERE {place(stem)}", tmp_path)
        rows = rows.sort("row")
        assert rows["trainable_tokens"].to_list() == batch["trainable_tokens"]
        assert rows.filter("is_mainstream")["row"].to_list() == batch["mainstream_rows"]


@pytest.mark.parametrize("name", RUNS)
def test_adapters(name: str, tmp_path: Path) -> None:
    expected = recomputed(name, tmp_path)

    for stem, batch in expected["batches"].items():
        rows = pipeline.sql(f"SELECT * FROM adapters WHERE {place(stem)}", tmp_path)
        label = pl.format("{}#{}", "adapter_name", "adapter_slot").fill_null("-")
        found = {row["label"]: row for row in rows.with_columns(label=label).iter_rows(named=True)}
        figures = {
            "adapter_mean": "episode_raw_reward",
            "adapter_rollouts": "scored_rollouts",
            "weight_scoped": "weight_scoped",
            "weight_unscoped": "weight_unscoped",
            "weight_by_rows": "weight_by_rows",
        }
        for wanted, column in figures.items():
            assert {key: row[column] for key, row in found.items()} == close(batch[wanted])


def test_of_damaged_dumps_the_readable_are_published_and_the_others_named(tmp_path: Path) -> None:
    code = run(["recompute", "--still", "0", str(PARTIAL), "--ledger", str(tmp_path)])

    published = pipeline.sql("SELECT source FROM batches", tmp_path)["source"]
    findings = pipeline.sql("SELECT source, code FROM findings", tmp_path)
    assert code == 6
    assert [Path(source).name for source in published] == ["0.pt"]
    assert {Path(source).name: code for source, code in findings.iter_rows()} == {
        "1.pt": "unreadable_file",
        "2.pt": "unreadable_file",
        "3.pt": "unreadable_file",
        "4.pt": "step_mismatch",
        "7.pt": "step_mismatch",
        "eval_x.pt": "foreign_name",
    }


def test_trailing_junk_does_no_harm(tmp_path: Path) -> None:
    dump = tmp_path / "0.pt"
    dump.write_bytes((PARTIAL / "rollout_data" / "4.pt").read_bytes())

    code = run(["recompute", "--still", "0", str(dump), "--ledger", str(tmp_path / "ledger")])

    assert code == 0
    assert pipeline.sql("SELECT samples FROM batches", tmp_path / "ledger").item() == 16


def test_a_resumed_run_replaces_its_steps(tmp_path: Path) -> None:
    for folder in ("before", "after_resume"):
        source = str(FIXTURES / "miles" / "rerun" / folder)
        assert run(["recompute", "--still", "0", source, "--run", "rerun", "--ledger", str(tmp_path / "both")]) == 0
    run(["recompute", "--still", "0", source, "--run", "rerun", "--ledger", str(tmp_path / "later")])

    question = "SELECT * EXCLUDE (prompt_group) FROM samples ORDER BY run, split, step, row"
    assert pipeline.sql(question, tmp_path / "both").equals(pipeline.sql(question, tmp_path / "later"))
