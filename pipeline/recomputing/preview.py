"""What a recompute would do, and why, without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions.versions import current as current_versions
from pipeline.recomputing.decisions import Known, batches_to_account, decide
from pipeline.store import publication
from pipeline.store.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.recomputing.decisions import Decided
    from pipeline.recomputing.options import Options
    from pipeline.recomputing.plan import RunPlan
    from pipeline.store.publication import Publication

_SCHEMA = {
    "run": pl.String,
    "split": pl.String,
    "step": pl.Int64,
    "action": pl.String,
    "reason": pl.String,
    "source": pl.String,
}


def preview(plans: Sequence[RunPlan], ledger: Path, options: Options) -> pl.DataFrame:
    """Return one row a file to be read, to wait for, or gone, and one a published batch to be computed again.

    Raises:
        NoInputError: a source does not exist.
    """
    before = publication.current(Layout(ledger))
    known = Known(before)
    rows = [row for plan in plans for row in _rows(decide(plan, known, options), before, options)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _rows(decided: Decided, before: Publication, options: Options) -> Iterator[tuple[object, ...]]:
    for decision in decided.decisions:
        if decision.action in {"read", "pending"}:
            file = decision.file
            yield file.run, file.split, file.step, decision.action, decision.reason, file.name
    for run, source in decided.vanished:
        yield run, None, None, "keep", "vanished", source
    again = batches_to_account(before, decided.plan.settings, decided, options.selection)
    is_same_code = pl.col("versions") == current_versions()
    reasons = again.with_columns(
        reason=pl.when(is_same_code).then(pl.lit("settings")).otherwise(pl.lit("metric version"))
    )
    for run, split, step, reason, source in reasons.select("run", "split", "step", "reason", "source").iter_rows():
        yield run, split, step, "account again", reason, source
