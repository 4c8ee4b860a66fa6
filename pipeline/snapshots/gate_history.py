"""The history of gated metrics: points are added, revoked or trusted by further entries, and never deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.errors import UsageError
from pipeline.snapshots import fingerprint, histories

if TYPE_CHECKING:
    from pathlib import Path

FILE = "gate-history.jsonl"


@dataclass(frozen=True)
class Point:
    """One value of a series, as it was recorded.

    Args:
        id: short name of the point.
        series: what it is compared within; by default the run's name.
        metric: name of the metric, with the adapter's where it is one adapter's.
        run: run that it was read from.
        split: train or eval.
        step: its step.
        value: the metric's value.
        count: what it is a mean of.
        status: what the gate said of it when it was recorded.
        at: when it was recorded.
        by: by whom.
        trusted: whether it counts: it passed or was the first, and was not revoked since; or was trusted since.
        reason: why it was revoked or trusted.
    """

    id: str
    series: str
    metric: str
    run: str
    split: str
    step: int
    value: float
    count: int
    status: str
    at: str
    by: str
    trusted: bool
    reason: str | None = None

    @property
    def place(self) -> tuple[str, str, int]:
        """Return run, split and step: one value is there for each."""
        return self.run, self.split, self.step


def points(snapshots: Path, series: str | None = None, metric: str | None = None) -> list[Point]:
    """Return the points of a series in the order of their recording.

    Raises:
        NoInputError: the file is not what was written.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in histories.read(snapshots / FILE):
        point = entry.get("point")
        if isinstance(point, dict):
            trusted = point["status"] in ("pass", "inactive")
            found[point["id"]] = {**point, "at": entry["at"], "by": entry["by"], "trusted": trusted}
        elif entry.get("id") in found:
            found[entry["id"]] |= {"trusted": entry["event"] == "trust", "reason": entry["reason"]}
    known = [Point(**point) for point in found.values()]
    return [p for p in known if series in (None, p.series) and metric in (None, p.metric)]


def record(snapshots: Path, fields: dict[str, Any], by: str | None = None) -> Point:
    """Add a point; one of the same series, place and value that is there already is returned instead."""
    known = points(snapshots, fields["series"], fields["metric"])
    place = fields["run"], fields["split"], fields["step"]
    for point in known:
        if point.place == place and point.value == fields["value"]:
            return point
    signature = histories.signed(by)
    mark = fingerprint.short(f"{fields} {signature} {len(known)}")
    histories.append(snapshots / FILE, {**signature, "event": "point", "point": {"id": mark, **fields}})
    return next(point for point in points(snapshots) if point.id == mark)


def judge_again(snapshots: Path, point: str, event: str, reason: str, by: str | None = None) -> Point:
    """Revoke or trust a point (`event`), for a reason.

    Raises:
        UsageError: there is no such point, or no reason.
    """
    if not reason.strip():
        message = f"to {event} a point takes a reason: give --reason TEXT"
        raise UsageError(message)
    known = {one.id for one in points(snapshots)}
    if point not in known:
        message = f"no point {point} in {snapshots / FILE}; see `snapshot gate --show`"
        raise UsageError(message)
    entry = {**histories.signed(by), "event": event, "id": point, "reason": reason.strip()}
    histories.append(snapshots / FILE, entry)
    return next(one for one in points(snapshots) if one.id == point)
