"""The content of a ledger: its newest publication, or an earlier one that is still kept."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import NoInputError
from pipeline.expressions import versions
from pipeline.expressions.catalogue import selected
from pipeline.expressions.keys import BATCH
from pipeline.snapshots.content import SETTINGS, TABLES, Content, TableContent, kept_schema, normal_settings
from pipeline.snapshots.fingerprint import short
from pipeline.store import publication, segments
from pipeline.store.layout import GENERATION_TABLES, Layout
from schemas.snapshot import Selection, SettingsUse, Versions
from schemas.tables import MetricRow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_VERSIONS = "versions"


def of_ledger(ledger: Path, selection: Selection, generation: int | None = None) -> Content:
    """Return what a ledger says of the selected batches.

    Args:
        ledger: directory of the ledger; it may have been moved or copied.
        selection: batches and tables.
        generation: number of a publication; by default the newest.

    Raises:
        NoInputError: there is no ledger, or it no longer has that publication.
    """
    layout = Layout(ledger.resolve())
    newest = publication.newest_number(layout)
    batches = _batches(layout, newest if generation is None else generation)
    batches = batches.filter(_selected(selection)).sort(BATCH)
    title = f"ledger {ledger}" if generation is None else f"generation {generation}"
    tables: dict[str, TableContent] = {
        name: _table(layout, name, batches, selection.metrics) for name in TABLES if name in selection.tables
    }
    return Content(title, _versions(batches), _settings(batches), tables, _counts(batches))


def _batches(layout: Layout, number: int) -> pl.DataFrame:
    directory = layout.generation(number)
    if not directory.is_dir():
        kept = sorted(int(entry.name) for entry in directory.parent.glob("*") if entry.name.isdigit())
        message = f"generation {number}: not in {layout.root}; the publications kept are {', '.join(map(str, kept))}"
        raise NoInputError(message)
    batches = publication.load(layout, number).batches
    if _VERSIONS not in batches.columns:
        batches = batches.with_columns(pl.lit(versions.current()).alias(_VERSIONS))
    texts = {text: normal_settings(text) for text in batches[SETTINGS].unique()}
    return batches.with_columns(pl.col(SETTINGS).replace(texts))


def _selected(selection: Selection) -> pl.Expr:
    keep = pl.lit(value=True)
    if selection.runs:
        keep &= pl.col("run").is_in(selection.runs)
    if selection.split is not None:
        keep &= pl.col("split") == selection.split
    if selection.first_step is not None:
        keep &= pl.col("step") >= selection.first_step
    if selection.last_step is not None:
        keep &= pl.col("step") <= selection.last_step
    return keep


def _table(layout: Layout, name: str, batches: pl.DataFrame, metrics: Sequence[str]) -> TableContent:
    table = TABLES[name]
    schema = kept_schema(table)
    if table in GENERATION_TABLES:
        return TableContent(table, schema, (batches.select(schema.names()).lazy(),))
    names = batches[publication.SEGMENT].drop_nulls().unique().sort()
    columns = [pl.col(column).cast(dtype) for column, dtype in schema.items()]
    pieces = (segments.read_segment(layout, segment, name).select(columns) for segment in names)
    if name == MetricRow.relation and metrics:
        pieces = (piece.filter(_is_kept(metrics)) for piece in pieces)
    # A segment may hold batches that are not selected.
    return TableContent(table, schema, tuple(pieces), batches.select(BATCH))


def _is_kept(metrics: Sequence[str]) -> pl.Expr:
    """Return whether a row is of one of some metrics, given by name, family or pattern."""
    kept = selected(metrics)
    name = pl.col("metric")
    families = (name.str.starts_with(metric.pattern.partition("*")[0]) for metric in kept if metric.label is not None)
    return pl.any_horizontal(name.is_in([metric.name for metric in kept]), *families)


def _versions(batches: pl.DataFrame) -> tuple[Versions, ...]:
    return tuple(Versions.model_validate(json.loads(text)) for text in batches[_VERSIONS].unique().sort())


def _settings(batches: pl.DataFrame) -> dict[str, SettingsUse]:
    uses = {}
    for (text,), rows in batches.sort(SETTINGS, *BATCH).group_by(SETTINGS, maintain_order=True):
        counted = dict(sorted(Counter(rows["run"]).items()))
        uses[short(str(text))] = SettingsUse(runs=counted, values=json.loads(str(text)))
    return dict(sorted(uses.items()))


def _counts(batches: pl.DataFrame) -> dict[str, int]:
    totals = {name: int(batches[name].sum()) for name in ("samples", "rollouts")}
    return {"runs": batches["run"].n_unique(), "batches": batches.height, **totals}
