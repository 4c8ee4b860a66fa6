"""One piece of work: some whole batches and their settings become tables.

A piece knows nothing of the ledger and of other pieces; it could as well be done on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.keys import BATCH
from schemas.canonical import CanonicalBatch, CanonicalSample
from schemas.findings import CODES, Finding
from schemas.frames import empty_frame, polars_schema
from schemas.tables import FindingRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipeline.sources.batch import BatchRead
    from pipeline.stages.accounting import Engine
    from schemas.settings import Settings

_RELATIONS = ("batches", "samples", "rollouts", "prompt_groups", "adapters", "metrics", "absent_metrics")
_WORDS = {
    "raw_reward_partial": "there for some samples and missing for others; the first sample decides for all",
    "group_mixes_adapters": "a block of the batch holds several adapters; each is a prompt group of its own",
    "unknown_status": "expected pending, completed, truncated, aborted or failed; it counts as none of them",
    "siblings_differ": "siblings differ, and sibling_rewards is shared; use mainstream, or correct the dump",
}
ACCOUNTING_CODES = tuple(_WORDS)
"""Codes of findings that the accounting makes; those of reading a file stand as long as the file is not read again."""
_FIELDS = {
    "raw_reward_partial": "metadata.raw_reward",
    "group_mixes_adapters": "adapter",
    "unknown_status": "status",
    "siblings_differ": "reward",
}


@dataclass(frozen=True)
class Chunk:
    """Whole batches that are accounted for in one go."""

    batches: tuple[BatchRead, ...]
    settings: Settings
    engine: Engine = "in-memory"


@dataclass(frozen=True)
class Computed:
    """The tables of a chunk, its refused batches left out, and what was noticed."""

    tables: dict[str, pl.DataFrame]
    findings: list[Finding]

    @property
    def batches(self) -> pl.DataFrame:
        """Return the batches that were accepted."""
        return self.tables["batches"]


def compute(chunk: Chunk) -> Computed:
    """Return every table of a chunk."""
    samples = (
        pl.concat([batch.samples for batch in chunk.batches], rechunk=True)
        if chunk.batches
        else empty_frame(CanonicalSample)
    )
    return compute_frames(samples, canonical_batches(chunk.batches), chunk.settings, chunk.engine)


def compute_frames(samples: pl.DataFrame, batches: pl.DataFrame, settings: Settings, engine: Engine) -> Computed:
    """Return every table of some whole batches, given as canonical samples and batches."""
    # Expressions for a hundred metrics: a recompute that finds nothing new does not wait for them.
    from pipeline.stages.accounting import account

    accounts = account(samples.lazy(), batches.lazy(), settings, engine)
    frames = [getattr(accounts, name) for name in _RELATIONS]
    *collected, noticed = pl.collect_all([*frames, accounts.findings], engine=engine)
    tables = dict(zip(_RELATIONS, collected, strict=True))
    findings = _worded(noticed, batches)
    return Computed(_without_refused(tables, findings), findings)


def canonical_batches(batches: Iterable[BatchRead]) -> pl.DataFrame:
    """Return one row a batch that was read (`CanonicalBatch`)."""
    rows = [
        (batch.run, batch.split, batch.step, batch.source, batch.format, batch.samples.height, batch.explicit_groups)
        for batch in batches
    ]
    return pl.DataFrame(rows, schema=polars_schema(CanonicalBatch), orient="row")


def _worded(noticed: pl.DataFrame, batches: pl.DataFrame) -> list[Finding]:
    if noticed.is_empty():
        return []
    placed = noticed.join(batches.select(*BATCH, "source"), on=list(BATCH), how="left").sort(*BATCH, "code", "row")
    return [
        Finding(**row, message=f"{_FIELDS[row['code']]}: {_WORDS[row['code']]}", field=_FIELDS[row["code"]])
        for row in placed.iter_rows(named=True)
    ]


def _without_refused(tables: dict[str, pl.DataFrame], findings: Sequence[Finding]) -> dict[str, pl.DataFrame]:
    refused = [(f.run, f.split, f.step) for f in findings if CODES[f.code][0] == "error"]
    if not refused:
        return tables
    keys = pl.DataFrame(refused, schema={name: polars_schema(FindingRow)[name] for name in BATCH}, orient="row")
    return {name: frame.join(keys, on=list(BATCH), how="anti") for name, frame in tables.items()}


def finding_rows(findings: Iterable[Finding]) -> pl.DataFrame:
    """Return findings as rows of the published table."""
    rows = [{**finding.model_dump(), "severity": finding.severity} for finding in findings]
    return pl.DataFrame(rows, schema=polars_schema(FindingRow), orient="row") if rows else empty_frame(FindingRow)
