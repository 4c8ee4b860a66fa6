"""The example in the repository: made by its generator, read by the pipeline, and what the README says of it."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pipeline
from pipeline import RunPlan, Settings
from pipeline.expressions.catalogue import selected
from pipeline.recomputing import Options
from schemas.settings import LedgerConfig
from tests.accounting import TABLES
from tests.comparison import assert_tables_agree
from tests.fixture_dumps import load_dump
from tests.metric_reference import account_catalogue

if TYPE_CHECKING:
    from types import ModuleType

    from tests.reference import Row

EXAMPLES = Path(__file__).parent.parent / "examples"
DUMPS = EXAMPLES / "three-adapters" / "rollout_data"
LAST = 39


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("example") / "ledger"
    config = LedgerConfig.model_validate(tomllib.loads((EXAMPLES / "ledger.toml").read_text(encoding="utf-8")))
    (run,) = config.runs
    plan = RunPlan(tuple(str(EXAMPLES / source) for source in run.sources), Settings(**config.defaults), run.name)
    # A fresh clone's files are young; they need not be waited for.
    outcome = pipeline.recompute([plan], directory, Options(still_seconds=0))
    assert not outcome.findings
    return directory


def rows(ledger: Path, statement: str) -> list[Row]:
    return pipeline.sql(statement, ledger).rows(named=True)


def generator() -> ModuleType:
    path = EXAMPLES / "make_dumps.py"
    spec = importlib.util.spec_from_file_location("make_dumps", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A data class looks its own module up by name.
    sys.modules["make_dumps"] = module
    spec.loader.exec_module(module)
    return module


def test_the_generator_makes_the_files_of_the_repository(tmp_path: Path) -> None:
    generator().main(tmp_path)

    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.pt")}
    stored = {path.relative_to(DUMPS.parent): path.read_bytes() for path in DUMPS.iterdir()}
    assert sorted(made) == sorted(stored)
    assert [path.name for path in stored if made[path] != stored[path]] == []
    assert len(stored) == 41
    assert sum(map(len, stored.values())) < 1_500_000


def test_figures_of_the_last_step(ledger: Path) -> None:
    names = (metric.name for metric in selected(["accounting"]))
    metrics = rows(
        ledger, f"FROM metrics SELECT metric, value WHERE split = 'train' AND step = {LAST} AND scope = 'batch'"
    )

    found = {row["metric"]: row["value"] for row in metrics}
    assert {name: round(found[name], 3) for name in names} == {
        "num_training_samples": 123,
        "episode_raw_reward": 0.66,
        "row_mean_raw_reward": 0.455,
        "unscoped_raw_reward": 0.516,
        "adapter_macro_raw_reward": 0.627,
    }


def test_the_query_of_the_demo(ledger: Path) -> None:
    found = pipeline.sql((EXAMPLES / "weights.sql").read_text(encoding="utf-8"), ledger)

    assert found.columns == [
        "adapter",
        "samples",
        "rollouts",
        "episode_raw_reward",
        "weight_by_rows",
        "weight_unscoped",
        "weight_scoped",
    ]
    assert found.rows() == [
        ("math#0", 24, 24, 0.955, 0.204, 0.31, 0.379),
        ("code#1", 24, 20, 0.75, 0.213, 0.226, 0.328),
        ("search#2", 75, 20, 0.177, 0.583, 0.464, 0.293),
        ("mean reward", 123, 64, 0.66, 0.455, 0.516, 0.66),
    ]


def test_every_adapter_gets_better_and_the_mean_over_rows_falls(ledger: Path) -> None:
    stretch = "CASE WHEN step BETWEEN 10 AND 14 THEN 'middle' WHEN step >= 35 THEN 'end' END"
    means = f"SELECT {stretch} AS stretch, avg(value) AS mean FROM metrics WHERE split = 'train'"
    where = "WHERE stretch IS NOT NULL"

    per_adapter = rows(
        ledger,
        f"FROM (SELECT {stretch} AS stretch, adapter_name, avg(episode_raw_reward) AS mean FROM adapters "
        f"WHERE split = 'train' GROUP BY ALL) {where}",
    )
    adapters = {(row["adapter_name"], row["stretch"]): row["mean"] for row in per_adapter}
    right, by_rows = (
        {
            row["stretch"]: row["mean"]
            for row in rows(ledger, f"FROM ({means} AND scope = 'batch' AND metric = '{metric}' GROUP BY ALL) {where}")
        }
        for metric in ("episode_raw_reward", "row_mean_raw_reward")
    )

    assert all(adapters[name, "end"] > adapters[name, "middle"] for name in ("math", "code"))
    assert right["end"] > right["middle"] + 0.05
    assert by_rows["end"] < by_rows["middle"] - 0.05


def test_there_is_some_of_everything(ledger: Path) -> None:
    (found,) = rows(
        ledger,
        """
        SELECT count(*) AS samples, count(*) FILTER (remove_sample) AS removed,
            count(*) FILTER (status = 'truncated') AS truncated, count(*) FILTER (reward_state = 'missing') AS unscored,
            (SELECT count(*) FROM rollouts WHERE siblings_differ) AS siblings_differ,
            (SELECT max(samples) FROM rollouts) AS fan_out,
            (SELECT list(DISTINCT group_source ORDER BY group_source) FROM batches) AS group_sources,
        FROM samples
        """,
    )

    assert found == {
        "samples": 3693,
        "removed": 113,
        "truncated": 205,
        "unscored": 117,
        "siblings_differ": 208,
        "fan_out": 4,
        "group_sources": ["explicit", "whole_batch"],
    }


def test_the_reference_agrees(ledger: Path) -> None:
    (batch,) = rows(ledger, "SELECT DISTINCT run, settings FROM batches")
    dumps = [load_dump(path, batch["run"]) for path in sorted(DUMPS.iterdir())]

    actual = {table.relation: rows(ledger, f"FROM {table.relation}") for table in TABLES}

    expected = account_catalogue(dumps, json.loads(batch["settings"]), actual["samples"])

    assert_tables_agree(actual, expected)
