"""The work of one recompute: what has been computed so far, and who claims which batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import versions
from pipeline.expressions.keys import BATCH
from pipeline.recomputing.chunk import ACCOUNTING_CODES, Chunk, Computed, compute
from pipeline.store import segments
from pipeline.store.publication import SEGMENT, STORED_BATCHES
from schemas.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pipeline.recomputing.options import Options
    from pipeline.recomputing.taking import Taken
    from pipeline.sources.batch import BatchRead
    from pipeline.store.layout import Layout
    from schemas.settings import Settings

Key = tuple[str, str, int | None]
MAX_BATCHES = 256
"""Batches accounted for at once at most, however small they are."""


@dataclass
class Work:
    """What is gathered on the way; nothing of it is published yet.

    Args:
        accepted: batches by chunk, rows as stored, with the segment that holds their rows.
        refused: batches that break the contract.
        taken: files that were read to their end.
        pending: files that are not complete yet.
        findings: everything that was found.
        claims: the sources of every batch that was read.
        duplicated: a finding for every source of a batch that several claim, but for those still being written.
        again: published batches that were computed again from their samples: key and source.
        accounted_again: settings (JSON) of every file (run, source) whose published batches were computed again.
        reasons_again: how many published batches were computed again for each reason.
    """

    layout: Layout
    options: Options
    accepted: list[pl.DataFrame] = field(default_factory=list)
    refused: list[BatchRead] = field(default_factory=list)
    taken: list[tuple[Taken, Settings]] = field(default_factory=list)
    pending: list[Taken] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    claims: dict[Key, list[str]] = field(default_factory=lambda: defaultdict(list))
    duplicated: list[Finding] = field(default_factory=list)
    again: list[pl.DataFrame] = field(default_factory=list)
    accounted_again: dict[tuple[str, str], str] = field(default_factory=dict)
    reasons_again: Counter[str] = field(default_factory=Counter)

    def chunks(self, files: Iterator[Taken], settings: Settings) -> Iterator[list[BatchRead]]:
        """Yield accepted batches, as many at a time as make a chunk."""
        chunk: list[BatchRead] = []
        rows = 0
        for taken in files:
            if taken.pending is not None:
                self.pending.append(taken)
                continue
            for batch in self._claimed(taken, settings):
                chunk.append(batch)
                rows += batch.samples.height
                if rows >= self.options.chunk_rows or len(chunk) >= MAX_BATCHES:
                    yield chunk
                    chunk, rows = [], 0
        if chunk:
            yield chunk

    def _claimed(self, taken: Taken, settings: Settings) -> Iterator[BatchRead]:
        # What was read is remembered without its samples: a run has more of them than a machine has memory.
        self.taken.append((replace(taken, batches=[batch.without_samples() for batch in taken.batches]), settings))
        self.findings += taken.findings
        self.refused += [batch.without_samples() for batch in taken.refused]
        for batch in taken.batches:
            self.claims[batch.key].append(batch.source)
        # What another source has claimed before is refused, for both, once all claims are known.
        yield from (batch for batch in taken.accepted if self.claims[batch.key][0] == batch.source)

    def read_and_account(self, files: Iterator[Taken], settings: Settings) -> Iterator[None]:
        """Take files as they are read and account for them, chunk by chunk; yields after each."""
        for batches in self.chunks(files, settings):
            self.account(batches, settings)
            yield

    def account(self, batches: Sequence[BatchRead], settings: Settings) -> None:
        """Compute some whole batches and write their segment."""
        computed = compute(Chunk(tuple(batches), settings, self.options.engine))
        self.keep(computed, settings)
        keys = set(computed.batches.select(BATCH).iter_rows())
        self.refused += [batch.without_samples() for batch in batches if batch.key not in keys]

    def keep(self, computed: Computed, settings: Settings) -> None:
        """Write the segment of some computed batches.

        Args:
            computed: the batches' tables.
            settings: what they were computed with.
        """
        self.findings += computed.findings
        if computed.batches.is_empty():
            return
        segment = segments.write_segment(self.layout, computed.tables)
        stamp = {
            "settings": pl.lit(settings.as_json()),
            "versions": pl.lit(versions.current()),
            SEGMENT: pl.lit(segment),
            "published_at": pl.lit(None, STORED_BATCHES["published_at"]),
        }
        batches = computed.batches.with_columns(**stamp, state=pl.lit("ok"))
        self.accepted.append(batches.select(pl.col(name).cast(dtype) for name, dtype in STORED_BATCHES.items()))

    def absorb(self, other: Work) -> None:
        """Add what became of other files. What both have of one batch is refused, once all claims are known."""
        for name in ("accepted", "refused", "taken", "pending", "findings"):
            getattr(self, name).extend(getattr(other, name))
        for key, sources in other.claims.items():
            self.claims[key] += sources

    @property
    def reasons(self) -> dict[str, int]:
        """Return how many files were read, and batches accounted for again, for each reason."""
        read = Counter(taken.reason for taken, _ in self.taken)
        return dict(read + self.reasons_again)

    @property
    def errors(self) -> list[Finding]:
        """Return the findings that refuse a batch."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def find_duplicates(self, others: Iterable[tuple[Key, str]], waiting: Collection[str] = ()) -> None:
        """Note a finding for every source of a batch that several sources claim; none of them is taken.

        Args:
            others: batch and source of further claims, of files that were not read now.
            waiting: files that are still being written; they claim what they claimed before until they are read.
        """
        claims = {key: list(sources) for key, sources in self.claims.items() if key[2] is not None}
        for key, source in others:
            if source not in claims[key]:
                claims[key].append(source)
        several = {key: sorted(sources) for key, sources in claims.items() if len(sources) > 1}
        # Whichever came first was accounted for, only to be refused: what that noticed depends on the order.
        self.findings = [finding for finding in self.findings if not _is_of_accounting(finding, several)]
        found = [_duplicate(key, source, sources) for key, sources in several.items() for source in sources]
        self.duplicated = [finding for finding in found if finding.source not in waiting]
        self.findings += found


def _is_of_accounting(finding: Finding, batches: Mapping[Key, Sequence[str]]) -> bool:
    return finding.code in ACCOUNTING_CODES and (finding.run, finding.split, finding.step) in batches


def _duplicate(key: Key, source: str, sources: Sequence[str]) -> Finding:
    run, split, step = key
    others = ", ".join(other for other in sources if other != source) or "itself, twice"
    message = f"{split} step {step} of run {run} is also claimed by {others}; remove one, or name another run"
    return Finding(
        code="duplicate_batch", message=message, source=source, run=run, split=split, step=step, value=others
    )
