"""`rollout-ledger sql`: one SELECT over a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pipeline.cli import console
from pipeline.cli.output import Format
from pipeline.errors import Exit


def sql(
    statement: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    ledger: Path,
    format: Format | None = None,
    limit: int | None = None,
    output: Path | None = None,
    timeout: float = 60.0,
) -> int:
    """Ask a ledger one SELECT statement. Nothing can be written with it.

    Args:
        statement: a SELECT in DuckDB's SQL over batches, samples, rollouts, prompt_groups, adapters, metrics, findings
            and the views of queries/README.md.
        ledger: directory of the ledger.
        format: table, json, csv or markdown; by default what the output's name ends with, else table.
        limit: rows at most; 0 for all.
        output: file to write the answer to instead of stdout.
        timeout: seconds after which the statement is stopped.
    """
    from pipeline.audit.query import sql as query
    from pipeline.cli.output import deliver
    from pipeline.cli.watchdog import ending_after

    with ending_after(timeout):
        rows = query(statement, ledger, timeout=timeout, limit=limit + 1 if limit else None)
    if limit and rows.height > limit:
        console.say(f"the first {limit:,} rows; there are more")
        rows = rows.head(limit)
    deliver(rows, format, output)
    return Exit.DONE
