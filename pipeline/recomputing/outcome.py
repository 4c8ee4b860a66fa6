"""What a recompute has done, as facts; words are the command's business."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.store.publication import STORED_BATCHES

if TYPE_CHECKING:
    import polars as pl

    from schemas.findings import Finding


@dataclass
class Outcome:
    """What a recompute has done.

    Args:
        accepted: batches that were computed and published, rows as stored.
        findings: everything that was found in this recompute.
        refused: batches (or files of which not even the batches are known) that were refused.
        pending: files that are still being written.
        unchanged: files that needed nothing.
        reasons: for each reason why a file was read or its batches accounted for again, how many files.
        vanished: files that are not there any more; their batches are kept.
        failed_runs: errors of runs none of whose sources could be used.
        generation: number of the newest publication.
        published: whether this recompute has published it.
        stopped: whether it was told to stop early.
    """

    accepted: pl.DataFrame = field(default_factory=STORED_BATCHES.to_frame)
    findings: list[Finding] = field(default_factory=list)
    refused: int = 0
    pending: list[str] = field(default_factory=list)
    unchanged: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    vanished: int = 0
    failed_runs: list[str] = field(default_factory=list)
    generation: int = 0
    published: bool = False
    stopped: bool = False

    @property
    def used_nothing(self) -> bool:
        """Return whether no input could be used: nothing taken, nothing known, nothing to wait for."""
        return self.accepted.is_empty() and not self.pending and not self.unchanged and not self.stopped
