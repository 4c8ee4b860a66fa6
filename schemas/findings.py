"""Findings: what is wrong with an input, where, and what to do."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Severity = Literal["error", "warning"]

CODES: dict[str, tuple[Severity, str]] = {
    "unreadable_file": ("error", "the file cannot be read"),
    "unknown_format": ("error", "the file's content is of no known format"),
    "torn_line": ("error", "the last line is cut off"),
    "bad_line": ("error", "a line is not a JSON object"),
    "payload_shape": ("error", "the payload is not a rollout dump"),
    "invalid_value": ("error", "a field breaks the input contract"),
    "mask_length": ("error", "the loss mask is not as long as the response"),
    "group_sizes": ("error", "prompt group sizes do not fit the batch"),
    "step_mismatch": ("error", "the payload's step is not that of the file's name"),
    "step_unknown": ("error", "neither the content nor the file's name tells the step"),
    "duplicate_batch": ("error", "two sources claim one run, split and step"),
    "siblings_differ": ("error", "siblings have different rewards although sibling_rewards is shared"),
    "too_many_problems": ("error", "more problems of this kind than are listed"),
    "foreign_name": ("warning", "the file's name is not that of a rollout dump; skipped"),
    "unknown_class": ("warning", "the dump holds objects of a class that is not known; they were read as inert values"),
    "replaced_batch": ("warning", "a published step was dumped again with other samples, as a resumed run does"),
    "raw_reward_partial": ("warning", "some samples have metadata.raw_reward and some have not"),
    "group_mixes_adapters": ("warning", "a block of the batch holds several adapters"),
    "unknown_status": ("warning", "a status that no known trainer writes"),
    "unknown_estimator": (
        "warning",
        "an advantage estimator that is not known: advantages are the rewards as they are",
    ),
}
"""Severity and meaning of every finding's code."""


class Finding(BaseModel):
    """One problem of an input. `error` refuses the batch, `warning` does not."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    code: str
    message: str
    source: str | None = None
    run: str | None = None
    split: str | None = None
    step: int | None = None
    row: int | None = None
    field: str | None = None
    value: str | None = None

    @property
    def severity(self) -> Severity:
        """Return `error` or `warning`, as the code says."""
        return CODES[self.code][0]


_READABLE_BITS = 256


def shown(value: object, limit: int = 80) -> str:
    """Return a short, safe text of any value: bounded in length, also for a huge integer or a deep structure."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _READABLE_BITS:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (list, tuple, dict, set, frozenset)):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value[: limit + 1]) if isinstance(value, (str, bytes)) else repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
