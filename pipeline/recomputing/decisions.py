"""What is to be done with every file, and why: read it, account for it again, wait, or leave it."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from pipeline.errors import NoInputError
from pipeline.expressions import versions
from pipeline.expressions.keys import BATCH
from pipeline.recomputing import ownership
from pipeline.recomputing.chunk import ACCOUNTING_CODES
from pipeline.recomputing.options import CLOCK_SKEW_SECONDS
from pipeline.sources.names import stem_of
from pipeline.sources.stamps import digest
from schemas.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.recomputing.options import Options, Selection
    from pipeline.recomputing.ownership import FileKey
    from pipeline.recomputing.plan import RunPlan
    from pipeline.sources.batch import SourceFile
    from pipeline.sources.discovery import Discovered, Looks
    from pipeline.store.publication import Publication
    from schemas.settings import Settings

Action = Literal["read", "keep", "pending", "skip"]


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
        not_foreign: (run, path) of files that had such a finding, and are gone.
        failures: errors of sources that could not be used, where others could.
        looked_into: names of the runs whose directories were looked into, also where nothing was found.
    """

    plan: RunPlan
    decisions: list[Decision] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    vanished: list[tuple[str, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    not_foreign: list[FileKey] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    looked_into: set[str] = field(default_factory=set)

    @property
    def runs(self) -> set[str]:
        """Return the names of the runs whose files these are."""
        keys = [*self.unchanged, *self.vanished]
        return {decision.file.run for decision in self.decisions} | {run for run, _ in keys} | self.looked_into

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
        self._claims: dict[tuple[object, ...], set[str]] = defaultdict(set)
        for *key, source in publication.findings.filter(code="duplicate_batch").select(*BATCH, "source").iter_rows():
            self._claims[tuple(key)].add(source)
        foreign = publication.findings.filter(code="foreign_name").select("run", "source")
        self.foreign = set(foreign.iter_rows())

    def rivals(self, source: str) -> list[set[str]]:
        """Return, for every batch of a file that others were found to claim as well, those others."""
        return [sources - {source} for sources in self._claims.values() if source in sources]

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
    decided = Decided(plan, unchanged=found.unchanged, findings=found.findings, failures=found.failures)
    decided.decisions = [_decision(file, known, plan, options, now_ns) for file in found.files]
    decided.looked_into = {run for run, _ in found.directories}
    decided.vanished = list(_vanished(found, known))
    decided.not_foreign = [key for key in sorted(known.foreign) if _is_gone(key, found)]
    if found.is_empty:
        _tell_emptiness(decided, found, known)
    _reconsider_duplicates(decided, known)
    return decided


def _tell_emptiness(decided: Decided, found: Discovered, known: Known) -> None:
    """Tell that there is no dump at all, even where there were some: it may be a file system that is not mounted."""
    message = (
        f"{', '.join(decided.plan.sources)}: no rollout dumps (N.pt, eval_N.pt, *.jsonl, *.parquet, *.arrow) there"
    )
    before = sum(_lies_in(key, found) for key in known.keys())  # noqa: SIM118 -- no dictionary
    if not before:
        raise NoInputError(message)
    decided.failures.append(f"{message}; {before} were there before, and their batches are kept")


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
        (row["state"] == "refused" and row["digest"] is None, "could not be read"),
        (row["state"] == "refused" and row["settings"] != settings.as_json(), "other settings"),
        (row["state"] == "partial" and not _is_that_part(row, settings, options), "only a part was taken"),
    )
    first = next((reason for holds, reason in reasons if holds), None)
    if first is None and options.verify and row["digest"] is not None and _digest(file.path) != row["digest"]:
        return "changed, though of the same size and time"
    return first


def _is_that_part(row: dict[str, Any], settings: Settings, options: Options) -> bool:
    is_same = options.selection.cuts_files and row["reason"].endswith(options.selection.words)
    return is_same and row["settings"] == settings.as_json()


def is_still(file: SourceFile, row: dict[str, Any] | None, still_seconds: float, now_ns: int) -> bool:
    """Return whether a file has not changed for long enough, or its trainer has gone on to the next thing.

    With nothing to wait for every file is, whatever a clock says. A time of change in the future (a file server's
    clock) says nothing; then the file must look as it did when it was last looked at, that long ago.
    """
    still_ns = int(still_seconds * 10**9)
    age = now_ns - _modified(file)
    if still_ns == 0 or age >= still_ns or has_train_companion(file):
        return True
    if age < -CLOCK_SKEW_SECONDS * 10**9 and row is not None and file.stamp is not None:
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


def _vanished(found: Discovered, known: Known) -> Iterator[tuple[str, str]]:
    """Yield the known files of the directories just looked into that are not there any more."""
    there = {(file.run, file.name) for file in found.files} | set(found.unchanged)
    for key in sorted(set(known.keys()) - there):
        row = known.row(*key)
        if row is not None and row["state"] != "vanished" and _is_gone(key, found):
            yield key


def _lies_in(key: FileKey, found: Discovered) -> bool:
    run, source = key
    return (run, source.rpartition("/")[0]) in found.directories


def _is_gone(key: FileKey, found: Discovered) -> bool:
    # A file that is there may still not be listed: one with a foreign name that was a source of its own, once.
    return _lies_in(key, found) and not os.path.exists(key[1])  # noqa: PTH110 -- ten thousand times, maybe


def _reconsider_duplicates(decided: Decided, known: Known) -> None:
    """Read files again that were refused as duplicates where a rival is gone, or may not claim the batch any more."""
    reread = {decision.file.name for decision in decided.of("read")} | {source for _, source in decided.vanished}
    for index, decision in enumerate(decided.decisions):
        if decision.action == "keep" and any(_has_given_way(r, reread) for r in known.rivals(decision.file.name)):
            decided.decisions[index] = Decision(decision.file, "read", "was a duplicate")


def _has_given_way(rivals: set[str], reread: set[str]) -> bool:
    return not rivals or any(rival in reread or not os.path.exists(rival) for rival in rivals)  # noqa: PTH110


def batches_to_account(
    publication: Publication, settings: Settings, decided: Decided, selection: Selection
) -> pl.DataFrame:
    """Return the published batches that other settings or another version computed, and whose files need no reading.

    Stale ones stay as they were, unless it was the accounting with other settings that refused the newer figures.
    """
    differs = (pl.col("settings") != settings.as_json()) | (pl.col("versions") != versions.current())
    batches = publication.batches.filter(differs | (pl.col("state") == "stale"))
    if batches.is_empty():
        return batches
    sources = publication.sources
    lost = sources.filter(pl.col("run").is_in(sorted(decided.runs)), state="vanished").select("run", "source")
    # What is back again is read, or waits to be.
    there = {decision.file.key for decision in decided.decisions}
    files = [*decided.kept, *decided.vanished, *(key for key in lost.iter_rows() if key not in there)]
    judged = sources.filter(settings=settings.as_json()).select("run", "source").iter_rows()
    is_judged = ownership.is_of(batches, judged, sources)
    is_stale = batches["state"] == "stale"
    chosen = ownership.is_of(batches, files, sources) & (
        ~is_stale | (_refused_by_accounting(batches, publication) & ~is_judged)
    )
    return batches.filter(chosen & is_selected(batches, selection))


def is_selected(rows: pl.DataFrame, selection: Selection) -> pl.Series:
    """Return which batches or findings are in the selection."""
    places = rows.select("split", "step").iter_rows()
    return pl.Series([selection.takes(split, step) for split, step in places], dtype=pl.Boolean)


def _refused_by_accounting(batches: pl.DataFrame, publication: Publication) -> pl.Series:
    """Return which batches only the accounting of their own samples has refused: these are as good as ever."""
    errors = publication.findings.filter(severity="error")
    places = batches.select(*BATCH, "source")
    by_accounting = errors.filter(pl.col("code").is_in(ACCOUNTING_CODES)).join(places, on=places.columns, how="semi")
    others = errors.join(by_accounting, on=[*places.columns, "code"], how="anti")
    key = pl.struct(BATCH)
    found = [frame.select(BATCH).unique().to_struct("keys").implode() for frame in (by_accounting, others)]
    of_file = pl.col("source").is_in(others.filter(pl.col("step").is_null())["source"].drop_nulls().unique().to_list())
    return batches.select(key.is_in(found[0]) & ~key.is_in(found[1]) & ~of_file).to_series()


def _modified(file: SourceFile) -> int:
    return file.stamp.modified_ns if file.stamp is not None else 0


def _digest(path: Path) -> str | None:
    try:
        return digest(path)
    except OSError:
        return None
