"""Named audits, and checks: audits that must return no row."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.audit.catalogue import find
from pipeline.audit.query import DEFAULT_TIMEOUT, connected, fetched
from pipeline.errors import UsageError
from pipeline.store.derived import quoted
from queries.files import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import duckdb

    from queries.files import Query

_PARAMETER = re.compile(r"\$(\w+)")


def audit(name: str, ledger: str | Path, *, timeout: float = DEFAULT_TIMEOUT, **parameters: Any) -> pl.DataFrame:
    """Return the answer of a named audit, or the offending rows of a check.

    Args:
        name: the audit, as `queries/audits/NAME.sql`, or a check.
        ledger: directory of the ledger.
        timeout: seconds after which the audit is given up.
        parameters: `run`, `split`, `from_step`, `to_step`, `adapter`, `limit`, and what else the audit has. Null means
            no restriction; what is not given has the audit's default.

    Raises:
        UsageError: there is no such audit or parameter, or it took too long.
        NoInputError: there is no ledger.
    """
    query = find(name)
    values = bound(query, parameters)
    with connected(ledger, query.statement) as connection:
        return asked(connection, query, values, timeout=timeout)


def check(
    names: Iterable[str], ledger: str | Path, *, timeout: float = DEFAULT_TIMEOUT, **parameters: Any
) -> pl.DataFrame:
    """Return the offending rows of some checks, the check's name first; no row where nothing is wrong.

    Args:
        names: checks, as `queries/checks/NAME.sql`; all of them where none is given.
        ledger: directory of the ledger.
        timeout: seconds after which a check is given up.
        parameters: as those of `audit`.

    Raises:
        UsageError: there is no such check or parameter, or one took too long.
        NoInputError: there is no ledger.
    """
    chosen = [find(name, ("checks",)) for name in names] or list(queries("checks"))
    values = [bound(query, parameters) for query in chosen]
    with connected(ledger, *(query.statement for query in chosen)) as connection:
        frames = [
            asked(connection, query, given, timeout=timeout).select(pl.lit(query.name).alias("check"), pl.all())
            for query, given in zip(chosen, values, strict=True)
        ]
    offending = [frame for frame in frames if frame.height]
    return pl.concat(offending, how="diagonal_relaxed") if offending else frames[0].clear()


def asked(
    connection: duckdb.DuckDBPyConnection,
    query: Query,
    values: Mapping[str, Any],
    *,
    timeout: float = DEFAULT_TIMEOUT,
) -> pl.DataFrame:
    """Return the answer of an audit or check from a connection that has the ledger's relations.

    Args:
        connection: made by `pipeline.audit.query.connected`.
        query: the audit or check.
        values: a value for each of its parameters, as `bound` gives them.
        timeout: seconds after which it is given up.

    Raises:
        UsageError: it took too long.
    """
    # DuckDB takes no value that the statement does not name.
    used = {name: values[name] for name in sorted(set(_PARAMETER.findall(query.statement)))}
    return fetched(connection, query.statement, used, timeout=timeout)


def bound(query: Query, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every parameter of a query: what is given, else its default.

    Raises:
        UsageError: it has no such parameter, or a value is of another type.
    """
    known = {parameter.name: parameter for parameter in query.parameters}
    if unknown := [name for name in given if name not in known]:
        message = f"{query.name} has no parameter {unknown[0]}; there are {', '.join(known)}"
        raise UsageError(message)
    values = {name: parameter.default for name, parameter in known.items()} | dict(given)
    for name, value in values.items():
        if isinstance(value, str) and known[name].type != "VARCHAR":
            try:
                values[name] = known[name].value(value)
            except ValueError as error:
                message = f"{query.name}: {name} = {value!r}: expected {known[name].type}"
                raise UsageError(message) from error
    return values


def shown(query: Query, values: Mapping[str, Any]) -> str:
    """Return the statement with its parameters filled in, to run and to change in any DuckDB client."""

    def literal(match: re.Match[str]) -> str:
        value = values[match[1]]
        typed = next(parameter.type for parameter in query.parameters if parameter.name == match[1])
        return f"CAST({quoted(value) if isinstance(value, str) else 'NULL' if value is None else value} AS {typed})"

    return _PARAMETER.sub(literal, query.statement)
