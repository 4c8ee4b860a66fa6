"""`rollout-ledger audit`: named questions to a ledger, and checks that must find nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pipeline.cli import console
from pipeline.cli.output import Format
from pipeline.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from queries.files import Query

_FLAG = Parameter(negative=())


def audit(
    names: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    /,
    *,
    ledger: Path | None = None,
    run: str | None = None,
    split: str | None = None,
    from_step: Annotated[int | None, Parameter(name="--from")] = None,
    to_step: Annotated[int | None, Parameter(name="--to")] = None,
    adapter: str | None = None,
    param: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    limit: int | None = None,
    check: Annotated[bool, _FLAG] = False,
    show: Annotated[bool, _FLAG] = False,
    format: Format | None = None,
    output: Path | None = None,
    timeout: float = 60.0,
) -> int:
    """Ask a ledger a named question, or check it. Without a name: list the audits and checks with their questions.

    Args:
        names: the audit; with --check any number of checks, and all of them if none is named.
        ledger: directory of the ledger.
        run: only this run.
        split: only train, or only eval.
        from_step: no earlier step.
        to_step: no later step.
        adapter: only this adapter, by name.
        param: another parameter of the audit, NAME=VALUE.
        limit: rows at most, those that matter most; 0 for all. Default: the audit's own.
        check: run checks: exit 4 with the offending rows, 0 where there is none.
        show: print the SQL with its parameters filled in instead of running it.
        format: table, json, csv or markdown; by default what the output's name ends with, else table.
        output: file to write the answer to instead of stdout.
        timeout: seconds after which an audit is stopped.
    """
    from pipeline.audit.catalogue import find, listed
    from pipeline.cli.output import deliver

    given = _given(run, split, from_step, to_step, adapter) | dict(map(_pair, param))
    if limit is not None:
        given["limit"] = limit or None
    if check:
        return _check(names, _needed(ledger), given, timeout=timeout, format=format, output=output)
    if not names:
        deliver(listed(), format, output)
        return Exit.DONE
    if len(names) > 1:
        message = f"one audit at a time; {' '.join(names)} are {len(names)}. Several checks: --check"
        raise UsageError(message)
    query = find(names[0])
    if show:
        console.answer(_shown(query, given))
        return Exit.DONE
    deliver(_answered(query, _needed(ledger), given, timeout), format, output)
    return Exit.DONE


def _given(
    run: str | None, split: str | None, from_step: int | None, to_step: int | None, adapter: str | None
) -> dict[str, Any]:
    values = {"run": run, "split": split, "from_step": from_step, "to_step": to_step, "adapter": adapter}
    return {name: value for name, value in values.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        message = f"--param {text}: expected NAME=VALUE"
        raise UsageError(message)
    return name, value


def _needed(ledger: Path | None) -> Path:
    if ledger is None:
        message = "no ledger: give --ledger DIR"
        raise UsageError(message)
    return ledger


def _shown(query: Query, given: Mapping[str, Any]) -> str:
    from pipeline.audit.audits import bound, shown

    return f"-- {query.question}\n{shown(query, bound(query, given))};"


def _answered(query: Query, ledger: Path, given: Mapping[str, Any], timeout: float) -> pl.DataFrame:
    """Return the answer; where it is cut off, say so."""
    from pipeline.audit.audits import audit as ask
    from pipeline.audit.audits import bound
    from pipeline.cli.watchdog import ending_after

    most = bound(query, given)["limit"]
    with ending_after(timeout):
        if most is None:
            return ask(query.name, ledger, timeout=timeout, **given)
        rows = ask(query.name, ledger, timeout=timeout, **{**given, "limit": int(most) + 1})
    if rows.height > most:
        console.say(f"the first {most:,} rows, those that matter most; --limit 0 for all")
    return rows.head(int(most))


def _check(
    names: tuple[str, ...],
    ledger: Path,
    given: Mapping[str, Any],
    *,
    timeout: float,
    format: Format | None,
    output: Path | None,
) -> int:
    from pipeline.audit.audits import check as run_checks
    from pipeline.cli.output import chosen, deliver
    from pipeline.cli.watchdog import ending_after
    from queries.files import queries

    count = len(names) or len(queries("checks"))
    with ending_after(timeout * count):
        offending = run_checks(names, ledger, timeout=timeout, **given)
    if offending.height or output is not None or chosen(format, output) in ("json", "csv"):
        deliver(offending, format, output)
    failed = f"{offending.height:,} offending rows" if offending.height else "no offending row"
    console.say(f"{count} check{'s' if count > 1 else ''}: {failed}")
    return Exit.DIFFERENCE if offending.height else Exit.DONE
