"""Rollout dumps of miles and slime: a `.pt` file with `rollout_id`, `samples` and, in miles, `metadata`.

Source of the layout: miles and slime at 2026-08, `save_debug_rollout_data`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline.errors import SourceError
from pipeline.sources.batch import BatchRead
from pipeline.sources.contract import canonical_columns, canonical_frame, check_records, listed
from pipeline.sources.extras import RAW_FIELDS
from pipeline.sources.gathering import check_batch
from pipeline.sources.pickled import PickleError
from pipeline.sources.torch_file import TorchFileError, read_torch_file
from schemas.findings import Finding, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

    from pipeline.sources.batch import SourceFile
    from schemas.record import SampleRecord

FORMAT = "pt"
_INT64 = range(-(2**63), 2**63)


def read(source: SourceFile) -> Iterator[BatchRead]:
    """Yield the one batch of a rollout dump.

    Raises:
        SourceError: the file cannot be read, or is no rollout dump.
    """
    try:
        with read_torch_file(source.path) as dump:
            yield batch_of(source, dump.payload, dump.unknown_classes)
    except (TorchFileError, PickleError) as error:
        message = f"{error}; write it again, or remove it"
        raise SourceError("unreadable_file", message) from error


def batch_of(source: SourceFile, payload: object, unknown_classes: frozenset[str] = frozenset()) -> BatchRead:
    """Return the batch of a dump that has been read.

    Args:
        source: the file, for its name, run, split and step.
        payload: what the file holds, in plain and inert objects.
        unknown_classes: names of classes that were read as inert values.

    Raises:
        SourceError: the payload is no rollout dump, or its step contradicts the name.
    """
    payload, samples = _checked(payload)
    step = _step(source, payload)
    findings = [_unknown_class(name) for name in sorted(unknown_classes)]
    checked, problems = check_records([_record(sample) for sample in samples])
    labels, problem = _group_labels(payload.get("metadata"), len(samples))
    findings += problems + ([problem] if problem else [])
    batch = BatchRead(
        source.run, source.split or "train", step, source.name, FORMAT, explicit_groups=labels is not None
    )
    if problems or problem:
        return replace(batch, findings=tuple(listed(findings)))
    frame = _frame(batch, [record for record in checked if record is not None], labels)
    return replace(batch, samples=frame, findings=(*findings, *check_batch(frame)))


def _frame(batch: BatchRead, records: list[SampleRecord], labels: list[int] | None) -> pl.DataFrame:
    columns = {
        **canonical_columns(records),
        "run": batch.run,
        "split": batch.split,
        "step": batch.step,
        "row": list(range(len(records))),
    }
    return canonical_frame(columns if labels is None else {**columns, "explicit_group": labels})


def _checked(payload: object) -> tuple[dict[Any, Any], list[Any]]:
    if not isinstance(payload, dict) or not isinstance(payload.get("samples"), (list, tuple)):
        what = "a train dump" if isinstance(payload, dict) and "rollout_data" in payload else type(payload).__name__
        message = (
            f"expected a rollout dump, a dictionary with a list `samples`; this is {what}: give the rollout_data folder"
        )
        raise SourceError("payload_shape", message, field="samples")
    if "dp_shards" in payload:
        message = "this is a train dump (it has dp_shards); give the rollout_data folder"
        raise SourceError("payload_shape", message, field="dp_shards")
    return payload, list(payload["samples"])


def _step(source: SourceFile, payload: dict[Any, Any]) -> int:
    step = payload.get("rollout_id")
    if step is None and source.step is not None:
        return source.step
    if not isinstance(step, int) or isinstance(step, bool) or step not in _INT64:
        code = "step_unknown" if step is None else "invalid_value"
        message = "rollout_id: the payload's step should be a 64-bit integer, and the file's name has none either"
        raise SourceError(code, message, field="rollout_id", value=shown(step))
    if source.step is not None and source.step != step:
        message = (
            f"the payload says step {step}, the file's name says {source.step}; one of the two is wrong: "
            "rename the file, or remove it"
        )
        raise SourceError("step_mismatch", message, field="rollout_id", value=str(step))
    return step


def _record(sample: object) -> object:
    """Return a sample's fields; an object of the trainer's own class gives its attributes."""
    fields = sample if isinstance(sample, dict) else getattr(sample, "state", None)
    if not isinstance(fields, dict):
        return sample
    adapter = fields.get("adapter")
    state = getattr(adapter, "state", None)
    # Fields of the record formats have no business in a dump: a custom attribute of such a name is not one of them.
    known = {name: fields[name] for name in _DUMPED if name in fields}
    return {**known, "adapter": state if isinstance(state, dict) else adapter}


_DUMPED = (
    "rollout_id",
    "index",
    "group_index",
    "reward",
    "metadata",
    "response_length",
    "loss_mask",
    "remove_sample",
    "status",
    *RAW_FIELDS,
)


def _group_labels(metadata: object, samples: int) -> tuple[list[int] | None, Finding | None]:
    """Return the block number of every sample from `prompt_group_sizes`, null where the dump has none."""
    sizes = metadata.get("prompt_group_sizes") if isinstance(metadata, dict) else None
    if sizes is None:
        return None, None
    try:
        blocks = [int(size) for size in sizes]
        valid = all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in sizes)
    except (TypeError, ValueError, OverflowError):
        valid, blocks = False, []
    if not valid or sum(blocks) != samples:
        found = f"they add up to {shown(sum(blocks))}" if valid else "they are not whole numbers of 0 or more"
        message = f"prompt_group_sizes: expected sizes that add up to the {samples} samples of the batch; {found}"
        return [], Finding(code="group_sizes", message=message, field="metadata.prompt_group_sizes", value=shown(sizes))
    return [block for block, size in enumerate(blocks) for _ in range(size)], None


def _unknown_class(name: str) -> Finding:
    message = f"the dump holds objects of {name}, which were read as inert values; nothing of them was executed"
    return Finding(code="unknown_class", message=message, value=name)
