"""The small batch of `docs/worked-example`: its records, the arithmetic of its metrics, and what they come to here."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.expressions.catalogue import METRICS, Metric, record_of
from pipeline.recomputing.chunk import Chunk, compute
from pipeline.sources.batch import SourceFile
from pipeline.sources.reading import read
from schemas.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parents[2] / "docs" / "worked-example"
BATCH = FOLDER / "step_7.jsonl"
ARITHMETIC = FOLDER / "arithmetic.toml"
SETTINGS = Settings(reward_key="acc", log_reward_category="error", n_samples_per_prompt=2)
ADAPTER = "a"
"""Whose figures stand for metrics that only adapters have."""


@dataclass(frozen=True)
class Figure:
    """One metric of the example.

    Args:
        metric: its name, of a member where it is a family of metrics.
        record: its record of the catalogue.
        arithmetic: what it is made of, by hand.
        value: what it comes to here.
        count: the count beside it.
        trainer: what the formula behind the trainers' key is made of; null where it is no other.
    """

    metric: str
    record: Metric
    arithmetic: str
    value: float | None
    count: int
    trainer: str | None


def records() -> list[dict[str, Any]]:
    """Return the samples as they lie in the file."""
    return [json.loads(line) for line in BATCH.read_text(encoding="utf-8").splitlines()]


def arithmetic() -> dict[str, dict[str, Any]]:
    """Return what every metric is made of, by hand."""
    return tomllib.loads(ARITHMETIC.read_text(encoding="utf-8"))


def figures() -> list[Figure]:
    """Return every metric of the example, in the order of the catalogue, then of the arithmetic."""
    metrics = _computed()
    place = {metric.name: number for number, metric in enumerate(METRICS)}
    found = [_figure(name, worked, metrics) for name, worked in arithmetic().items()]
    return sorted(found, key=lambda figure: place[figure.record.name])


def _figure(name: str, worked: Mapping[str, Any], metrics: Mapping[str, tuple[float | None, int]]) -> Figure:
    record = record_of(name)
    if record is None or name not in metrics:
        message = f"{ARITHMETIC.name}: {name} is no metric of the example"
        raise ValueError(message)
    return Figure(name, record, worked["arithmetic"], *metrics[name], worked.get("trainer"))


def _computed() -> dict[str, tuple[float | None, int]]:
    source = SourceFile(BATCH, run="worked-example", split="train", step=7)
    metrics = compute(Chunk(tuple(read(source)), SETTINGS)).tables["metrics"]
    only = [metric.name for metric in METRICS if metric.scopes == ("adapter",)]
    adapter = (pl.col("adapter_name") == ADAPTER) & pl.col("metric").is_in(only)
    rows = metrics.filter((pl.col("scope") == "batch") | adapter).select("metric", "value", "count").rows()
    return {name: (value, count) for name, value, count in rows}
