"""Reading the files that are to be read, one by one: what they hold, and whether they are whole."""

from __future__ import annotations

import errno
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pipeline.recomputing.options import CLOCK_SKEW_SECONDS, FRESH_SECONDS
from pipeline.sources.reading import read, refused
from pipeline.sources.stamps import Stamp, digest
from schemas.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.recomputing.decisions import Decision
    from pipeline.recomputing.options import Options
    from pipeline.sources.batch import BatchRead, SourceFile

_UNREADABLE = frozenset(("unreadable_file", "unknown_format", "torn_line"))
"""Problems that a file has while it is being written."""
_PASSING = frozenset(
    (errno.ENOENT, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)
)
"""Errors that are none of the file's: it was just moved, the server forgot it, the machine is short of something."""


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
    def is_whole(self) -> bool:
        """Return whether it holds something, and nothing of it breaks the contract."""
        return bool(self.batches or self.is_partial) and not self.refused

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
        file = replace(file, stamp=before)
        # Hashing leaves the interpreter free, so that the second core does it while the first one reads.
        content = hasher.submit(_digest, file.path)
        batches = list(read(file))
        taken = Taken(file, decision.reason, batches, content.result())
        changed = Stamp.of(file.path) != before
    except OSError as error:
        if error.errno in _PASSING:
            return Taken(file, decision.reason, pending=f"cannot be read now ({error.strerror})")
        message = f"cannot be read ({error.strerror or error}); check its permissions and its file system"
        taken = Taken(file, decision.reason, [refused(file, Finding(code="unreadable_file", message=message))])
        changed = False
    if changed:
        return Taken(file, decision.reason, pending="changed while it was read")
    return _judged(_selected(taken, options), options)


def _digest(path: Path) -> str | None:
    """Return a file's digest; null where it cannot be read, as the reader will say in its own words."""
    try:
        return digest(path)
    except OSError as error:
        if error.errno in _PASSING:
            raise
        return None


def _selected(taken: Taken, options: Options) -> Taken:
    selection = options.selection
    if not selection.cuts_files:
        return taken
    within = [batch for batch in taken.batches if selection.takes(batch.split, batch.step)]
    return replace(taken, batches=within, is_partial=len(within) < len(taken.batches))


def _judged(taken: Taken, options: Options) -> Taken:
    """Return the file as pending where it is too young to be called broken."""
    # The train dump beside a young file may be that of the step's earlier life, before a resumed run came by again.
    is_live = options.still_seconds > 0
    codes = {finding.code for batch in taken.refused for finding in batch.findings if finding.severity == "error"}
    if is_live and codes & _UNREADABLE and -CLOCK_SKEW_SECONDS < _age(taken.file) < FRESH_SECONDS:
        return Taken(taken.file, taken.reason, pending="cannot be read yet")
    return taken


def _age(file: SourceFile) -> float:
    return time.time() - file.stamp.modified_ns / 10**9 if file.stamp is not None else 0.0
