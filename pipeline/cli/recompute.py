"""`rollout-ledger recompute`: dumps in, a ledger out."""

from __future__ import annotations

import glob
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from pipeline.cli import configuration, console, signals, telling
from pipeline.cli.configuration import Configuration
from pipeline.cli.options import SettingOptions
from pipeline.cli.telling import LogFormat
from pipeline.errors import Exit, LedgerError, StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from pipeline.recomputing.options import Options
    from pipeline.recomputing.outcome import Outcome
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
    first: Annotated[int | None, Parameter(name="--from")] = None,
    last: Annotated[int | None, Parameter(name="--to")] = None,
    since: str | None = None,
    split: Literal["train", "eval"] | None = None,
    force: Annotated[bool, Parameter(negative=())] = False,
    verify: Annotated[bool, Parameter(negative=())] = False,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    jobs: int = 0,
    still: float = 10.0,
    keep: int = 3,
    keep_for: float = 3600.0,
    summary: Path | None = None,
    metrics_textfile: Path | None = None,
    log_format: LogFormat = "text",
) -> int:
    """Recompute the reward accounting of dumps and publish it in a ledger; only what is new is done.

    Args:
        sources: dump directories, dump files or globs. Without any: the runs of the configuration file.
        ledger: directory of the ledger; made if need be. Default: the configuration file's.
        run: the run's name; by default that of the dump directory. With a configuration file alone: only this run.
        config: a ledger.toml; options and environment count over it.
        format: format of all sources: pt, jsonl, parquet or ipc; by default found by content.
        settings: how rewards become advantages.
        first: first step to look at.
        last: last step to look at.
        since: only files changed since: a time such as 2026-08-21T12:00, or an age such as 90m, 12h, 7d.
        split: only train or only evaluation batches.
        force: read everything again that is selected.
        verify: compare the content of files that look unchanged, by digest.
        dry_run: print what would be done and why, and do nothing.
        jobs: processes that read and account side by side, where there is enough to do; 0 for one a core.
        still: seconds that a file must not have changed to be taken; 0 for directories that nobody writes into.
        keep: older publications whose files are kept, the newest included.
        keep_for: seconds that a publication is kept after it was replaced.
        summary: file to write what was done to, as JSON.
        metrics_textfile: file to write metrics to, for Prometheus' textfile collector.
        log_format: text for people, json for machines: one event a line, on stderr.
    """
    from pipeline.recomputing.options import Options, Selection, cores
    from pipeline.store.publication import Retention

    loaded = configuration.load(config) if config is not None else None
    given = {} if settings is None else settings.model_dump()
    plans = (
        _given_plans(sources, run, format, loaded, given) if sources else _configured_plans(run, format, loaded, given)
    )
    if still < 0 or keep < 1 or keep_for < 0 or jobs < 0:
        message = "--still, --keep-for and --jobs should be 0 or more, --keep 1 or more"
        raise UsageError(message)
    target = _ledger(ledger, loaded)
    options = Options(
        selection=Selection(first, last, split, since_ns(since, time.time_ns()) if since is not None else None),
        force=force,
        verify=verify,
        still_seconds=still,
        retention=Retention(keep, keep_for),
        jobs=jobs or cores(),
    )
    if dry_run:
        return _preview(plans, target, options)
    return _work(plans, target, options, Told(log_format, summary, metrics_textfile))


def _preview(plans: list[RunPlan], ledger: Path, options: Options) -> int:
    from pipeline.cli.output import render
    from pipeline.recomputing.preview import preview

    console.answer(render(preview(plans, ledger, options), "table"))
    return Exit.DONE


@dataclass(frozen=True)
class Told:
    """Where to tell what was done, beside stderr."""

    log_format: LogFormat
    summary: Path | None
    textfile: Path | None

    def check(self) -> None:
        """Look whether the files can be written, before hours of work rather than after.

        Raises:
            UsageError: a file's directory is not there.
        """
        for option, path in (("--summary", self.summary), ("--metrics-textfile", self.textfile)):
            if path is not None and not path.parent.is_dir():
                raise UsageError(f"{option} {path}: no such directory; make {path.parent}")


def _work(plans: list[RunPlan], ledger: Path, options: Options, told: Told) -> int:
    from pipeline.recomputing.job import recompute as job

    told.check()
    start = time.perf_counter()
    try:
        with signals.orderly() as stop, console.progress("reading dumps") as bar:
            outcome = job(plans, ledger, replace(options, stop=stop.requested, progress=bar))
    except (Exception, signals.Ended) as error:  # noqa: BLE001 -- whatever it was, it is told
        return _tell_failure(error, ledger, time.perf_counter() - start, told)
    code = _exit(outcome) if stop.code is None else stop.code
    done = telling.facts(outcome, ledger, time.perf_counter() - start, code)
    telling.tell(outcome, done, ledger, told.log_format)
    _write_files(done, ledger, told)
    return code


def _tell_failure(error: Exception | signals.Ended, ledger: Path, seconds: float, told: Told) -> int:
    """Write what ended a recompute wherever it is to be told; as text the command itself tells it."""
    from pipeline.recomputing.outcome import Outcome

    code = error.code if isinstance(error, signals.Ended) else getattr(error, "exit", Exit.BUG)
    done = telling.facts(Outcome(), ledger, seconds, code, error)
    with suppress(StorageError):
        _write_files(done, ledger, told)
    if told.log_format == "text":
        raise error
    telling.tell_failure(done, is_bug=not isinstance(error, (LedgerError, signals.Ended)))
    return int(code)


def _write_files(done: dict[str, Any], ledger: Path, told: Told) -> None:
    try:
        if told.summary is not None:
            telling.write_summary(told.summary, done)
        if told.textfile is not None:
            telling.write_textfile(told.textfile, done, _status(ledger))
    except OSError as error:
        message = (
            f"{error.filename or told.summary}: cannot be written ({error.strerror}); the ledger is as it should be"
        )
        raise StorageError(message) from error


def _status(ledger: Path) -> pl.DataFrame | None:
    from pipeline.audit.status import status

    try:
        return status(ledger)
    except LedgerError:
        return None


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
    if outcome.used_nothing:
        return Exit.NO_INPUT
    return Exit.REFUSED if outcome.refused or outcome.failed_runs else Exit.DONE


_AGES = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def since_ns(text: str, now_ns: int) -> int:
    """Return a time in nanoseconds since 1970 from a time or an age.

    Raises:
        UsageError: it is neither.
    """
    try:
        if text[-1:] in _AGES and text[:-1].isdecimal():
            return now_ns - int(text[:-1]) * _AGES[text[-1]] * 10**9
        return int(datetime.fromisoformat(text).timestamp() * 10**9)
    except (ValueError, OverflowError) as error:
        message = f"--since {text}: expected a time such as 2026-08-21T12:00, or an age such as 90m, 12h, 7d"
        raise UsageError(message) from error
