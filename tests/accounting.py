"""The pipeline's answer to a `Dump`, in the reference's shape: rows by relation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.recomputing.chunk import Chunk, compute, finding_rows
from pipeline.sources.batch import BatchRead, SourceFile
from pipeline.sources.contract import canonical_columns, canonical_frame, check_records
from pipeline.sources.gathering import Gathering
from pipeline.sources.trainer_dump import batch_of
from schemas.settings import Settings
from schemas.tables import PUBLISHED, AbsentMetricRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

    from pipeline.stages.accounting import Engine
    from schemas.table import Table
    from tests.reference import Dump

TABLES: tuple[type[Table], ...] = tuple(dict.fromkeys((*PUBLISHED, AbsentMetricRow)))
ACCOUNTING_ALONE: Mapping[str, Any] = {"metrics": ["accounting"]}
"""The rest of the catalogue takes longer than all other tables, and few tests are about it."""


def batch_read(dump: Dump) -> BatchRead:
    """Return a dump as the reader of trainers' dumps gives it, without a file."""
    if any("prompt_group" in sample for sample in dump.samples):
        return record_batch(dump)
    metadata = {} if dump.prompt_group_sizes is None else {"prompt_group_sizes": dump.prompt_group_sizes}
    payload = {"rollout_id": dump.step, "metadata": metadata, "samples": dump.samples}
    source = SourceFile(Path(f"{dump.split}_{dump.step}.pt"), run=dump.run, split=dump.split)
    return batch_of(source, payload)


def record_batch(dump: Dump) -> BatchRead:
    """Return a dump as the reader of record formats gives it: with labels of explicit groups."""
    gathering = Gathering(SourceFile(Path("records.jsonl"), dump.run, dump.split, dump.step), "jsonl")
    checked, problems = check_records(dump.samples)
    for problem in problems:
        gathering.refuse(gathering.default_key(), problem)
    records = [record for record in checked if record is not None]
    place = {"run": dump.run, "split": dump.split, "step": dump.step, "row": list(range(len(records)))}
    gathering.add(canonical_frame({**canonical_columns(records), **place}))
    (batch,) = gathering.batches()
    return batch


def accounted(
    dumps: Iterable[Dump], settings: Mapping[str, Any], engine: Engine = "in-memory"
) -> dict[str, list[dict[str, Any]]]:
    """Return every table of some dumps as rows; refused dumps leave findings only.

    Of the metrics those of the accounting alone, unless the settings say otherwise.
    """
    frames = accounted_frames(dumps, settings, engine)
    return {name: frame.to_dicts() for name, frame in frames.items()}


def accounted_frames(
    dumps: Iterable[Dump], settings: Mapping[str, Any], engine: Engine = "in-memory"
) -> dict[str, pl.DataFrame]:
    """Return every table of some dumps, sorted by its grain."""
    batches = [batch_read(dump) for dump in dumps]
    accepted = tuple(batch for batch in batches if not batch.refused)
    computed = compute(Chunk(accepted, Settings(**{**ACCOUNTING_ALONE, **settings}), engine))
    findings = [finding for batch in batches for finding in batch.findings] + computed.findings
    tables = {**computed.tables, "findings": finding_rows(findings)}
    return {
        t.relation: tables[t.relation].sort([name for name in t.grain if name in tables[t.relation].columns])
        for t in TABLES
        if t.relation in tables
    }
