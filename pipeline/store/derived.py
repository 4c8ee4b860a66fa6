"""What is derived from the published relations by SQL alone: the macros, views and recomputed metrics of `queries`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from queries.files import Column, Query, queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

PREFIX = "recomputed_"
"""Of the view of one metric that SQL computes a second time."""
RECOMPUTED = f"{PREFIX}metrics"
"""The view of all metrics that SQL computes a second time."""


def create(connection: duckdb.DuckDBPyConnection, *, portable: bool = True) -> None:
    """Create the macros, and the views with their comments, in the connection's current database.

    Args:
        connection: to a database that has the published relations.
        portable: whether other clients will read the views; see `views`.
    """
    for macro in queries("macros"):
        connection.execute(macro.statement)
    for view in views(portable=portable):
        connection.execute(f"CREATE VIEW {view.name} AS {view.statement}")
        connection.execute(f"COMMENT ON VIEW {view.name} IS {quoted(view.question)}")
        for column in view.columns:
            connection.execute(f'COMMENT ON COLUMN {view.name}."{column.name}" IS {quoted(column.text)}')


def views(*, portable: bool = True) -> list[Query]:
    """Return every derived view after those that it reads.

    Args:
        portable: without it, the recomputed metrics are subqueries of one statement, and what several of them read is
            computed once. DuckDB 1.4.1 finds no subqueries in subqueries of a view, and 1.2 and later have to read it.
    """
    twins = _in_order([_as_view(twin) for twin in queries("metrics")])
    return [*_in_order(queries("views")), *twins, _all_recomputed(twins, portable=portable)]


def quoted(text: str) -> str:
    """Return a text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _as_view(twin: Query) -> Query:
    return Query("views", f"{PREFIX}{twin.name}", twin.question, twin.grain, twin.read, twin.statement, twin.columns)


def _all_recomputed(twins: Sequence[Query], *, portable: bool) -> Query:
    """Return the union of all recomputed metrics, so that a new file is a new metric and nothing else has to know."""
    names = ", ".join(column.name for column in twins[0].columns)
    metrics = {twin.name: quoted(twin.name.removeprefix(PREFIX)) for twin in twins}
    selects = [f"SELECT {names}, {metric} AS metric FROM {name}" for name, metric in metrics.items()]  # noqa: S608
    union = "\nUNION ALL\n".join(selects)
    if not portable:
        shared = ",\n".join(f"{twin.name} AS (\n{twin.statement}\n)" for twin in twins)
        union = f"WITH {shared}\n{union}"
    columns = (*twins[0].columns, Column("metric", "name of the metric"))
    question = "What is every metric if it is computed a second time, in SQL, from the samples?"
    return Query("views", RECOMPUTED, question, (*twins[0].grain, "metric"), twins[0].read, union, columns)


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
