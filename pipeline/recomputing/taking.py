"""Reading the files that are to be read, one by one: what they hold, and whether they are whole."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pipeline.recomputing.decisions import has_train_companion
from pipeline.recomputing.options import FRESH_SECONDS
from pipeline.sources.reading import read
from pipeline.sources.stamps import Stamp, digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.recomputing.decisions import Decision
    from pipeline.recomputing.options import Options
    from pipeline.sources.batch import BatchRead, SourceFile
    from schemas.findings import Finding

_UNREADABLE = frozenset(("unreadable_file", "unknown_format", "torn_line"))
"""Problems that a file has while it is being written."""


@dataclass
class Taken:
    """One file that was read.

    Args:
        file: the file, with its stamp from before reading.
        reason: why it was read.
        batches: what it holds; refused batches with their findings.
        digest: digest of its content; null where it could not be read.
        pending: why it is not taken yet; null where it is.
        is_partial: whether some of its batches were not selected.
    """

    file: SourceFile
    reason: str
    batches: list[BatchRead] = field(default_factory=list)
    digest: str | None = None
    pending: str | None = None
    is_partial: bool = False

    @property
    def findings(self) -> list[Finding]:
        """Return the findings of all its batches."""
        return [finding for batch in self.batches for finding in batch.findings]

    @property
    def refused(self) -> list[BatchRead]:
        """Return the batches that break the contract."""
        return [batch for batch in self.batches if batch.refused]

    @property
    def accepted(self) -> list[BatchRead]:
        """Return the batches that keep it."""
        return [batch for batch in self.batches if not batch.refused]


def take(decisions: list[Decision], options: Options) -> Iterator[Taken]:
    """Yield every file as read, until told to stop."""
    with ThreadPoolExecutor(max_workers=1) as hasher:
        for decision in decisions:
            if options.stop():
                return
            yield _take(decision, options, hasher)


def _take(decision: Decision, options: Options, hasher: ThreadPoolExecutor) -> Taken:
    file = decision.file
    try:
        before = Stamp.of(file.path)
        # Hashing leaves the interpreter free, so that the second core does it while the first one reads.
        content = hasher.submit(digest, file.path)
        batches = list(read(replace(file, stamp=before)))
        taken = Taken(replace(file, stamp=before), decision.reason, batches, content.result())
        changed = Stamp.of(file.path) != before
    except OSError as error:
        return Taken(file, decision.reason, pending=f"cannot be read now ({error.strerror})")
    if changed:
        return Taken(file, decision.reason, pending="changed while it was read")
    return _judged(_selected(taken, options), options)


def _selected(taken: Taken, options: Options) -> Taken:
    selection = options.selection
    if not selection.cuts_files:
        return taken
    within = [batch for batch in taken.batches if selection.takes(batch.split, batch.step)]
    return replace(taken, batches=within, is_partial=len(within) < len(taken.batches))


def _judged(taken: Taken, options: Options) -> Taken:
    """Return the file as pending where it is too young to be called broken."""
    is_live = options.still_seconds > 0 and not has_train_companion(taken.file)
    codes = {finding.code for batch in taken.refused for finding in batch.findings if finding.severity == "error"}
    if is_live and codes & _UNREADABLE and _age(taken.file) < FRESH_SECONDS:
        return Taken(taken.file, taken.reason, pending="cannot be read yet")
    return taken


def _age(file: SourceFile) -> float:
    return time.time() - file.stamp.modified_ns / 10**9 if file.stamp is not None else 0.0
