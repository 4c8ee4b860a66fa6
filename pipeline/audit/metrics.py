"""The metric catalogue as a table, and how much of it a ledger has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.audit.query import connected, fetched
from pipeline.expressions.catalogue import METRICS, Metric, selected
from pipeline.store.derived import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SCHEMA = pl.Schema(
    {
        "name": pl.String(),
        "family": pl.String(),
        "unit": pl.String(),
        "scopes": pl.String(),
        "count_of": pl.String(),
        "better": pl.String(),
        "version": pl.Int64(),
        "tracker_key": pl.String(),
        "differs_from": pl.String(),
        "meaning": pl.String(),
        "source": pl.String(),
        "sql": pl.String(),
    }
)
_COVERAGE = pl.Schema(
    {"name": pl.String(), "family": pl.String(), "batches": pl.Int64(), "absent_in": pl.Int64(), "reason": pl.String()}
)
_COUNTED = """
WITH families (name, pattern) AS (VALUES {families}),

named AS (
    SELECT m.run, m.split, m.step, coalesce(f.name, m.metric) AS name, CAST(NULL AS VARCHAR) AS reason
    FROM metrics AS m
    LEFT JOIN families AS f ON m.metric GLOB f.pattern
    WHERE m.scope = 'batch'

    UNION ALL

    SELECT run, split, step, metric, reason
    FROM absent_metrics
    WHERE scope = 'batch'
)

SELECT
    name,
    count(DISTINCT (run, split, step)) FILTER (WHERE reason IS NULL) AS batches,
    count(DISTINCT (run, split, step)) FILTER (WHERE reason IS NOT NULL) AS absent_in,
    any_value(reason) AS reason
FROM named
WHERE run = $run OR $run IS NULL
GROUP BY name
"""


def listed(patterns: Sequence[str] = ()) -> pl.DataFrame:
    """Return one row a metric of the catalogue.

    Args:
        patterns: names, families or patterns; without any all of them.

    Raises:
        UsageError: a pattern selects nothing.
    """
    rows = [_row(metric) for metric in selected(list(patterns) or None)]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _row(metric: Metric) -> tuple[object, ...]:
    return (
        metric.name,
        metric.family,
        metric.unit,
        ", ".join(metric.scopes),
        metric.count_of,
        metric.direction,
        metric.version,
        metric.tracker,
        metric.compare,
        metric.meaning,
        metric.source,
        metric.sql if metric.label is None else None,
    )


def coverage(ledger: Path, patterns: Sequence[str] = (), run: str | None = None) -> pl.DataFrame:
    """Return one row a metric: in how many batches of a ledger it is, in how many it is not, and why.

    Args:
        ledger: directory of the ledger.
        patterns: names, families or patterns; without any all of them.
        run: only this run.

    Raises:
        UsageError: a pattern selects nothing.
        NoInputError: there is no ledger.
    """
    families = ", ".join(f"({quoted(m.name)}, {quoted(m.pattern)})" for m in METRICS if m.label is not None)
    with connected(ledger, _COUNTED) as connection:
        counted = fetched(connection, _COUNTED.format(families=families), {"run": run})
    known = {row["name"]: row for row in counted.iter_rows(named=True)}
    rows = [_covered(metric, known.get(metric.name, {})) for metric in selected(list(patterns) or None)]
    return pl.DataFrame(rows, schema=_COVERAGE, orient="row")


def _covered(metric: Metric, row: Mapping[str, Any]) -> tuple[object, ...]:
    return (metric.name, metric.family, row.get("batches", 0), row.get("absent_in", 0), row.get("reason"))
