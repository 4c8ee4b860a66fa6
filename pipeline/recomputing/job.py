"""Recompute: runs in, one new generation of the ledger out, or none where nothing has changed."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import LedgerError, NoInputError, StorageError
from pipeline.expressions.keys import BATCH
from pipeline.recomputing import again, compaction, merge, pieces
from pipeline.recomputing.chunk import finding_rows
from pipeline.recomputing.decisions import Decided, Known, batches_to_account, decide
from pipeline.recomputing.options import Options, Selection
from pipeline.recomputing.outcome import Outcome
from pipeline.recomputing.ownership import is_of
from pipeline.recomputing.replaced import replaced
from pipeline.recomputing.sources import renames, source_rows
from pipeline.recomputing.taking import take
from pipeline.recomputing.work import Work
from pipeline.store import database, lock, publication, upgrade
from pipeline.store.layout import Layout
from pipeline.store.publication import STORED_BATCHES, Publication

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pipeline.recomputing.ownership import FileKey
    from pipeline.recomputing.plan import RunPlan
    from pipeline.recomputing.work import Key
    from schemas.findings import Finding

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
        before = upgrade.upgraded(layout, publication.last(layout))
        outcome = Outcome(generation=before.number)
        decided = _decide_all(plans, before, options, outcome)
        work = Work(layout, options)
        try:
            with database.made_meanwhile(layout) if any(one.of("read") for one in decided) else nullcontext():
                _compute(work, decided, before)
            _publish(work, decided, before, outcome)
        except OSError as error:
            _tidy(layout, before.number, options)
            message = f"{ledger} cannot be written ({error.strerror or error}); what was published stays as it was"
            raise StorageError(message) from error
    return outcome


def _tidy(layout: Layout, before: int, options: Options) -> None:
    """Remove what a failed publication has left, as far as that is possible now; the next one will remove the rest.

    It may have failed after it was published, so which is the newest has to be asked. Where the ledger's file is lost,
    it is the one that was started from: nobody has seen the other.
    """
    with suppress(OSError, LedgerError):
        newest = publication.current_number(layout) or before
        publication.collect_garbage(layout, newest, options.retention)


def _decide_all(plans: Sequence[RunPlan], before: Publication, options: Options, outcome: Outcome) -> list[Decided]:
    """Return the decisions of every run that has a source; wait for young files where there is nothing else at all."""
    decided, errors = _decided(plans, before, options)
    if errors and not decided:
        raise errors[0]
    outcome.failed_runs = [str(error) for error in errors] + [text for one in decided for text in one.failures]
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
        some = pieces.pieces(one.of("read"), settings, work.options, work.layout.root)
        if some:
            for part in pieces.done(some, work.options):
                work.absorb(part)
                progress(len(work.taken) + len(work.pending), total)
            continue
        for _ in work.read_and_account(take(one.of("read"), work.options), settings):
            progress(len(work.taken) + len(work.pending), total)
    progress(total, total)
    for one in decided:
        due = batches_to_account(before, one.plan.settings, one, Selection())
        # What was read now is computed already, though its file may be known by another name.
        again.account_again(work, due, _claimed(work), one.plan.settings)


def _publish(work: Work, decided: Sequence[Decided], before: Publication, outcome: Outcome) -> None:
    now = datetime.now(UTC)
    standing = [finding for one in decided for finding in (*one.findings, *one.settings_findings())]
    waiting = {decision.file.name for one in decided for decision in one.of("pending")}
    waiting |= {taken.file.name for taken in work.pending}
    work.find_duplicates(_other_claims(decided, before, work), waiting)
    accepted = pl.concat(work.accepted) if work.accepted else STORED_BATCHES.to_frame()
    accepted = accepted.with_columns(published_at=pl.lit(now, STORED_BATCHES["published_at"]))
    refused = _refused_keys(work)
    digests = {taken.file.name: taken.digest for taken, _ in work.taken}
    work.findings += [
        finding
        for finding in replaced(work.layout, before, accepted, digests)
        if (finding.run, finding.split, finding.step) not in refused
    ]
    renamed = dict(renames(work, decided, before))
    gone, missing = _no_longer_shown(work, before, renamed)
    update = merge.Update(
        accepted=accepted,
        refused=refused,
        missing=missing,
        gone=gone - (work.claims.keys() & set(accepted.select(BATCH).iter_rows()) - refused),
        findings=finding_rows([*standing, *work.findings]),
        settled=_settled(work, decided),
        again=pl.concat([STORED_BATCHES.to_frame().select(*BATCH, "source"), *work.again]),
        settled_errors=frozenset(key for one in decided for key in one.vanished),
        settled_runs=frozenset(run for one in decided for run in one.runs),
        selection=work.options.selection,
        sources=source_rows(work, decided, before, now, renamed),
    )
    _tell(outcome, work, decided, update)
    outcome.findings = [*_not_told_before(standing, before), *work.findings]
    if not update.changes(before) and not publication.needs_its_file(work.layout, before):
        return
    merged = merge.merged(work.layout, before, update)
    publication.publish(work.layout, compaction.compacted(work.layout, merged), now, work.options.retention)
    outcome.generation = merged.number
    outcome.published = True


def _claimed(work: Work) -> pl.DataFrame:
    keys = [key for key in work.claims if key[2] is not None]
    return pl.DataFrame(keys, schema={name: STORED_BATCHES[name] for name in BATCH}, orient="row")


def _other_claims(decided: Sequence[Decided], before: Publication, work: Work) -> Iterator[tuple[Key, str]]:
    """Yield (batch, file) of the batches read now that another file of these sources claims, which was not read now.

    Files of other sources claim nothing: what a later call gives counts. Two names of one file are one claim.
    """
    there = {source for one in decided for _, source in one.kept}
    there |= {decision.file.name for one in decided for decision in one.decisions}
    # A stale batch is claimed by what was refused; its own file may not show it any more.
    claims = (before.batches.filter(state="ok"), before.findings.filter(severity="error"))
    earlier = pl.concat([frame.select(*BATCH, "source") for frame in claims]).unique(maintain_order=True)
    read = {taken.file.name for taken, _ in work.taken}
    for run, split, step, source in earlier.join(_claimed(work), on=list(BATCH), how="semi").iter_rows():
        key = (run, split, step)
        if source in there and source not in read and not _is_one_file(source, work.claims[key]):
            yield key, source


def _is_one_file(source: str, others: Sequence[str]) -> bool:
    """Return whether a file is not there, or is one of the others by another name."""
    path = Path(source)
    try:
        return not path.exists() or any(path.samefile(other) for other in others)
    except OSError:
        return False


def _no_longer_shown(work: Work, before: Publication, renamed: Mapping[str, str]) -> tuple[merge.Keys, merge.Keys]:
    """Return the published batches that their files, read now, no longer show: gone from a whole file, else missing.

    A file that holds nothing at all is no better than a broken one.
    """
    whole: set[FileKey] = set()
    broken: set[FileKey] = set()
    for taken, _ in work.taken:
        (whole if taken.is_whole else broken).add(taken.file.key)
        if taken.file.name in renamed:
            whole.add((taken.file.run, renamed[taken.file.name]))
    takes = work.options.selection.takes
    shown = {(*key, source) for key, sources in work.claims.items() for source in sources}

    def unshown(files: set[FileKey]) -> merge.Keys:
        rows = before.batches.filter(is_of(before.batches, files, before.sources)).select(*BATCH, "source")
        return frozenset(
            (run, split, step)
            for run, split, step, source in rows.iter_rows()
            if takes(split, step) and (run, split, step, source) not in shown
        )

    return unshown(whole), unshown(broken)


def _not_told_before(standing: Sequence[Finding], before: Publication) -> list[Finding]:
    """Return the findings that stand as long as a file or a setting does, and that were not published already."""
    told = set(before.findings.select("code", "run", "source").iter_rows())
    return [finding for finding in standing if (finding.code, finding.run, finding.source) not in told]


def _refused_keys(work: Work) -> frozenset[tuple[str, str, int]]:
    keys = [(error.run or "", error.split or "", error.step) for error in work.errors]
    return frozenset((run, split, step) for run, split, step in keys if step is not None)


def _settled(work: Work, decided: Sequence[Decided]) -> frozenset[FileKey]:
    """Return the files whose earlier findings are settled by this recompute's."""
    read = {taken.file.key for taken, _ in work.taken}
    looked_at = {(finding.run or "", finding.source or "") for one in decided for finding in one.findings}
    looked_at |= {key for one in decided for key in one.not_foreign}
    return frozenset(read | looked_at)


def _tell(outcome: Outcome, work: Work, decided: Sequence[Decided], update: merge.Update) -> None:
    outcome.accepted = update.kept
    outcome.refused = len({(error.run, error.split, error.step, error.source) for error in work.errors})
    outcome.pending = [decision.file.name for one in decided for decision in one.of("pending")]
    outcome.pending += [taken.file.name for taken in work.pending]
    outcome.unchanged = sum(len(one.kept) for one in decided)
    outcome.vanished = sum(len(one.vanished) for one in decided)
    outcome.reasons = work.reasons
    outcome.stopped = work.options.stop()
