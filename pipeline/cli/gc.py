"""`rollout-ledger gc`: remove what no reader needs any more."""

from __future__ import annotations

from pathlib import Path

from pipeline.cli import console
from pipeline.errors import UsageError


def gc(*, ledger: Path, keep: int = 3, keep_for: float = 3600.0) -> int:
    """Remove older publications and leftovers by hand; `recompute` does the same with its own --keep.

    Kept are the newest publications, those that were replaced too recently for their readers to be done, and every
    segment that one of them names.

    Args:
        ledger: directory of the ledger.
        keep: newest publications to keep, at least 1.
        keep_for: seconds that a publication is kept after it was replaced.
    """
    from pipeline.store import lock, publication
    from pipeline.store.layout import Layout

    if keep < 1 or keep_for < 0:
        message = "--keep should be 1 or more, --keep-for 0 or more"
        raise UsageError(message)
    layout = Layout(ledger)
    publication.newest_number(layout)
    with lock.writing(layout):
        # Asked only now: a recompute may have published another since.
        newest = publication.newest_number(layout)
        gone = publication.collect_garbage(layout, newest, publication.Retention(keep, keep_for))
    console.say(f"{len(gone)} removed; generation {newest} is published")
    return 0
