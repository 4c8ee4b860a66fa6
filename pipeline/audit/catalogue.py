"""The audits and checks that there are, as values read from the SQL files, and their catalogue as a page."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import UsageError
from pipeline.store import derived
from queries.files import ANSWERS, Kind, Query, queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_INTRODUCTION = """\
# Queries

One SQL file a view, audit, check or metric. The comment at the top of each says what it answers, what a row is, how to
read it, its parameters and its columns. This page is made from those comments.

Run one: `rollout-ledger audit NAME --ledger DIR`; see its SQL with the parameters filled in, for any DuckDB client: add
`--show`. The parameters of all audits and checks are `run`, `split`, `from_step`, `to_step`, `adapter` (a name, in
whatever slot) and `limit`; null means no restriction. Further ones, and defaults, are in the file.
"""
_AUDITS = "`info` is a figure, `warning` is worth a look, `error` means that something is wrong."
_CHECKS = (
    "Audits that must return no row: `rollout-ledger audit --check --ledger DIR` exits with 4 and the offending rows."
)
_VIEWS = "In `ledger.duckdb`, for any DuckDB client, with a comment on every column."
_METRICS = (
    f"Every published metric a second time, from `samples`: the views `{derived.PREFIX}NAME`, and all of them in "
    f"`{derived.RECOMPUTED}`. The check `published_metrics` compares."
)
_MACROS = "Functions that audits and checks share, in `ledger.duckdb` as well."


def find(name: str, kinds: Sequence[Kind] = ANSWERS) -> Query:
    """Return an audit or a check.

    Raises:
        UsageError: there is none of that name.
    """
    known = {query.name: query for kind in kinds for query in queries(kind)}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    message = f"no {' or '.join(kind.removesuffix('s') for kind in kinds)} {name}; {hint}"
    raise UsageError(message)


def listed() -> pl.DataFrame:
    """Return one row an audit and check: what it is, its question, its grain, and how serious a row is."""
    rows = [
        (query.kind.removesuffix("s"), query.name, query.question, ", ".join(query.grain), query.severity)
        for kind in ANSWERS
        for query in queries(kind)
    ]
    return pl.DataFrame(rows, schema=["kind", "name", "question", "grain", "severity"], orient="row")


def page() -> str:
    """Return the catalogue as Markdown."""
    views = [view for view in derived.views() if not view.name.startswith(derived.PREFIX)]
    parts = [
        _INTRODUCTION,
        _section("Audits", _AUDITS, "audits", queries("audits"), severity=True),
        _section("Checks", _CHECKS, "checks", queries("checks")),
        _section("Views", _VIEWS, "views", sorted(views, key=lambda view: view.name)),
        _section("Metrics", _METRICS, "metrics", queries("metrics")),
        _section("Macros", _MACROS, "macros", queries("macros")),
    ]
    return "\n".join(parts)


def _section(title: str, text: str, folder: str, listed: Sequence[Query], *, severity: bool = False) -> str:
    header = ["name", "question", "one row per", *(["severity"] if severity else [])]
    lines = [_line(header), _line(["---"] * len(header))]
    for query in listed:
        cells = [f"[{query.name}]({folder}/{query.name}.sql)", query.question, ", ".join(query.grain)]
        lines.append(_line([*cells, *([query.severity] if severity else [])]))
    return "\n".join([f"## {title}", "", text, "", *lines, ""])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
