"""The fields of a sample from one line of JSON, of which nothing else becomes an object.

Pydantic's own parser checks the whole line and steps over what the contract does not name: the tokens and their log
probabilities, most of a line. It refuses more than `json` does (half a surrogate pair, a byte order mark, integers of
more than 4,300 digits, 200 levels of nesting), and what it takes it reads alike; a line that it refuses, for whatever
reason, is left to `pipeline.sources.json_text`. `tests/sources/test_fast_lines.py` holds the two against each other.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import SchemaValidator, ValidationError, core_schema

from pipeline.sources.extras import REPETITIVE_CHARACTERS
from schemas.record import MaskSummary, SampleRecord

_MAX_LINE = 2**24
"""A longer line is left to `json`: here all of a line is held at once, at worst (lists of lists) 40 bytes a byte."""
_FIELDS = SchemaValidator(
    core_schema.typed_dict_schema(
        {
            name: core_schema.typed_dict_field(core_schema.any_schema(), required=False)
            for name in SampleRecord.model_fields
        },
        extra_behavior="ignore",
    )
)


def fields(text: bytes) -> dict[str, Any] | None:
    """Return those fields of a JSON object that the contract names; null where the text has to be parsed by `json`.

    Long values of which only little is wanted are replaced by what the contract makes the same of.
    """
    if len(text) > _MAX_LINE:
        return None
    try:
        record: dict[str, Any] = _FIELDS.validate_json(text)
    except ValidationError:
        return None
    _shorten(record)
    return record


def _shorten(record: dict[str, Any]) -> None:
    """Let go of what would be held until the chunk is complete: masks of 0 and 1, texts that tell nothing."""
    mask = record.get("loss_mask")
    if isinstance(mask, list):
        record["loss_mask"] = _summary(mask) or mask
    if isinstance(record.get("prompt"), str):
        record["prompt"] = ""
    response = record.get("response")
    if isinstance(response, str) and len(response) <= REPETITIVE_CHARACTERS:
        record["response"] = ""


def _summary(mask: list[Any]) -> MaskSummary | None:
    """Return the summary of a mask of 0 and 1, whatever their type; null for any other."""
    length, ones = len(mask), mask.count(1)
    return MaskSummary(length, ones) if ones == length or ones + mask.count(0) == length else None
