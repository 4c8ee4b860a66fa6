"""Recompute: plans in, one new generation of the ledger out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import NoInputError
from pipeline.expressions.keys import BATCH
from pipeline.recomputing import merge
from pipeline.recomputing.chunk import Chunk, compute, finding_rows
from pipeline.sources.reading import read
from pipeline.store import lock, publication, segments
from pipeline.store.layout import Layout
from pipeline.store.publication import SEGMENT, STORED_BATCHES
from schemas.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.recomputing.plan import RunPlan
    from pipeline.sources.batch import BatchRead, SourceFile
    from pipeline.stages.accounting import Engine
    from schemas.settings import Settings

CHUNK_ROWS = 2**18
"""Samples accounted for at once: enough to keep the engine busy, few enough to stay in a fifth of a gigabyte."""
_CHUNK_BATCHES = 256

Progress = Callable[[int, int], None]
"""Called with (files read, files to read)."""


@dataclass
class Outcome:
    """What a recompute has done."""

    accepted: pl.DataFrame = field(default_factory=STORED_BATCHES.to_frame)
    findings: list[Finding] = field(default_factory=list)
    refused: int = 0
    failed_runs: list[str] = field(default_factory=list)
    generation: int = 0


@dataclass
class _Work:
    """What is gathered on the way: accepted batches by segment, and who claims which batch."""

    layout: Layout
    outcome: Outcome
    engine: Engine
    chunk_rows: int
    frames: list[pl.DataFrame] = field(default_factory=list)
    claims: dict[tuple[str, str, int | None], list[str]] = field(default_factory=lambda: defaultdict(list))
    refused: list[BatchRead] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)


def recompute(
    plans: Sequence[RunPlan],
    ledger: Path,
    *,
    engine: Engine = "in-memory",
    chunk_rows: int = CHUNK_ROWS,
    progress: Progress | None = None,
) -> Outcome:
    """Read the dumps of some runs and publish their figures.

    Batches that are read again replace what was published of them; all others stay. A batch that breaks the contract is
    refused, and what was published of it before stays, marked stale.

    Args:
        plans: the runs.
        ledger: directory of the ledger, made if need be.
        engine: Polars engine; both give the same figures.
        chunk_rows: samples to account for at once, in whole batches; no figure depends on it.
        progress: called with (files read, files to read).

    Raises:
        NoInputError: not one source exists.
        LockedError: another process is writing the ledger.
    """
    layout = Layout(ledger)
    outcome = Outcome()
    discovered = list(_discovered(plans, outcome))
    with lock.writing(layout):
        work = _Work(layout, outcome, engine, chunk_rows)
        done, total = 0, sum(len(files) for _, files in discovered)
        for settings, files in discovered:
            for batches in _chunks(work, files):
                _account(work, settings, batches)
                done = _files_done(work, done, total, progress)
        _publish(work)
    return outcome


def _discovered(plans: Sequence[RunPlan], outcome: Outcome) -> Iterator[tuple[Settings, list[SourceFile]]]:
    errors: list[NoInputError] = []
    for plan in plans:
        try:
            found = plan.discover()
        except NoInputError as error:
            errors.append(error)
            outcome.failed_runs.append(str(error))
            continue
        outcome.findings += found.findings
        yield plan.settings, found.files
    if errors and len(errors) == len(plans):
        raise errors[0]


def _files_done(work: _Work, done: int, total: int, progress: Progress | None) -> int:
    if progress is not None and len(work.sources) != done:
        progress(len(work.sources), total)
    return len(work.sources)


def _chunks(work: _Work, files: Sequence[SourceFile]) -> Iterator[list[BatchRead]]:
    """Yield accepted batches, as many at a time as make a chunk; note the others, and who claims what."""
    chunk: list[BatchRead] = []
    rows = 0
    for file in files:
        work.sources.add(file.name)
        for batch in read(file):
            work.outcome.findings += batch.findings
            work.claims[batch.key].append(batch.source)
            if batch.refused:
                work.refused.append(batch)
                continue
            chunk.append(batch)
            rows += batch.samples.height
            if rows >= work.chunk_rows or len(chunk) >= _CHUNK_BATCHES:
                yield chunk
                chunk, rows = [], 0
    if chunk:
        yield chunk


def _account(work: _Work, settings: Settings, batches: list[BatchRead]) -> None:
    first_claims = [batch for batch in batches if work.claims[batch.key][0] == batch.source]
    computed = compute(Chunk(tuple(first_claims), settings, work.engine))
    work.outcome.findings += computed.findings
    accepted = computed.batches
    keys = set(accepted.select(BATCH).iter_rows())
    work.refused += [batch for batch in first_claims if batch.key not in keys]
    if accepted.height:
        segment = segments.write_segment(work.layout, computed.tables)
        stamp = {"settings": pl.lit(settings.as_json()), SEGMENT: pl.lit(segment), "state": pl.lit("ok")}
        work.frames.append(accepted.with_columns(**stamp))


def _publish(work: _Work) -> None:
    now = datetime.now(UTC)
    duplicates = _duplicates(work)
    work.outcome.findings += duplicates
    accepted = pl.concat(work.frames) if work.frames else STORED_BATCHES.to_frame()
    accepted = accepted.with_columns(published_at=pl.lit(now, STORED_BATCHES["published_at"]))
    refused = [batch.key for batch in work.refused] + [(f.run, f.split, f.step) for f in duplicates]
    update = merge.Update(
        accepted=accepted.select(pl.col(name).cast(dtype) for name, dtype in STORED_BATCHES.items()),
        refused=frozenset((run or "", split or "", step) for run, split, step in refused),
        refused_sources=frozenset(batch.source for batch in work.refused if batch.step is None),
        findings=finding_rows(work.outcome.findings),
        sources=frozenset(work.sources) | {f.source for f in work.outcome.findings if f.source is not None},
    )
    merged = merge.merged(work.layout, publication.current(work.layout), update)
    publication.publish(work.layout, merged, now)
    work.outcome.accepted = update.kept
    work.outcome.refused = len({(*batch.key, batch.source) for batch in work.refused}) + len(duplicates)
    work.outcome.generation = merged.number


def _duplicates(work: _Work) -> list[Finding]:
    """Return a finding for every source of a batch that several sources claim; none of them is taken."""
    found = []
    for (run, split, step), sources in work.claims.items():
        if step is None or len(sources) == 1:
            continue
        for source in sources:
            others = ", ".join(other for other in sources if other != source) or "itself, twice"
            message = f"{split} step {step} of run {run} is also claimed by {others}; remove one, or name another run"
            found.append(
                Finding(
                    code="duplicate_batch",
                    message=message,
                    source=source,
                    run=run,
                    split=split,
                    step=step,
                    value=others,
                )
            )
    return found
