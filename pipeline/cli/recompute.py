"""`rollout-ledger recompute`: dumps in, a ledger out."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pipeline.cli import configuration, console
from pipeline.cli.configuration import Configuration
from pipeline.cli.options import SettingOptions
from pipeline.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.recomputing.job import Outcome
    from pipeline.recomputing.plan import RunPlan


def recompute(
    sources: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    /,
    *,
    ledger: Path | None = None,
    run: str | None = None,
    config: Path | None = None,
    format: str | None = None,
    settings: Annotated[SettingOptions | None, Parameter(name="*")] = None,
) -> int:
    """Recompute the reward accounting of dumps and publish it in a ledger.

    Args:
        sources: dump directories, dump files or globs. Without any: the runs of the configuration file.
        ledger: directory of the ledger; made if need be. Default: the configuration file's.
        run: the run's name; by default that of the dump directory. With a configuration file alone: only this run.
        config: a ledger.toml; options and environment count over it.
        format: format of all sources: pt, jsonl, parquet or ipc; by default found by content.
        settings: how rewards become advantages.
    """
    from pipeline.recomputing.job import recompute as job

    loaded = configuration.load(config) if config is not None else None
    given = {} if settings is None else settings.model_dump()
    plans = (
        _given_plans(sources, run, format, loaded, given) if sources else _configured_plans(run, format, loaded, given)
    )
    target = _ledger(ledger, loaded)
    with console.progress("reading dumps") as bar:
        outcome = job(plans, target, progress=bar)
    _summarise(outcome, target)
    return _exit(outcome)


def _ledger(ledger: Path | None, loaded: Configuration | None) -> Path:
    if ledger is None and loaded is not None and loaded.content.ledger is not None:
        ledger = loaded.path.parent / loaded.content.ledger
    if ledger is None:
        message = 'no ledger: give --ledger DIR, or `ledger = "DIR"` in the configuration file'
        raise UsageError(message)
    if set(str(ledger.resolve())) & set("*?["):
        message = f"--ledger {ledger}: a path with *, ? or [ cannot hold a ledger, as SQL reads it as a pattern"
        raise UsageError(message)
    return ledger


def _given_plans(
    sources: Sequence[str],
    run: str | None,
    format: str | None,
    loaded: Configuration | None,
    given: dict[str, Any],
) -> list[RunPlan]:
    """Return the one plan of the sources on the command line; the file's settings for a run of that name count."""
    from pipeline.recomputing.plan import RunPlan

    entries = loaded.content.runs if loaded is not None else []
    own = next((entry.own_settings for entry in entries if entry.name == run), {})
    return [RunPlan(tuple(sources), configuration.settings(loaded, own, given), run, format)]


def _configured_plans(
    run: str | None, format: str | None, loaded: Configuration | None, given: dict[str, Any]
) -> list[RunPlan]:
    """Return a plan for every run of the configuration file, or for the one named."""
    from pipeline.recomputing.plan import RunPlan

    entries = [entry for entry in loaded.content.runs if run in (None, entry.name)] if loaded is not None else []
    if not entries or loaded is None:
        message = "no source: give a dump directory, a dump file or a glob, or --config with [[runs]]"
        raise UsageError(message)
    return [
        RunPlan(
            sources=tuple(_beside(loaded.path, source) for source in entry.sources),
            settings=configuration.settings(loaded, entry.own_settings, given),
            name=entry.name,
            format=format or entry.format,
        )
        for entry in entries
    ]


def _beside(path: Path, source: str) -> str:
    """Return a source of a configuration file: relative ones are relative to the file."""
    if Path(source).is_absolute():
        return source
    parent = str(path.parent)
    return str(Path(glob.escape(parent) if set(source) & set("*?[") else parent) / source)


def _exit(outcome: Outcome) -> int:
    if outcome.accepted.height == 0:
        return Exit.NO_INPUT
    return Exit.REFUSED if outcome.refused or outcome.failed_runs else Exit.DONE


def _summarise(outcome: Outcome, ledger: Path) -> None:
    from pipeline.cli import summary

    for line in summary.lines(outcome, ledger):
        console.say(line)
