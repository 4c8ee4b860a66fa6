"""Records of one sample each become canonical samples; what breaks the contract becomes findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

from pipeline.sources.values import MISSING, classify, number
from schemas.canonical import CanonicalSample
from schemas.findings import CODES, Finding, shown
from schemas.frames import polars_schema
from schemas.record import SampleRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_LISTED = 1_000
"""Problems listed of one batch; the rest is counted in a last finding."""

_RECORDS: TypeAdapter[list[SampleRecord]] = TypeAdapter(list[SampleRecord])
_REMEDY = "correct the dump, or the code that wrote it"
_FIELD_OF = {"mask_length": "loss_mask", "no_length": "response_length", "slot_without_name": "adapter_name"}


def check_records(records: Sequence[Any]) -> tuple[list[SampleRecord | None], list[Finding]]:
    """Return the validated records, null for the ones that break the contract, and every problem with its 0-based row."""
    try:
        return list(_RECORDS.validate_python(records)), []
    except ValidationError:
        return _check_singly(records)


def _check_singly(records: Sequence[Any]) -> tuple[list[SampleRecord | None], list[Finding]]:
    checked: list[SampleRecord | None] = []
    found: list[Finding] = []
    for row, record in enumerate(records):
        try:
            checked.append(SampleRecord.model_validate(record))
        except ValidationError as error:
            checked.append(None)
            found += [_problem(detail, row) for detail in error.errors(include_url=False)]
    return checked, found


def listed(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a batch, the first `MAX_LISTED` of them and a count of the rest."""
    rest = len(findings) - MAX_LISTED
    if rest <= 0:
        return list(findings)
    message = f"{rest} more problems in this batch are not listed"
    return [*findings[:MAX_LISTED], Finding(code="too_many_problems", message=message, value=str(rest))]


def _problem(detail: Any, row: int) -> Finding:
    kind = detail["type"]
    field = ".".join(str(part) for part in detail["loc"]) or _FIELD_OF.get(kind)
    value = None if kind in _FIELD_OF else shown(detail["input"])
    expected = detail["msg"][0].lower() + detail["msg"][1:]
    return Finding(
        code=kind if kind in CODES else "invalid_value",
        message=f"{field or 'sample'}: {expected}; {_REMEDY}",
        row=row,
        field=field,
        value=value,
    )


def canonical_columns(records: Sequence[SampleRecord]) -> Mapping[str, list[Any]]:
    """Return the canonical columns of validated records; run, split, step and row are the caller's to add."""
    rewards = [classify(record.reward) for record in records]
    present_raws = [record.raw for record in records]
    raws = [number(value) if present else MISSING[:2] for present, value in present_raws]
    adapters = [record.adapter_key for record in records]
    return {
        "adapter_name": [name for name, _ in adapters],
        "adapter_slot": [slot for _, slot in adapters],
        "registration_id": [record.registration for record in records],
        "rollout_id": [record.rollout_id for record in records],
        "sample_index": [record.index for record in records],
        "group_index": [record.group_index for record in records],
        "explicit_group": [record.prompt_group for record in records],
        "reward_value": [reward.value for reward in rewards],
        "reward_value_state": [reward.state for reward in rewards],
        "reward_parts": [reward.parts for reward in rewards],
        "has_raw_reward": [present for present, _ in present_raws],
        "raw_value": [value for value, _ in raws],
        "raw_value_state": [state for _, state in raws],
        "response_length": [record.length for record in records],
        "mask_tokens": [record.mask_tokens for record in records],
        "remove_sample": [bool(record.remove_sample) for record in records],
        "status": [record.status for record in records],
    }


def canonical_frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    """Return a frame of exactly the canonical columns and types from columns or single values."""
    schema = polars_schema(CanonicalSample)
    height = next(len(values) for values in columns.values() if isinstance(values, (list, pl.Series)))
    series = (
        pl.Series(name, columns[name], dtype=dtype)
        if isinstance(columns[name], (list, pl.Series))
        else pl.repeat(columns[name], height, dtype=dtype, eager=True).alias(name)
        for name, dtype in schema.items()
    )
    return pl.DataFrame(list(series))
