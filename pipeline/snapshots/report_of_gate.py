"""What the gate says, and its history, as text."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from pipeline.snapshots import words

if TYPE_CHECKING:
    from pipeline.snapshots.gate import Judged


def as_text(judged: Judged) -> str:
    """Return the verdict in one line, and what it is based on in a second."""
    value = "" if judged.value is None else f" {words.number(judged.value)} over {judged.count:,}"
    step = "" if judged.step is None else f" at step {judged.step}"
    lines = [f"{judged.status.upper()}  {judged.metric}{value}{step} of {judged.series}: {judged.reason}"]
    if judged.mean is not None:
        low, high = words.number(judged.low), words.number(judged.high)
        points = f"{judged.points} trusted point{'' if judged.points == 1 else 's'}"
        lines.append(f"corridor {low} to {high} around {words.number(judged.mean)}, the mean of {points}")
    if judged.recorded is not None:
        lines.append(f"recorded as {judged.recorded}")
    return "\n".join(lines)


def as_json(judged: Judged) -> str:
    """Return the verdict as one JSON document."""
    return json.dumps(dataclasses.asdict(judged), indent=1, ensure_ascii=False, allow_nan=False)
