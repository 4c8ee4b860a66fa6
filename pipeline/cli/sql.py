"""`rollout-ledger sql`: one SELECT over a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pipeline.cli import console
from pipeline.cli.output import Format


def sql(
    statement: str,
    /,
    *,
    ledger: Path,
    format: Format = "table",
    limit: Annotated[int | None, Parameter(validator=None)] = None,
    timeout: float = 60.0,
) -> int:
    """Ask a ledger one SELECT statement. Nothing can be written with it.

    Args:
        statement: a SELECT in DuckDB's SQL over batches, samples, rollouts, prompt_groups, adapters, metrics, findings.
        ledger: directory of the ledger.
        format: table, json, csv or markdown.
        limit: rows to show at most.
        timeout: seconds after which the statement is stopped.
    """
    from pipeline.audit.query import sql as query
    from pipeline.cli.output import render

    rows = query(statement, ledger, timeout=timeout)
    console.answer(render(rows if limit is None else rows.head(limit), format))
    if limit is not None and rows.height > limit:
        console.say(f"{rows.height - limit:,} more rows")
    return 0
