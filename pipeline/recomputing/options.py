"""What a recompute may be told beside its runs and their settings."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.store.publication import Retention

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.stages.accounting import Engine

CHUNK_ROWS = 2**17
"""Samples accounted for at once: enough to keep the engine busy, few enough to stay in a fifth of a gigabyte."""
STILL_SECONDS = 10.0
"""A file that has not changed for so long is taken."""
FRESH_SECONDS = 60.0
"""A file that cannot be read and is younger than this is still being written; an older one is broken."""

CLOCK_SKEW_SECONDS = 5.0
"""A file server's clock may be ahead by this much; beyond it a time in the future says nothing."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Selection:
    """Which batches are looked at; the others stay as they are.

    Args:
        first: first step.
        last: last step.
        split: train or eval.
        since_ns: only files changed since, nanoseconds since 1970.
    """

    first: int | None = None
    last: int | None = None
    split: str | None = None
    since_ns: int | None = None

    def takes(self, split: str | None, step: int | None) -> bool:
        """Return whether a batch is in the selection; an unknown split or step is not ruled out."""
        return (
            (self.split is None or split in (None, self.split))
            and (self.first is None or step is None or step >= self.first)
            and (self.last is None or step is None or step <= self.last)
        )

    @property
    def words(self) -> str:
        """Return the selection as text, as it is noted with a file of which it took a part."""
        parts = (("split", self.split), ("from", self.first), ("to", self.last))
        return "; only " + ", ".join(f"{name} {value}" for name, value in parts if value is not None)

    @property
    def cuts_files(self) -> bool:
        """Return whether some batches of a file may be in and others out."""
        return not (self.first is None and self.last is None and self.split is None)


@dataclass(frozen=True)
class Options:
    """How a recompute goes about its work.

    Args:
        selection: which batches are looked at.
        force: read everything that is selected, whatever is known of it.
        verify: compare the content of files that look unchanged.
        still_seconds: how long a file must not have changed to be taken.
        wait: where nothing can be taken yet as all files are too young, wait until they are still.
        retention: which older generations are kept.
        engine: Polars engine; both give the same figures.
        chunk_rows: samples accounted for at once, in whole batches; no figure depends on it.
        jobs: processes that read and account side by side, where there is enough to do; no figure depends on it.
        stop: asked between files; true ends the work early, and what is whole is published.
        progress: called with (files done, files to do).
    """

    selection: Selection = field(default_factory=Selection)
    force: bool = False
    verify: bool = False
    still_seconds: float = STILL_SECONDS
    wait: bool = True
    retention: Retention = field(default_factory=Retention)
    engine: Engine = "in-memory"
    chunk_rows: int = CHUNK_ROWS
    jobs: int = 1
    stop: Callable[[], bool] = bool
    progress: Callable[[int, int], None] | None = None

    @property
    def looks_closer(self) -> bool:
        """Return whether files that look unchanged are thought about all the same."""
        selection = self.selection
        return self.force or self.verify or selection.cuts_files or selection.since_ns is not None
