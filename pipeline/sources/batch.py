"""What a source yields: whole batches of canonical samples, or the reasons why not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from schemas.canonical import CanonicalSample
from schemas.frames import empty_frame

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from pipeline.sources.stamps import Stamp
    from schemas.findings import Finding


@dataclass(frozen=True)
class SourceFile:
    """One file to read, and what is known of it before it is opened.

    `split` and `step` are what the file's name says, null where it says nothing; `stamp` is how it looked when
    it was found.
    """

    path: Path
    run: str
    split: str | None = None
    step: int | None = None
    format: str | None = None
    stamp: Stamp | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return (run, path)."""
        return self.run, self.name

    @property
    def name(self) -> str:
        """Return the file's path as it is published."""
        return str(self.path)


@cache
def _no_samples() -> pl.DataFrame:
    # One for all: a run of ten thousand batches would remember ten thousand empty frames of thirty columns.
    return empty_frame(CanonicalSample)


@dataclass(frozen=True)
class BatchRead:
    """One batch as read. With a finding of severity error it is refused, and `samples` counts for nothing."""

    run: str
    split: str
    step: int | None
    source: str
    format: str
    samples: pl.DataFrame = field(default_factory=_no_samples)
    explicit_groups: bool = False
    findings: tuple[Finding, ...] = ()

    @property
    def refused(self) -> bool:
        """Return whether a finding refuses the batch."""
        return any(finding.severity == "error" for finding in self.findings)

    def without_samples(self) -> BatchRead:
        """Return the batch as it is remembered, or sent, where its samples are not."""
        return replace(self, samples=_no_samples())

    @property
    def key(self) -> tuple[str, str, int | None]:
        """Return (run, split, step)."""
        return self.run, self.split, self.step
