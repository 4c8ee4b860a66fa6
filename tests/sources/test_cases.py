"""Faults that others met with files, by the number of their report, with the right values."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pipeline
from pipeline import RunPlan, Settings
from pipeline.recomputing import Options, Outcome
from pipeline.sources.writers import write_torch_dump
from tests.worked_cases import CASES

AT_ONCE = Options(still_seconds=0)


class Custom:
    """A class that no reader knows."""

    def __init__(self) -> None:
        self.score = 1.0


def recomputed(folder: Path, **settings: Any) -> tuple[Outcome, Path]:
    ledger = folder / "ledger"
    plan = RunPlan((str(folder / "dumps"),), Settings(**settings), "run")
    return pipeline.recompute([plan], ledger, AT_ONCE), ledger


def dumps(folder: Path) -> Path:
    (folder / "dumps").mkdir()
    return folder / "dumps"


def lines(*records: str | dict[str, Any]) -> str:
    return "".join((record if isinstance(record, str) else json.dumps(record)) + "\n" for record in records)


def sample(reward: object, **fields: Any) -> dict[str, Any]:
    return {"reward": reward, "response_length": 1, "group_index": 0, **fields}


def metric(ledger: Path, step: int = 0, split: str = "train", name: str = "episode_raw_reward") -> float:
    where = f"metric = '{name}' AND scope = 'batch' AND step = {step} AND split = '{split}'"
    value: float = pipeline.sql(f"SELECT value FROM metrics WHERE {where}", ledger).item()
    return value


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 10, 12, 13, 14, 16, 20, 21, 26, 30, 50, 52, 56])
def test_every_report_about_numbers_is_a_worked_case(number: int) -> None:
    assert any(case.id == str(number) or case.id.startswith((f"{number}-", f"{number}.")) for case in CASES)


def test_42_a_dump_with_an_unknown_class_is_read_for_its_plain_fields(tmp_path: Path) -> None:
    place = dumps(tmp_path)
    write_torch_dump(place / "0.pt", {"rollout_id": 0, "metadata": {}, "samples": [sample(1.0)]})
    odd = sample(0.5, metadata={"judge": Custom()})
    write_torch_dump(place / "1.pt", {"rollout_id": 1, "metadata": {}, "samples": [odd]})

    outcome, ledger = recomputed(tmp_path)

    assert outcome.refused == 0
    assert (metric(ledger, 0), metric(ledger, 1)) == (1.0, 0.5)
    (finding,) = pipeline.sql("SELECT code, severity, value FROM findings", ledger).to_dicts()
    assert (finding["code"], finding["severity"]) == ("unknown_class", "warning")
    assert "Custom" in finding["value"]


def test_43_files_that_are_being_written_wait_and_old_broken_ones_are_told(tmp_path: Path) -> None:
    place = dumps(tmp_path)
    write_torch_dump(place / "0.pt", {"rollout_id": 0, "samples": [sample(1.0)]})
    whole = (place / "0.pt").read_bytes()
    (place / "1.pt").write_bytes(whole[: len(whole) // 2])
    pl.DataFrame({"reward": [1.0], "response_length": [1]}).write_parquet(place / "2.parquet")
    (place / "2.parquet").write_bytes((place / "2.parquet").read_bytes()[:100])
    (place / "3.parquet").write_bytes(b"")
    (place / "4.jsonl").write_text(lines(sample(1.0)) + '{"reward": 1.0, "resp')
    hour = time.time() - 3600
    for name in ("0.pt", "2.parquet", "3.parquet"):
        os.utime(place / name, (hour, hour))
    half_a_minute = time.time() - 30
    for name in ("1.pt", "4.jsonl"):
        os.utime(place / name, (half_a_minute, half_a_minute))

    plan = RunPlan((str(place),), Settings(), "run")
    outcome = pipeline.recompute([plan], tmp_path / "ledger")

    assert {Path(name).name for name in outcome.pending} == {"1.pt", "4.jsonl"}
    told = pipeline.sql("SELECT source, code FROM findings", tmp_path / "ledger")
    assert {Path(name).name: code for name, code in told.iter_rows()} == {
        "2.parquet": "unreadable_file",
        "3.parquet": "unreadable_file",
    }
    assert pipeline.sql("SELECT step FROM batches", tmp_path / "ledger")["step"].to_list() == [0]


def test_45_literals_that_json_lacks_are_states(tmp_path: Path) -> None:
    text = lines(*(f'{{"reward": {value}, "response_length": 1}}' for value in ("1.0", "NaN", "-Infinity")))
    (dumps(tmp_path) / "0.jsonl").write_text(text)

    _, ledger = recomputed(tmp_path)

    (counts,) = pipeline.sql("SELECT samples, reward_nan, reward_inf FROM batches", ledger).rows()
    assert counts == (3, 1, 1)
    assert metric(ledger) == 1.0


def test_47_evaluation_is_kept_apart_and_steps_are_numbers(tmp_path: Path) -> None:
    place = dumps(tmp_path)
    for name, reward in (("0", 0.0), ("eval_0", 1.0), ("9", 0.0), ("10", 0.0)):
        step = int(name.rsplit("_", 1)[-1])
        write_torch_dump(place / f"{name}.pt", {"rollout_id": step, "samples": [sample(reward), sample(reward)]})
    write_torch_dump(place / "eval_final.pt", {"rollout_id": 10, "samples": [sample(1.0)]})

    _, ledger = recomputed(tmp_path)

    assert metric(ledger, 0) == 0.0
    assert metric(ledger, 0, "eval") == 1.0
    steps = pipeline.sql("SELECT step FROM batches WHERE split = 'train' ORDER BY step", ledger)["step"]
    assert steps.to_list() == [0, 9, 10]
    assert pipeline.sql("SELECT code FROM findings", ledger).item() == "foreign_name"


def test_52_numbers_and_dictionaries_in_one_file(tmp_path: Path) -> None:
    records = [sample(reward) for reward in (1.0, {"acc": 1.0}, "1.0", True, None)]
    (dumps(tmp_path) / "0.jsonl").write_text(lines(*records))

    _, ledger = recomputed(tmp_path, reward_key="acc")

    states = pipeline.sql("SELECT reward, reward_state FROM samples ORDER BY row", ledger).rows()
    assert states == [(1.0, "ok"), (1.0, "ok"), (None, "other"), (1.0, "ok"), (None, "missing")]


@pytest.mark.parametrize("late", [100, 101, 5_000])
def test_53_a_key_that_is_first_seen_late_is_not_lost(late: int, tmp_path: Path) -> None:
    common = {"response_length": 1, "has_raw_reward": True}
    records = [
        {"reward": 0, **common} if row < late else {"reward": 0, "raw_reward": 1.0, **common} for row in range(10_000)
    ]
    (dumps(tmp_path) / "0.jsonl").write_text(lines(*records))

    _, ledger = recomputed(tmp_path)

    (states,) = pipeline.sql(
        "SELECT count(*) FILTER (raw_reward_state = 'ok'), count(*) FILTER (raw_reward_state = 'missing') FROM samples",
        ledger,
    ).rows()
    assert states == (10_000 - late, late)
    assert metric(ledger) == 1.0


def test_54_files_of_one_run_differ_in_their_types(tmp_path: Path) -> None:
    place = dumps(tmp_path)
    length = [1, 1]
    pl.DataFrame({"reward": [1, 0], "response_length": length}).write_parquet(place / "0.parquet")
    pl.DataFrame({"reward": [0.5, 0.25], "response_length": length}).write_parquet(place / "1.parquet")
    nothing = pl.Series("reward", [None, None], dtype=pl.Null)
    pl.DataFrame([nothing, pl.Series("response_length", length)]).write_parquet(place / "2.parquet")
    frame = pl.DataFrame({"adapter_name": ["a"], "response_length": [1], "reward": [1.0]})
    frame.write_parquet(place / "3.parquet")

    outcome, ledger = recomputed(tmp_path)

    assert outcome.refused == 0
    rewards = pipeline.sql("SELECT reward FROM samples ORDER BY step, row", ledger)["reward"]
    assert rewards.to_list() == [1.0, 0.0, 0.5, 0.25, None, None, 1.0]
    assert rewards.mean() == 0.55


def test_56_a_rollout_with_nothing_but_absent_rewards_is_not_counted(tmp_path: Path) -> None:
    records = [sample(None, index=0), sample(None, index=0), sample(1.0, index=1), sample(None, index=2, loss_mask=[])]
    records[-1]["response_length"] = 0
    (dumps(tmp_path) / "0.jsonl").write_text(lines(*records))

    _, ledger = recomputed(tmp_path)

    assert metric(ledger) == 1.0
    rollouts = pipeline.sql("SELECT id, raw_reward, mainstream_tokens FROM rollouts ORDER BY id", ledger).rows()
    assert rollouts == [(0, None, 1), (1, 1.0, 1), (2, None, 0)]
    assert pipeline.sql("SELECT rollouts, scored_rollouts FROM batches", ledger).rows() == [(3, 1)]
