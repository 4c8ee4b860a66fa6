"""What is to be done with every file, and why: read it, account for it again, wait, or leave it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from pipeline.expressions import versions
from pipeline.sources.names import stem_of
from pipeline.sources.stamps import digest
from schemas.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.recomputing.options import Options, Selection
    from pipeline.recomputing.plan import RunPlan
    from pipeline.sources.batch import SourceFile
    from pipeline.sources.discovery import Discovered, Looks
    from pipeline.store.publication import Publication
    from schemas.settings import Settings

Action = Literal["read", "keep", "pending", "skip"]
_CLOCK_SKEW_NS = 5 * 10**9
"""A file server's clock may be ahead by this much; beyond it a time in the future says nothing."""


@dataclass(frozen=True)
class Decision:
    """One file, and what is to be done with it."""

    file: SourceFile
    action: Action
    reason: str


@dataclass
class Decided:
    """All decisions of one run.

    Args:
        plan: the run.
        decisions: one for each file that is there and has to be thought about.
        unchanged: (run, path) of the files that look as they did when they were taken.
        vanished: (run, path) of the files that are known and no longer there.
        findings: of files that are not named like rollout dumps.
    """

    plan: RunPlan
    decisions: list[Decision] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    vanished: list[tuple[str, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def runs(self) -> set[str]:
        """Return the names of the runs whose files these are."""
        keys = [*self.unchanged, *self.vanished]
        return {decision.file.run for decision in self.decisions} | {run for run, _ in keys}

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Return (run, path) of the files that need not be read."""
        return [*self.unchanged, *((decision.file.run, decision.file.name) for decision in self.of("keep"))]

    def settings_findings(self) -> Iterator[Finding]:
        """Yield a warning for an estimator that no trainer has: a slip of the pen changes every advantage."""
        estimator = self.plan.settings.advantage_estimator
        if self.plan.settings.known_estimator:
            return
        message = (
            f"advantage_estimator: no known trainer has {estimator}; advantages are the rewards as they are. "
            "Expected grpo, gspo, reinforce_plus_plus_baseline or the name of another estimator"
        )
        for run in sorted(self.runs):
            yield Finding(code="unknown_estimator", message=message, run=run, value=estimator)

    def of(self, action: Action) -> list[Decision]:
        """Return the decisions of one kind."""
        return [decision for decision in self.decisions if decision.action == action]


class Known:
    """What the last publication says of files."""

    def __init__(self, publication: Publication) -> None:
        self._frame = publication.sources
        keys = zip(self._frame["run"].to_list(), self._frame["source"].to_list(), strict=True)
        self._places = {key: place for place, key in enumerate(keys)}
        duplicated = publication.findings.filter(code="duplicate_batch")
        self.duplicated = set(duplicated.select("run", "source").iter_rows())

    def row(self, run: str, source: str) -> dict[str, Any] | None:
        """Return what is known of a file, null where nothing is."""
        place = self._places.get((run, source))
        return None if place is None else self._frame.row(place, named=True)

    def keys(self) -> Iterator[tuple[str, str]]:
        """Yield (run, path) of every known file."""
        yield from self._places

    def looks(self) -> Looks:
        """Return size and time of the files that were taken by this version, and need nothing if they still look so."""
        taken = self._frame.filter(state="taken", versions=versions.canonical())
        columns = (taken[name].to_list() for name in ("run", "source", "size", "modified_ns"))
        return {(run, source): (size, changed) for run, source, size, changed in zip(*columns, strict=True)}


def decide(plan: RunPlan, known: Known, options: Options, now_ns: int | None = None) -> Decided:
    """Return what is to be done for one run. Nothing but directories is read, unless `verify` is asked for.

    Raises:
        NoInputError: a source does not exist, or none has a file.
    """
    found = plan.discover({} if options.looks_closer else known.looks())
    now_ns = time.time_ns() if now_ns is None else now_ns
    decided = Decided(plan, unchanged=found.unchanged, findings=found.findings)
    decided.decisions = [_decision(file, known, plan, options, now_ns) for file in found.files]
    decided.vanished = list(_vanished(found, plan, known))
    if decided.vanished or decided.of("read"):
        _reconsider_duplicates(decided, known)
    return decided


def _decision(file: SourceFile, known: Known, plan: RunPlan, options: Options, now_ns: int) -> Decision:
    row = known.row(file.run, file.name)
    selection = options.selection
    is_out = not selection.takes(file.split, file.step)
    if is_out or (selection.since_ns is not None and _modified(file) < selection.since_ns):
        return Decision(file, "skip", "not selected")
    reason = _reason(file, row, plan.settings, options)
    if reason is None:
        return Decision(file, "keep", "unchanged")
    if options.force or is_still(file, row, options.still_seconds, now_ns):
        return Decision(file, "read", reason)
    return Decision(file, "pending", f"{reason}, changed less than {options.still_seconds:g} s ago")


def _reason(file: SourceFile, row: dict[str, Any] | None, settings: Settings, options: Options) -> str | None:
    """Return why a file is to be read, null where it need not be."""
    if row is None or (row["state"] == "pending" and row["versions"] is None):
        return "new"
    looked = (row["size"], row["modified_ns"])
    looks = (file.stamp.size, file.stamp.modified_ns) if file.stamp is not None else None
    reasons = (
        (options.force, "forced"),
        (row["state"] == "vanished", "back again"),
        (row["state"] == "pending" or looks != looked, "changed"),
        (row["versions"] != versions.canonical(), "read differently by this version"),
        (row["state"] == "refused" and row["settings"] != settings.as_json(), "other settings"),
        (row["state"] == "partial", "only a part was taken"),
    )
    first = next((reason for holds, reason in reasons if holds), None)
    if first is None and options.verify and row["digest"] is not None and _digest(file.path) != row["digest"]:
        return "changed, though of the same size and time"
    return first


def is_still(file: SourceFile, row: dict[str, Any] | None, still_seconds: float, now_ns: int) -> bool:
    """Return whether a file has not changed for long enough, or its trainer has gone on to the next thing.

    A time of change in the future (a file server's clock) says nothing; then the file must look as it did when it was
    last looked at, that long ago.
    """
    still_ns = int(still_seconds * 10**9)
    age = now_ns - _modified(file)
    if age >= still_ns or has_train_companion(file):
        return True
    if age < -_CLOCK_SKEW_NS and row is not None and file.stamp is not None:
        seen_ns = int(row["seen_at"].timestamp() * 10**9)
        looks_the_same = (row["size"], row["modified_ns"]) == (file.stamp.size, file.stamp.modified_ns)
        return looks_the_same and now_ns - seen_ns >= still_ns
    return False


def has_train_companion(file: SourceFile) -> bool:
    """Return whether the train dump of the same step is there: it is written after the rollout dump is complete."""
    if file.step is None or file.split != "train" or file.path.suffix != ".pt":
        return False
    folder = file.path.parent.parent / "train_data"
    step = stem_of(file.path).rsplit("_", 1)[-1]
    return (folder / f"{step}_0.pt").exists() or (folder / f"{step}.pt").exists()


def _vanished(found: Discovered, plan: RunPlan, known: Known) -> Iterator[tuple[str, str]]:
    """Yield the known files of the directories just listed that are not there any more."""
    there = {(file.run, file.name) for file in found.files} | set(found.unchanged)
    runs = {run for run, _ in there} | ({plan.name} if plan.name else set())
    for run, source in sorted(set(known.keys()) - there):
        row = known.row(run, source)
        is_ours = run in runs and source.rpartition("/")[0] in found.directories
        if is_ours and row is not None and row["state"] != "vanished":
            yield run, source


def _reconsider_duplicates(decided: Decided, known: Known) -> None:
    """Read the files again that were refused as duplicates: now that others come or go, one of them may be right."""
    for index, decision in enumerate(decided.decisions):
        if decision.action == "keep" and (decision.file.run, decision.file.name) in known.duplicated:
            decided.decisions[index] = Decision(decision.file, "read", "was a duplicate")


def batches_to_account(
    publication: Publication, settings: Settings, decided: Decided, selection: Selection
) -> pl.DataFrame:
    """Return the published batches that other settings or another version computed, and whose files need no reading.

    Left out are those that these very settings have refused already.
    """
    differs = (pl.col("settings") != settings.as_json()) | (pl.col("versions") != versions.current())
    batches = publication.batches.filter(differs)
    if batches.is_empty():
        return batches
    unread = pl.DataFrame(decided.kept, schema={"run": pl.String, "source": pl.String}, orient="row")
    sources = publication.sources.filter(pl.col("run").is_in(sorted(decided.runs)))
    vanished = sources.filter(state="vanished").select("run", "source")
    refused = sources.filter(state="refused", settings=settings.as_json()).select("run", "source")
    files = pl.concat([unread, vanished]).unique().join(refused, on=["run", "source"], how="anti")
    batches = batches.join(files, on=["run", "source"], how="semi")
    chosen = [selection.takes(split, step) for split, step in batches.select("split", "step").iter_rows()]
    return batches.filter(pl.Series(chosen, dtype=pl.Boolean))


def _modified(file: SourceFile) -> int:
    return file.stamp.modified_ns if file.stamp is not None else 0


def _digest(path: Path) -> str | None:
    try:
        return digest(path)
    except OSError:
        return None
