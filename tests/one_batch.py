"""One batch of samples as a file, and the ledger that a recompute makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline import RunPlan, Settings
from pipeline.recomputing import Options

AT_ONCE = Options(still_seconds=0)
Figures = dict[str, tuple[float | None, int]]


def close(value: object) -> Any:
    return pytest.approx(value, abs=1e-6)


def write(path: Path, *samples: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in samples))
    return path


def recomputed(folder: Path, *samples: dict[str, Any], **settings: Any) -> Path:
    """Return the ledger of one batch."""
    source = write(folder / "dumps" / "0.jsonl", *samples)
    ledger = folder / "ledger"
    pipeline.recompute([RunPlan((str(source.parent),), Settings(**settings), "run")], ledger, AT_ONCE)
    return ledger


def figures(ledger: Path) -> Figures:
    rows = pipeline.sql("SELECT metric, value, count FROM metrics WHERE scope = 'batch'", ledger).rows()
    return {metric: (value, count) for metric, value, count in rows}


def values(ledger: Path) -> dict[str, float | None]:
    return {metric: value for metric, (value, _) in figures(ledger).items()}


def column(ledger: Path, expression: str) -> list[Any]:
    return pipeline.sql(f"SELECT {expression} AS value FROM samples ORDER BY row", ledger)["value"].to_list()
