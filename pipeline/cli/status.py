"""`rollout-ledger status`: what a ledger holds, run by run."""

from __future__ import annotations

from pathlib import Path

from pipeline.cli import console
from pipeline.cli.output import Format


def status(*, ledger: Path, format: Format = "table") -> int:
    """Tell what a ledger holds: runs, steps, when, what is stale or refused, and how large it is.

    Args:
        ledger: directory of the ledger.
        format: table, json, csv or markdown.
    """
    from pipeline.audit.status import status as facts
    from pipeline.cli.output import render

    console.answer(render(facts(ledger), format))
    return 0
