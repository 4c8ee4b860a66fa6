"""`rollout-ledger snapshot gate`: is a metric where its own trusted history says it is?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pipeline.cli import console
from pipeline.cli.snapshot_options import Places
from pipeline.errors import Exit

if TYPE_CHECKING:
    from pathlib import Path

_HERE = Places()
_CODES = {"pass": Exit.DONE, "inactive": Exit.DONE, "fail": Exit.DIFFERENCE, "error": Exit.NO_INPUT}


def gate(
    metric: str = "episode_raw_reward",
    /,
    *,
    places: Annotated[Places, Parameter(name="*")] = _HERE,
    run: str | None = None,
    split: Literal["train", "eval"] = "train",
    step: int | None = None,
    adapter: str | None = None,
    series: str | None = None,
    absolute: float | None = None,
    relative: float | None = None,
    points: int | None = None,
    window: int | None = None,
    record: bool = False,
    show: bool = False,
    revoke: str | None = None,
    trust: str | None = None,
    reason: str = "",
    by: str | None = None,
    format: Literal["table", "json"] = "table",
) -> int:
    """Judge a metric by its own trusted history: a corridor around the mean of its newest trusted points.

    Exit code 0: inside, or inactive (a cold start); 4: outside, on either side; 3: missing, NaN or a mean of nothing.

    Args:
        metric: name of the metric.
        places: where the ledger and the snapshots are; the history is in the snapshots' directory.
        run: the run; may be left out where the ledger has one.
        split: train or eval.
        step: the step; by default the last one.
        adapter: NAME or NAME#SLOT for one adapter's value; by default the whole batch's.
        series: what it is compared within; by default the run's name.
        absolute: half the corridor's width in the metric's unit; the larger of the two counts.
        relative: half the corridor's width as a share of the mean.
        points: trusted points from which the gate is active (default: 1).
        window: newest trusted points that the mean is taken of (default: 20).
        record: add the value to the history, trusted unless it is outside.
        show: list the history of the metric instead.
        revoke: name of a point that no longer counts; it stays in the history.
        trust: name of a point that counts from now on.
        reason: why a point is revoked or trusted.
        by: who does so; by default the user's name.
        format: table or json.
    """
    from pipeline.snapshots import gate as gating
    from pipeline.snapshots import gate_history, report_of_gate

    directory = places.directory()
    for event, point in (("revoke", revoke), ("trust", trust)):
        if point is not None:
            done = gate_history.judge_again(directory, point, event, reason, by)
            console.say(f"{done.id}: {done.metric} {done.value:.6g} of {done.series}: trusted {done.trusted}".lower())
            return Exit.DONE
    if show:
        return _show(directory, series, format)
    target = gating.Target(metric, run, split, step, adapter, series)
    options = {"absolute": absolute, "relative": relative, "points": points, "window": window}
    band = gating.corridor(metric, places.section().gate, options)
    judge = gating.judge_and_record if record else gating.judge
    judged = judge(target, places.ledger_directory(), directory, band)
    console.answer(report_of_gate.as_json(judged) if format == "json" else report_of_gate.as_text(judged))
    return _CODES[judged.status]


def _show(directory: Path, series: str | None, format: Literal["table", "json"]) -> int:
    import polars as pl

    from pipeline.cli.output import render
    from pipeline.snapshots import gate_history

    rows = [vars(point) for point in gate_history.points(directory, series)]
    console.answer(render(pl.DataFrame(rows), format))
    return Exit.DONE
