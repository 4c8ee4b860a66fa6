"""What is derived from the published relations by SQL alone: the macros, views and recomputed metrics of `queries`."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import TYPE_CHECKING

from pipeline.expressions.catalogue import METRICS, SCOPES, UNITS, accounting
from queries.files import Column, Query, queries

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import duckdb

    from pipeline.expressions.catalogue.record import Metric, Scope, Unit

PREFIX = "recomputed_"
"""Of the view of one metric that SQL computes a second time."""
RECOMPUTED = f"{PREFIX}metrics"
"""The view of all metrics that SQL computes a second time."""


def create(
    connection: duckdb.DuckDBPyConnection, *, portable: bool = True, wanted: Collection[str] | None = None
) -> None:
    """Create the macros, and the views with their comments, in the connection's current database.

    Args:
        connection: to a database that has the published relations.
        portable: whether other clients will read the views; see `views`.
        wanted: words of the statements that will be run: only the views that they name, and what those read, are made,
            and without comments. Null for all of them.
    """
    for macro in queries("macros"):
        connection.execute(macro.statement)
    made = views(portable=portable)
    for view in made if wanted is None else _named(made, wanted):
        connection.execute(f"CREATE VIEW {view.name} AS {view.statement}")
        if wanted is None:
            _comment(connection, view)


def _comment(connection: duckdb.DuckDBPyConnection, view: Query) -> None:
    connection.execute(f"COMMENT ON VIEW {view.name} IS {quoted(view.question)}")
    for column in view.columns:
        connection.execute(f'COMMENT ON COLUMN {view.name}."{column.name}" IS {quoted(column.text)}')


def _named(made: Sequence[Query], words: Collection[str]) -> list[Query]:
    """Return the views that words name, and those that these read, in their order."""
    needed = set(words)
    for view in reversed(made):
        if view.name in needed:
            needed |= _words(view.statement)
    return [view for view in made if view.name in needed]


@cache
def fingerprint() -> str:
    """Return what tells these views from those of another version: a digest of all that is created."""
    texts = [macro.statement for macro in queries("macros")]
    texts += [f"{view.name} {view.statement} {view.question} {view.columns}" for view in views()]
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=8).hexdigest()


def views(*, portable: bool = True) -> list[Query]:
    """Return every derived view after those that it reads.

    Args:
        portable: without it, the recomputed metrics are subqueries of one statement, and what several of them read is
            computed once. DuckDB 1.4.1 finds no subqueries in subqueries of a view, and 1.2 and later have to read it.
    """
    twins = [*_in_order([_as_view(twin) for twin in queries("metrics")]), *(_of_unit(unit) for unit in UNITS)]
    return [*_in_order(queries("views")), *twins, _all_recomputed(twins, portable=portable)]


def quoted(text: str) -> str:
    """Return a text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _as_view(twin: Query) -> Query:
    return Query("views", f"{PREFIX}{twin.name}", twin.question, twin.grain, twin.read, twin.statement, twin.columns)


def _of_unit(unit: Unit) -> Query:
    """Return the view that makes every metric of a unit a second time, from the SQL of the metrics' records."""
    metrics = [m for m in METRICS if m.unit == unit and m.label is None and m.family != accounting.FAMILY]
    columns = (*_KEY, Column("metric", "name of the metric"), *_FIGURES)
    union = "\nUNION ALL\n".join(
        _of_scope(unit, scope, [metric for metric in metrics if scope in metric.scopes]) for scope in SCOPES
    )
    question = f"What are the metrics of every {unit.replace('_', ' ')} if they are computed a second time, in SQL?"
    read = f"Made from the SQL of each metric's record, over measures_of_{unit}."
    grain = tuple(column.name for column in columns[:-2])
    return Query("views", f"{PREFIX}of_{unit}", question, grain, read, union, columns)


def _of_scope(unit: Unit, scope: Scope, metrics: Sequence[Metric]) -> str:
    adapter = "adapter_name, adapter_slot" if scope == "adapter" else ""
    key = f"run, split, step{', ' + adapter if adapter else ''}"
    names = adapter or "CAST(NULL AS VARCHAR) AS adapter_name, CAST(NULL AS BIGINT) AS adapter_slot"
    entries = ",\n".join(_entry(metric) for metric in metrics)
    # One pass over the measures for all metrics, whose figures are then laid out one below the other.
    return (
        f"SELECT run, split, step, '{scope}' AS scope, adapter_name, adapter_slot,\n"
        "entry.metric AS metric, entry.value AS value, entry.count AS count\n"
        f"FROM (SELECT run, split, step, {names},\nunnest([\n{entries}\n]) AS entry\n"
        f"FROM measures_of_{unit} GROUP BY {key}) WHERE entry.has"
    )


def _entry(metric: Metric) -> str:
    has = "true" if metric.support is None else metric.support.sql
    value = f"CAST({metric.sql} AS DOUBLE)"
    return f"{{'metric': {quoted(metric.name)}, 'has': {has}, 'value': {value}, 'count': {metric.sql_count}}}"


_KEY = (
    Column("run", "training run"),
    Column("split", "train or eval"),
    Column("step", "the batch's number"),
    Column("scope", "batch or adapter"),
    Column("adapter_name", "LoRA adapter's name; null for no adapter"),
    Column("adapter_slot", "LoRA adapter's slot; null for no adapter"),
)
_FIGURES = (Column("value", "the value recomputed"), Column("count", "what it is made of"))


def _all_recomputed(twins: Sequence[Query], *, portable: bool) -> Query:
    """Return the union of all recomputed metrics, so that a new file is a new metric and nothing else has to know."""
    figures = (*_KEY, *_FIGURES)
    names = ", ".join(column.name for column in figures)
    selects = [f"SELECT {names}, {_metric(twin)} AS metric FROM {twin.name}" for twin in twins]  # noqa: S608
    union = "\nUNION ALL\n".join(selects)
    if not portable:
        shared = ",\n".join(f"{twin.name} AS (\n{twin.statement}\n)" for twin in twins)
        union = f"WITH {shared}\n{union}"
    columns = (*figures, Column("metric", "name of the metric"))
    question = "What is every metric if it is computed a second time, in SQL, from the samples?"
    read = "All of recomputed_NAME, one below the other."
    return Query("views", RECOMPUTED, question, (*(column.name for column in _KEY), "metric"), read, union, columns)


def _metric(twin: Query) -> str:
    """Return what names the metric: a column of the file, or the file's own name."""
    has_names = any(column.name == "metric" for column in twin.columns)
    return "metric" if has_names else quoted(twin.name.removeprefix(PREFIX))


def _in_order(left: Sequence[Query]) -> list[Query]:
    ordered: list[Query] = []
    while left:
        names = {query.name for query in left}
        ready = [query for query in left if not _words(query.statement) & (names - {query.name})]
        if not ready:
            message = f"views that read one another: {', '.join(sorted(names))}"
            raise ValueError(message)
        ordered += ready
        left = [query for query in left if query not in ready]
    return ordered


def _words(statement: str) -> set[str]:
    return set(re.findall(r"\w+", statement))
