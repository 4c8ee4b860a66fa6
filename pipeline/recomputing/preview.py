"""What a recompute would do, and why, without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import NoInputError
from pipeline.recomputing.again import reasons
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
        NoInputError: no run has a source.
    """
    before = publication.last(Layout(ledger))
    known = Known(before)
    rows: list[tuple[object, ...]] = []
    errors: list[NoInputError] = []
    for plan in plans:
        try:
            rows += _rows(decide(plan, known, options), before, options)
        except NoInputError as error:
            errors.append(error)
            rows.append((plan.name, None, None, "fail", str(error), ", ".join(plan.sources)))
    if len(errors) == len(plans):
        raise errors[0]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _rows(decided: Decided, before: Publication, options: Options) -> Iterator[tuple[object, ...]]:
    for decision in decided.decisions:
        if decision.action in {"read", "pending"}:
            file = decision.file
            yield file.run, file.split, file.step, decision.action, decision.reason, file.name
    for run, source in decided.vanished:
        yield run, None, None, "keep", "vanished", source
    for failure in decided.failures:
        yield decided.plan.name, None, None, "fail", failure, None
    again = batches_to_account(before, decided.plan.settings, decided, options.selection)
    rows = again.select("run", "split", "step", "source").iter_rows()
    for (run, split, step, source), reason in zip(rows, reasons(again), strict=True):
        yield run, split, step, "account again", reason, source
