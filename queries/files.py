"""The SQL files as values: each a header that says what it answers, and one statement.

The header is the comment before the statement. Its first line is the question; then come `key: text` lines, of which
`parameters` and `columns` list one item a line, indented by four; longer texts go on at a deeper indentation:

    -- Who weighs how much?
    --
    -- grain: run, split, step
    -- read: how to read
    --     the answer
    -- parameters:
    --     limit BIGINT = 1000: rows at most
    -- columns:
    --     run: training run
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Kind = Literal["macros", "views", "metrics", "audits", "checks"]
ANSWERS: tuple[Kind, ...] = ("audits", "checks")
"""Kinds that are run with parameters, and say how serious a row is."""
SEVERITIES = ("info", "warning", "error")
TYPES = ("BIGINT", "DOUBLE", "VARCHAR")

_KEY = re.compile(r"(\w+):(?: (.*))?")
_PARAMETER = re.compile(r"(?P<name>\w+) (?P<type>\w+)(?: = (?P<default>\S+))?")
_ITEM_INDENT, _TEXT_INDENT = 5, 9


class HeaderError(ValueError):
    """A file's header is not complete."""


@dataclass(frozen=True)
class Parameter:
    """A named parameter; null means no restriction."""

    name: str
    type: str
    text: str
    default: int | float | str | None = None

    def value(self, text: str) -> int | float | str:
        """Return a value of the parameter's type.

        Raises:
            ValueError: the text is none.
        """
        if self.type == "VARCHAR":
            return text
        return int(text) if self.type == "BIGINT" else float(text)


@dataclass(frozen=True)
class Column:
    """A column of the answer."""

    name: str
    text: str


@dataclass(frozen=True)
class Query:
    """One SQL file.

    `question` is its first line, `grain` the columns that identify a row of the answer, `read` how to read it, `order`
    what comes first. `severity` says what a row means: `info` (a figure), `warning` (look at it), `error` (wrong).
    """

    kind: Kind
    name: str
    question: str
    grain: tuple[str, ...]
    read: str
    statement: str
    columns: tuple[Column, ...] = ()
    severity: str = ""
    order: str = ""
    parameters: tuple[Parameter, ...] = ()


@cache
def queries(kind: Kind) -> tuple[Query, ...]:
    """Return every file of a kind, by name.

    Raises:
        HeaderError: a header is not complete.
    """
    folder = files("queries") / kind
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")}
    return tuple(parse(kind, name.removesuffix(".sql"), texts[name]) for name in sorted(texts))


def parse(kind: Kind, name: str, text: str) -> Query:
    """Return a file's header and statement.

    Raises:
        HeaderError: something is missing in the header.
    """
    lines = text.splitlines()
    length = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    question, *rest = lines[:length] or [""]
    scalars, items = _sections(rest, f"{kind}/{name}.sql")
    query = Query(
        kind=kind,
        name=name,
        question=question.removeprefix("--").strip(),
        grain=tuple(part.strip() for part in scalars.get("grain", "").split(",") if part.strip()),
        read=scalars.get("read", ""),
        statement="\n".join(lines[length:]).strip().removesuffix(";"),
        columns=tuple(Column(key, value) for key, value in items.get("columns", {}).items()),
        severity=scalars.get("severity", ""),
        order=scalars.get("order", ""),
        parameters=tuple(_parameter(key, value) for key, value in items.get("parameters", {}).items()),
    )
    if missing := list(_missing(query)):
        message = f"{kind}/{name}.sql: the header lacks {', '.join(missing)}"
        raise HeaderError(message)
    return query


def _sections(lines: Iterable[str], where: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return (text by key, items by section) of the header's lines after the question."""
    scalars: dict[str, str] = {}
    items: dict[str, dict[str, str]] = {}
    section = item = ""
    for line in lines:
        comment = line.removeprefix("--")
        text = comment.strip()
        indent = len(comment) - len(comment.lstrip())
        if not text:
            continue
        if indent < _ITEM_INDENT:
            section, first = _key(text, where)
            scalars[section] = first
        elif scalars[section]:
            scalars[section] += f" {text}"
        elif indent < _TEXT_INDENT:
            item, _, first = text.partition(": ")
            items.setdefault(section, {})[item] = first
        else:
            items[section][item] += f" {text}"
    return scalars, items


def _key(text: str, where: str) -> tuple[str, str]:
    match = _KEY.fullmatch(text)
    if match is None:
        message = f"{where}: not a line of a header: {text}"
        raise HeaderError(message)
    return match[1], match[2] or ""


def _parameter(declared: str, text: str) -> Parameter:
    match = _PARAMETER.fullmatch(declared)
    if match is None or match["type"] not in TYPES:
        message = f"not a parameter: {declared}; expected `name {'|'.join(TYPES)}`, ` = default` if there is one"
        raise HeaderError(message)
    parameter = Parameter(match["name"], match["type"], text)
    if match["default"] is None:
        return parameter
    return Parameter(match["name"], match["type"], text, parameter.value(match["default"]))


def _missing(query: Query) -> Iterator[str]:
    needed: Mapping[str, object] = {"question": query.question.endswith("?"), "grain": query.grain, "read": query.read}
    if query.kind != "macros":
        needed = {**needed, "columns": query.columns, "grain among the columns": _has_grain(query)}
    if query.kind in ANSWERS:
        severity = query.severity in SEVERITIES
        needed = {**needed, "severity": severity, "order": query.order, "parameters": query.parameters}
    yield from (name for name, given in needed.items() if not given)
    described = {column.name: column.text for column in query.columns}
    described |= {parameter.name: parameter.text for parameter in query.parameters}
    yield from (f"a description of {name}" for name, text in described.items() if not text)
    if not query.statement:
        yield "the statement"


def _has_grain(query: Query) -> bool:
    return set(query.grain) <= {column.name for column in query.columns}
