"""`rollout-ledger metrics`: what there is to read off a batch, and what a ledger has of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pipeline.cli.output import Format

if TYPE_CHECKING:
    import polars as pl


def metrics(
    patterns: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    /,
    *,
    ledger: Path | None = None,
    run: str | None = None,
    format: Format | None = None,
    output: Path | None = None,
) -> int:
    """List the metrics: what each is, what is counted once for it, and the key under which trainers log it.

    Args:
        patterns: only these: names, families or patterns such as 'episode_*'.
        ledger: directory of a ledger: also tell how many batches have each metric, and why others do not.
        run: only this run of the ledger.
        format: table, json, csv or markdown; by default what the output's name ends with, else table.
        output: file to write the answer to instead of stdout.
    """
    from pipeline.cli.output import chosen, deliver

    # On a terminal a line is as wide as a line: the rest of the record is in the other formats.
    is_brief = chosen(format, output) == "table"
    deliver(_listed(patterns, ledger, run, is_brief=is_brief), format, output)
    return 0


def _listed(patterns: tuple[str, ...], ledger: Path | None, run: str | None, *, is_brief: bool) -> pl.DataFrame:
    from pipeline.audit.metrics import coverage, listed

    frame = listed(patterns) if ledger is None else coverage(ledger, patterns, run)
    brief = ("name", "family", "unit", "better", "tracker_key", "meaning")
    return frame.select(brief) if is_brief and ledger is None else frame
