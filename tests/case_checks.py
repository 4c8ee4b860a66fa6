"""What a worked case expects of a batch, and whether given tables say so."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.reference import Dump, Row, Tables

Adapter = tuple[str | None, int | None]


@dataclass(frozen=True)
class Expected:
    """What has to come out of one batch. Lists are in order of row, of group ordinal, or (rollouts) of first row."""

    metrics: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    # Of the relation `adapters`.
    adapters: dict[Adapter, dict[str, float | int | None]] = field(default_factory=dict)
    # Of the relation `metrics`: (value, count).
    adapter_metrics: dict[Adapter, dict[str, tuple[float | None, int]]] = field(default_factory=dict)
    advantages: list[float | None] | None = None
    row_advantages: list[float | None] | None = None
    batch: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[Any]] = field(default_factory=dict)
    groups: dict[str, list[Any]] = field(default_factory=dict)
    rollouts: dict[str, list[Any]] = field(default_factory=dict)
    findings: list[str] | None = None
    # Fields that the refusal has to name, as (row, field); a refused batch has no other figure.
    refused: list[tuple[int | None, str]] | None = None


@dataclass(frozen=True)
class Case:
    id: str
    title: str
    batches: list[tuple[Dump, Expected]]
    settings: dict[str, Any] = field(default_factory=dict)


def disagreements(tables: Mapping[str, list[Row]], dump: Dump, expected: Expected) -> list[str]:
    """What the rows of this batch in `tables` say otherwise; other batches in them are left alone."""
    own = {name: [row for row in rows if belongs(row, dump)] for name, rows in tables.items()}
    if expected.refused is not None:
        return refusal_disagreements(own, expected.refused)
    (batch,) = own["batches"]
    samples = sorted(own["samples"], key=lambda row: int(row["row"]))
    columns = {
        "samples": (samples, expected.samples),
        "prompt_groups": (sorted(own["prompt_groups"], key=lambda row: int(row["prompt_group"])), expected.groups),
        "rollouts": (in_row_order(own["rollouts"], samples), expected.rollouts),
    }
    found = cells("batches", batch, expected.batch)
    for name, wanted in (("advantage", expected.advantages), ("row_advantage", expected.row_advantages)):
        found += [] if wanted is None else column("samples", samples, name, wanted)
    for relation, (rows, wanted_columns) in columns.items():
        for name, values in wanted_columns.items():
            found += column(relation, rows, name, values)
    return found + metric_disagreements(own, expected) + finding_disagreements(own, expected.findings)


def belongs(row: Row, dump: Dump) -> bool:
    # A reader that is asked for one file may leave its findings without a batch until they are published.
    return (row["run"], row["split"], row["step"]) in ((dump.run, dump.split, dump.step), (None, None, None))


def refusal_disagreements(own: Tables, wanted: list[tuple[int | None, str]]) -> list[str]:
    published = [
        f"{name}: {len(rows)} rows of a refused batch" for name, rows in own.items() if name != "findings" and rows
    ]
    # A field may be named with its place in the file: metadata.prompt_group_sizes.
    errors = [(row["row"], row["field"].split(".")[-1]) for row in own["findings"] if row["severity"] == "error"]
    return published + (
        [] if sorted(errors, key=repr) == sorted(wanted, key=repr) else [f"refused for {errors}, want {wanted}"]
    )


def in_row_order(rollouts: list[Row], samples: list[Row]) -> list[Row]:
    """Rollouts by their first row; they only publish the mainstream one."""
    names = ("adapter_name", "adapter_slot", "kind", "id", "prompt_group")
    first: dict[tuple[Any, ...], int] = {}
    for row in samples:
        first.setdefault(tuple(row[name] for name in names), row["row"])
    return sorted(rollouts, key=lambda row: first[tuple(row[name] for name in names)])


def metric_disagreements(own: Tables, expected: Expected) -> list[str]:
    batch = {row["metric"]: row for row in own["metrics"] if row["scope"] == "batch"}
    adapters = {(row["adapter_name"], row["adapter_slot"]): row for row in own["adapters"]}
    found = []
    for metric, value in expected.metrics.items():
        found += cells(f"metrics {metric}", batch[metric], {"value": value})
    for metric, count in expected.counts.items():
        found += cells(f"metrics {metric}", batch[metric], {"count": count})
    for adapter, wanted in expected.adapters.items():
        found += cells(f"adapters {adapter}", adapters[adapter], wanted)
    own_metrics = {
        (row["adapter_name"], row["adapter_slot"], row["metric"]): row
        for row in own["metrics"]
        if row["scope"] == "adapter"
    }
    for adapter, figures in expected.adapter_metrics.items():
        for metric, figure in figures.items():
            wanted_row = dict(zip(("value", "count"), figure, strict=True))
            found += cells(f"metrics {adapter} {metric}", own_metrics[*adapter, metric], wanted_row)
    if expected.adapters and set(adapters) != set(expected.adapters):
        found.append(f"adapters: {sorted(adapters, key=repr)}")
    return found


def finding_disagreements(own: Tables, wanted: list[str] | None) -> list[str]:
    got = sorted(row["code"] for row in own["findings"])
    return [] if wanted is None or got == sorted(wanted) else [f"findings: got {got}, want {wanted}"]


def cells(where: str, row: Row, wanted: Mapping[str, Any]) -> list[str]:
    return [
        f"{where}: {name} got {row[name]!r}, want {value!r}"
        for name, value in wanted.items()
        if not same(row[name], value)
    ]


def column(relation: str, rows: list[Row], name: str, wanted: list[Any]) -> list[str]:
    got = [row[name] for row in rows]
    agree = len(got) == len(wanted) and all(same(one, other) for one, other in zip(got, wanted, strict=True))
    return [] if agree else [f"{relation}: {name} got {got}, want {wanted}"]


def same(got: object, want: object) -> bool:
    if isinstance(want, bool) or want is None or isinstance(want, str):
        return got is want or (isinstance(want, str) and got == want)
    return got is not None and bool(got == pytest.approx(want, rel=1e-6, abs=1.5e-6))
