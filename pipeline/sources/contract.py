"""Records of one sample each become canonical samples; what breaks the contract becomes findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import TypeAdapter, ValidationError

from pipeline.sources import extras
from pipeline.sources.values import MISSING, classify, number, readable
from schemas.canonical import CanonicalSample
from schemas.findings import CODES, Finding, shown
from schemas.frames import polars_schema
from schemas.record import SampleRecord
from schemas.table import MAX_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_LISTED = 1_000
"""Problems listed of one batch; the rest is counted in a last finding."""

_RECORDS: TypeAdapter[list[SampleRecord]] = TypeAdapter(list[SampleRecord])
_REMEDY = "correct the dump, or the code that wrote it"
_REST = "too_many_problems"
_FIELD_OF = {"mask_length": "loss_mask", "no_length": "response_length", "slot_without_name": "adapter_name"}


def check_records(records: Sequence[Any]) -> tuple[list[SampleRecord | None], list[Finding]]:
    """Return the validated records, null for those that break the contract, and every problem with its 0-based row."""
    try:
        checked = _RECORDS.validate_python(records)
    except ValidationError:
        return _check_singly(records)
    return _check_singly(records) if any(map(_has_absurd_mask, checked)) else (list(checked), [])


def _check_singly(records: Sequence[Any]) -> tuple[list[SampleRecord | None], list[Finding]]:
    checked: list[SampleRecord | None] = []
    found: list[Finding] = []
    for row, record in enumerate(records):
        try:
            valid = SampleRecord.model_validate(record)
            problems = [_absurd_mask(valid, row)] if _has_absurd_mask(valid) else []
        except ValidationError as error:
            problems = [_problem(detail, row) for detail in error.errors(include_url=False)]
        checked.append(None if problems else valid)
        found += problems
    return checked, found


def _has_absurd_mask(record: SampleRecord) -> bool:
    return record.loss_mask is not None and record.loss_mask.total >= MAX_TOKENS


def _absurd_mask(record: SampleRecord, row: int) -> Finding:
    message = f"loss_mask: its sum should be less than {MAX_TOKENS}; {_REMEDY}"
    total = record.loss_mask.total if record.loss_mask is not None else None
    return Finding(code="invalid_value", message=message, row=row, field="loss_mask", value=f"a sum of {shown(total)}")


def listed(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of a batch, the first `MAX_LISTED` of them and a count of the rest."""
    problems = [finding for finding in findings if finding.code != _REST]
    counted = sum(int(finding.value or 0) for finding in findings if finding.code == _REST)
    rest = counted + max(0, len(problems) - MAX_LISTED)
    return problems[:MAX_LISTED] + ([not_listed(rest)] if rest else [])


def not_listed(problems: int) -> Finding:
    """Return the finding that stands for problems that are only counted."""
    message = f"{problems} more problems in this batch are not listed; correct those that are, and read it again"
    return Finding(code=_REST, message=message, value=str(problems))


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
        "adapter_name": [_readable(name) for name, _ in adapters],
        "adapter_slot": [slot for _, slot in adapters],
        "registration_id": [_readable(record.registration) for record in records],
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
        "status": [_readable(record.status) for record in records],
        **extras.columns(records),
    }


def _readable(text: str | None) -> str | None:
    return None if text is None else readable(text)


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
