"""The history gate: is a metric where its own trusted history says it is?

A two-sided corridor around the mean of the newest trusted points: max(absolute, relative * |mean|) either way, so that
a reward that rose too far fails as well. Too few trusted points: inactive, which is no failure. A metric that is
missing, null, NaN or a mean of nothing: an error, never a pass.

Source: the metric-history gate of radixark/miles (`tests/ci/metric_history/gate.py`, `constraints.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from pipeline.errors import UsageError
from pipeline.snapshots import gate_history, ledger_content
from pipeline.snapshots.tolerance import METRIC_TABLE
from schemas.snapshot import Corridor, Selection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Status = Literal["pass", "fail", "inactive", "error"]


@dataclass(frozen=True)
class Target:
    """Which value of a ledger is gated: a metric of a run at a step, of the batch or of one adapter.

    Args:
        metric: its name.
        run: the run; may be left out where the ledger has one.
        split: train or eval.
        step: the step; by default the last one.
        adapter: `NAME` or `NAME#SLOT`; by default the whole batch.
        series: what it is compared within; by default the run's name.
    """

    metric: str
    run: str | None = None
    split: Literal["train", "eval"] = "train"
    step: int | None = None
    adapter: str | None = None
    series: str | None = None

    @property
    def label(self) -> str:
        """Return the metric's name, with the adapter's where it is one adapter's."""
        return self.metric if self.adapter is None else f"{self.metric} of {self.adapter}"


@dataclass(frozen=True)
class Judged:
    """What the gate says.

    `low` and `high` are the corridor, `mean` and `points` what it was made of; null and 0 where there is none.
    """

    status: Status
    metric: str
    series: str
    run: str
    step: int | None
    value: float | None
    count: int | None
    mean: float | None
    low: float | None
    high: float | None
    points: int
    reason: str
    recorded: str | None = None


def corridor(metric: str, given: Mapping[str, Corridor], options: Mapping[str, Any]) -> Corridor:
    """Return the corridor of a metric: options over the section's entry that fits, a name over a pattern.

    Raises:
        UsageError: there is none, so that any value but the mean would fail.
    """
    fitting = [one for pattern, one in given.items() if fnmatchcase(metric, pattern)]
    base = given.get(metric) or (fitting[-1] if fitting else Corridor())
    values = {**base.model_dump(), **{name: value for name, value in options.items() if value is not None}}
    try:
        chosen = Corridor.model_validate(values)
    except ValueError as error:
        message = f"corridor of {metric}: {str(error).splitlines()[2].strip()}"
        raise UsageError(message) from error
    if chosen.absolute == 0 and chosen.relative == 0:
        message = f"corridor of {metric}: give --absolute or --relative, or [snapshot.gate] in the configuration file"
        raise UsageError(message)
    return chosen


def judge(target: Target, ledger: Path, snapshots: Path, band: Corridor) -> Judged:
    """Judge a value of a ledger by its trusted history; nothing is written.

    Raises:
        NoInputError: there is no ledger, or the history cannot be read.
        UsageError: the ledger has several runs and none is named.
    """
    rows, run = _rows(target, ledger)
    series = target.series or run
    blank = Judged("error", target.label, series, run, None, None, None, None, None, None, 0, "")
    if rows.height != 1:
        found = "is missing" if rows.is_empty() else f"has {rows.height} adapters of that name; give NAME#SLOT"
        where = f"run {run}, {target.split}" + ("" if target.step is None else f", step {target.step}")
        return replace(blank, step=target.step, reason=f"{target.label} {found} ({where})")
    step, value, count = rows.select("step", "value", "count").row(0)
    blank = replace(blank, step=step, value=value, count=count)
    if value is None or not math.isfinite(value) or count == 0:
        reason = f"{target.label} is {'a mean of nothing' if count == 0 else value} at step {step}"
        return replace(blank, value=None, reason=reason)
    return _against_history(blank, target, snapshots, band)


def judge_and_record(target: Target, ledger: Path, snapshots: Path, band: Corridor, by: str | None = None) -> Judged:
    """Judge a value and add it to the history, trusted if it passed or the gate was inactive. Errors are not added."""
    judged = judge(target, ledger, snapshots, band)
    if judged.status == "error":
        return judged
    fields = {
        "series": judged.series,
        "metric": judged.metric,
        "run": judged.run,
        "split": target.split,
        "step": judged.step,
        "value": judged.value,
        "count": judged.count,
        "status": judged.status,
    }
    return replace(judged, recorded=gate_history.record(snapshots, fields, by).id)


def _against_history(current: Judged, target: Target, snapshots: Path, band: Corridor) -> Judged:
    known = gate_history.points(snapshots, current.series, current.metric)
    # What was recorded of this very step would confirm itself.
    trusted = [p for p in known if p.trusted and p.place != (current.run, target.split, current.step)][-band.window :]
    if len(trusted) < band.points:
        reason = f"{len(trusted)} trusted points of {band.points}: a cold start"
        return replace(current, status="inactive", points=len(trusted), reason=reason)
    mean = math.fsum(point.value for point in trusted) / len(trusted)
    width = max(band.absolute, band.relative * abs(mean))
    value = current.value if current.value is not None else math.nan
    # Asked so that only a value shown to be inside passes.
    inside = abs(value - mean) <= width
    reason = "inside the corridor" if inside else f"{'above' if value > mean else 'below'} the corridor"
    current = replace(current, mean=mean, low=mean - width, high=mean + width, points=len(trusted))
    return replace(current, status="pass" if inside else "fail", reason=reason)


def _rows(target: Target, ledger: Path) -> tuple[pl.DataFrame, str]:
    runs = (target.run,) if target.run is not None else ()
    selection = Selection(runs=runs, split=target.split, first_step=target.step, last_step=target.step)
    content = ledger_content.of_ledger(ledger, selection.model_copy(update={"tables": ("metrics", "batches")}))
    batches = content.tables["batches"].sizes
    names = batches["run"].unique().sort().to_list()
    if target.run is None and len(names) > 1:
        message = f"{ledger} has the runs {', '.join(names)}: name one with --run"
        raise UsageError(message)
    table = content.tables[METRIC_TABLE]
    newest = batches.filter(pl.col("step") == pl.col("step").max())
    rows = table.read(newest, table.schema.names()).filter(pl.col("metric") == target.metric)
    return rows.filter(_of_adapter(target.adapter)), target.run or (names[0] if names else "")


def _of_adapter(adapter: str | None) -> pl.Expr:
    if adapter is None:
        return pl.col("scope") == "batch"
    name, mark, slot = adapter.rpartition("#")
    if mark and slot.lstrip("-").isdecimal():
        chosen = (pl.col("adapter_name") == name) & (pl.col("adapter_slot") == int(slot))
    else:
        chosen = pl.col("adapter_name") == adapter
    return (pl.col("scope") == "adapter") & chosen
