"""Recompute: runs in, one new generation of the ledger out, or none where nothing has changed."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import NoInputError, StorageError
from pipeline.expressions.keys import BATCH
from pipeline.recomputing import again, compaction, merge
from pipeline.recomputing.chunk import finding_rows
from pipeline.recomputing.decisions import Decided, Known, batches_to_account, decide
from pipeline.recomputing.options import Options
from pipeline.recomputing.outcome import Outcome
from pipeline.recomputing.sources import source_rows
from pipeline.recomputing.taking import take
from pipeline.recomputing.work import Work
from pipeline.store import lock, publication
from pipeline.store.layout import Layout
from pipeline.store.publication import STORED_BATCHES, Publication

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pipeline.recomputing.plan import RunPlan

_WAIT_STEP = 0.2


def recompute(plans: Sequence[RunPlan], ledger: Path, options: Options | None = None) -> Outcome:
    """Read the dumps of some runs and publish their figures.

    Only what is new, changed, or computed with other settings or by another version is done; all else stays as
    published. A batch that breaks the contract is refused, and what was published of it before stays, marked stale.

    Args:
        plans: the runs.
        ledger: directory of the ledger, made if need be.
        options: selection, live directories, retention, engine; the defaults suit a schedule.

    Raises:
        NoInputError: not one source exists.
        LockedError: another process is writing the ledger.
        StorageError: the ledger cannot be written; what was published stays.
    """
    options = options or Options()
    layout = Layout(ledger)
    with lock.writing(layout):
        before = publication.current(layout)
        outcome = Outcome(generation=before.number)
        decided = _decide_all(plans, before, options, outcome)
        work = Work(layout, options)
        try:
            _compute(work, decided, before)
            _publish(work, decided, before, outcome)
        except OSError as error:
            publication.collect_garbage(layout, before.number, options.retention)
            message = f"{ledger} cannot be written ({error.strerror or error}); what was published stays as it was"
            raise StorageError(message) from error
    return outcome


def _decide_all(plans: Sequence[RunPlan], before: Publication, options: Options, outcome: Outcome) -> list[Decided]:
    """Return the decisions of every run that has a source; wait for young files where there is nothing else at all."""
    decided, errors = _decided(plans, before, options)
    if errors and not decided:
        raise errors[0]
    outcome.failed_runs = [str(error) for error in errors]
    deadline = time.monotonic() + options.still_seconds + 1
    while options.wait and before.number == 0 and _only_pending(decided) and time.monotonic() < deadline:
        if options.stop():
            break
        time.sleep(_WAIT_STEP)
        decided, _ = _decided(plans, before, options)
    return decided


def _decided(
    plans: Sequence[RunPlan], before: Publication, options: Options
) -> tuple[list[Decided], list[NoInputError]]:
    known = Known(before)
    decided, errors = [], []
    for plan in plans:
        try:
            decided.append(decide(plan, known, options))
        except NoInputError as error:
            errors.append(error)
    return decided, errors


def _only_pending(decided: Sequence[Decided]) -> bool:
    actions = {decision.action for one in decided for decision in one.decisions}
    return actions == {"pending"}


def _compute(work: Work, decided: Sequence[Decided], before: Publication) -> None:
    progress = work.options.progress or (lambda _done, _total: None)
    total = sum(len(one.of("read")) for one in decided)
    for one in decided:
        settings = one.plan.settings
        for batches in work.chunks(take(one.of("read"), work.options), settings):
            work.account(batches, settings)
            progress(len(work.taken) + len(work.pending), total)
    progress(total, total)
    for one in decided:
        selected = batches_to_account(before, one.plan.settings, one, work.options.selection)
        again.account_again(work, selected, one.plan.settings)


def _publish(work: Work, decided: Sequence[Decided], before: Publication, outcome: Outcome) -> None:
    now = datetime.now(UTC)
    findings = [finding for one in decided for finding in one.findings]
    findings += [finding for one in decided for finding in one.settings_findings()]
    work.find_duplicates(_kept_claims(decided, before, work))
    accepted = pl.concat(work.accepted) if work.accepted else STORED_BATCHES.to_frame()
    accepted = accepted.with_columns(published_at=pl.lit(now, STORED_BATCHES["published_at"]))
    update = merge.Update(
        accepted=accepted,
        refused=_refused_keys(work),
        refused_sources=frozenset(batch.source for batch in work.refused if batch.step is None),
        findings=finding_rows([*findings, *work.findings]),
        settled=_settled(work, decided),
        settled_accounting=frozenset(source for _, source in work.accounted_again),
        settled_runs=frozenset(run for one in decided for run in one.runs),
        sources=source_rows(work, decided, before, now),
    )
    _tell(outcome, work, decided, update)
    outcome.findings = [*findings, *work.findings]
    if not update.changes(before) and not publication.has_moved(work.layout):
        return
    merged = merge.merged(work.layout, before, update)
    publication.publish(work.layout, compaction.compacted(work.layout, merged), now, work.options.retention)
    outcome.generation = merged.number
    outcome.published = True


def _kept_claims(decided: Sequence[Decided], before: Publication, work: Work) -> pl.DataFrame:
    """Return run, split, step and source of published batches whose files are there, and were not read now."""
    claimed = pl.DataFrame(
        [key for key in work.claims if key[2] is not None],
        schema={name: STORED_BATCHES[name] for name in BATCH},
        orient="row",
    )
    published = before.batches.select(*BATCH, "source").join(claimed, on=list(BATCH), how="semi")
    there = {key for one in decided for key in one.kept}
    there |= {(d.file.run, d.file.name) for one in decided for d in one.decisions}
    there -= {(taken.file.run, taken.file.name) for taken, _ in work.taken}
    is_there = [(run, source) in there for run, source in published.select("run", "source").iter_rows()]
    return published.filter(pl.Series(is_there, dtype=pl.Boolean))


def _refused_keys(work: Work) -> frozenset[tuple[str, str, int]]:
    keys = [(error.run or "", error.split or "", error.step) for error in work.errors]
    return frozenset((run, split, step) for run, split, step in keys if step is not None)


def _settled(work: Work, decided: Sequence[Decided]) -> frozenset[str]:
    """Return the sources whose earlier findings are settled by this recompute's."""
    read = {taken.file.name for taken, _ in work.taken}
    looked_at = {finding.source for one in decided for finding in one.findings}
    claimed = {finding.source for finding in work.duplicated}
    return frozenset(source for source in read | looked_at | claimed if source is not None)


def _tell(outcome: Outcome, work: Work, decided: Sequence[Decided], update: merge.Update) -> None:
    outcome.accepted = update.kept
    outcome.refused = len({(*batch.key, batch.source) for batch in work.refused}) + len(work.duplicated)
    outcome.pending = [decision.file.name for one in decided for decision in one.of("pending")]
    outcome.pending += [taken.file.name for taken in work.pending]
    outcome.unchanged = sum(len(one.kept) for one in decided)
    outcome.vanished = sum(len(one.vanished) for one in decided)
    outcome.reasons = work.reasons()
    outcome.stopped = work.options.stop()
