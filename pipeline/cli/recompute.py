"""`rollout-ledger recompute`: dumps in, a ledger out."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pipeline.cli import configuration, console
from pipeline.cli.options import SettingOptions
from pipeline.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.recomputing.job import Outcome
    from pipeline.recomputing.plan import RunPlan
    from schemas.settings import LedgerConfig


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
    given = _given(settings)
    plans = _plans(sources, run, format, given, loaded, config)
    target = _ledger(ledger, loaded, config)
    with console.progress("reading dumps") as bar:
        outcome = job(plans, target, progress=bar)
    _summarise(outcome, target)
    return _exit(outcome)


def _given(settings: SettingOptions | None) -> dict[str, Any]:
    return {} if settings is None else settings.model_dump()


def _ledger(ledger: Path | None, config: LedgerConfig | None, path: Path | None) -> Path:
    if ledger is None and config is not None and path is not None and config.ledger is not None:
        ledger = path.parent / config.ledger
    if ledger is None:
        message = 'no ledger: give --ledger DIR, or `ledger = "DIR"` in the configuration file'
        raise UsageError(message)
    if set(str(ledger.resolve())) & set("*?["):
        message = f"--ledger {ledger}: a path with *, ? or [ cannot hold a ledger, as SQL reads it as a pattern"
        raise UsageError(message)
    return ledger


def _plans(
    sources: Sequence[str],
    run: str | None,
    format: str | None,
    given: dict[str, Any],
    config: LedgerConfig | None,
    path: Path | None,
) -> list[RunPlan]:
    from pipeline.recomputing.plan import RunPlan

    if sources:
        own = next((entry.own_settings for entry in config.runs if entry.name == run), {}) if config else {}
        return [RunPlan(tuple(sources), configuration.settings(config, own, given), run, format)]
    entries = [entry for entry in config.runs if run in (None, entry.name)] if config else []
    if not entries or path is None:
        message = "no source: give a dump directory, a dump file or a glob, or --config with [[runs]]"
        raise UsageError(message)
    return [
        RunPlan(
            sources=tuple(_beside(path, source) for source in entry.sources),
            settings=configuration.settings(config, entry.own_settings, given),
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
