"""What a user's statement may do: read the ledger's relations, and nothing else.

The connection is locked as well (`pipeline.audit.query`), but its lock has to let views read the ledger's own files.
So the statement itself is looked at, as DuckDB parses it: every table in it must be a relation of the ledger or of the
statement, and every table function one that makes rows of its arguments. What is not known is not allowed.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import duckdb

from pipeline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_READING = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_EXPLAIN = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?\s+", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[\w ]+")
_TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
    | {"duckdb_columns", "duckdb_tables", "duckdb_views"}
)
"""Table functions that read nothing but their arguments or the catalog."""
_CATALOG_TABLES = frozenset({"duckdb_columns", "duckdb_tables", "duckdb_views"})
_SHOWN = frozenset({"", '"tables"', "__show_tables_expanded"})
"""What SHOW and DESCRIBE may show beside a relation or a query."""


def checked(connection: duckdb.DuckDBPyConnection, statement: str) -> str:
    """Return a statement that is one SELECT (or EXPLAIN of one) over the relations of the connection, without its end.

    Raises:
        UsageError: it is something else, or reads something else.
    """
    kind = _only_statement(connection, statement)
    if kind not in _READING:
        message = "one SELECT statement is expected; a ledger is read-only"
        raise UsageError(message)
    if kind == duckdb.StatementType.EXPLAIN:
        explained = _EXPLAIN.sub("", statement, count=1)
        if explained == statement or _only_statement(connection, explained) != duckdb.StatementType.SELECT:
            message = "EXPLAIN is expected with one SELECT statement, and without options"
            raise UsageError(message)
        _check_tables(_parsed(connection, explained), _relations(connection))
    else:
        _check_tables(_parsed(connection, statement), _relations(connection))
    return _without_end(statement)


def _only_statement(connection: duckdb.DuckDBPyConnection, statement: str) -> duckdb.StatementType | None:
    try:
        statements = connection.extract_statements(statement)
    except duckdb.Error as error:
        raise UsageError(str(error)) from error
    return statements[0].type if len(statements) == 1 else None


def _without_end(statement: str) -> str:
    """Return a statement without the semicolons and remarks after it, so that it can stand in another one."""
    text = statement.encode()
    for offset, kind in reversed(duckdb.tokenize(statement)):
        if kind != duckdb.token_type.comment and text[offset : offset + 1] != b";":
            break
        text = text[:offset]
    return text.decode()


def _parsed(connection: duckdb.DuckDBPyConnection, statement: str) -> Any:
    row = connection.execute("SELECT json_serialize_sql(?)", [statement]).fetchone()
    tree = json.loads(row[0]) if row else {"error": True}
    if tree["error"]:
        message = f"the statement cannot be checked ({tree.get('error_message', 'not parsed')}); write it as a SELECT"
        raise UsageError(message)
    return tree


def _relations(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    rows = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    return frozenset(name for (name,) in rows)


def _check_tables(tree: Any, relations: frozenset[str]) -> None:
    nodes = list(_nodes(tree))
    own = {entry["key"].lower() for node in nodes for entry in node.get("cte_map", {}).get("map", [])}
    known = relations | {name for name in own if _PLAIN_NAME.fullmatch(name)}
    for node in nodes:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            _check_table(node, known)
        elif kind == "TABLE_FUNCTION":
            _check_function(node["function"])
        elif kind == "SHOW_REF" and node["table_name"].lower() not in _SHOWN | known:
            _refuse(node["table_name"], known)


def _check_table(node: dict[str, Any], known: frozenset[str]) -> None:
    catalog, schema, name = (node[part].lower() for part in ("catalog_name", "schema_name", "table_name"))
    if schema == "information_schema" and catalog == "":
        return
    if (schema, catalog) not in {("", ""), ("main", ""), ("main", "memory")} or name not in known | _CATALOG_TABLES:
        _refuse(node["table_name"], known)


def _check_function(function: dict[str, Any]) -> None:
    name = str(function["function_name"])
    if name.lower() not in _TABLE_FUNCTIONS or function["schema"] or function["catalog"]:
        message = f"the table function {name} is not allowed; a statement reads the relations of the ledger only"
        raise UsageError(message)


def _refuse(name: str, known: frozenset[str]) -> None:
    message = f"there is no relation {name}; there are {', '.join(sorted(known))}"
    raise UsageError(message)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a parsed statement, also of a very deep one."""
    left = [tree]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
