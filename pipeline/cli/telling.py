"""What a recompute tells: lines for people, events for machines, a summary file, and metrics for Prometheus."""

from __future__ import annotations

import json
import os
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipeline.cli import console
from pipeline.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from pipeline.recomputing.outcome import Outcome
    from schemas.findings import Finding

LogFormat = Literal["text", "json"]
_SHOWN = 10


def facts(
    outcome: Outcome, ledger: Path, seconds: float, code: int, error: BaseException | None = None
) -> dict[str, Any]:
    """Return what a recompute has done, as one flat JSON object; `error` is what ended it, null where nothing did."""
    severities = Counter(finding.severity for finding in outcome.findings)
    return {
        "ledger": str(ledger),
        "exit_code": int(code),
        "error": None if error is None else str(error) or type(error).__name__,
        "generation": outcome.generation,
        "published": outcome.published,
        "batches": outcome.accepted.height,
        "samples": int(outcome.accepted["samples"].sum()),
        "rollouts": int(outcome.accepted["rollouts"].sum()),
        "refused": outcome.refused,
        "pending": len(outcome.pending),
        "unchanged": outcome.unchanged,
        "vanished": outcome.vanished,
        "errors": severities["error"],
        "warnings": severities["warning"],
        "failed_runs": outcome.failed_runs,
        "reasons": outcome.reasons,
        "stopped": outcome.stopped,
        "seconds": round(seconds, 3),
    }


def tell(outcome: Outcome, told: dict[str, Any], ledger: Path, log_format: LogFormat) -> None:
    """Write findings and the summary to stderr."""
    if log_format == "json":
        for failure in outcome.failed_runs:
            event("run_failed", level="error", message=failure)
        for finding in outcome.findings:
            event("finding", level=finding.severity, **finding.model_dump(exclude_none=True))
        event("recomputed", **told)
        return
    for failure in outcome.failed_runs:
        console.say(f"error: {failure}")
    for severity in ("error", "warning"):
        _tell_findings([finding for finding in outcome.findings if finding.severity == severity], severity)
    console.say(one_line(told, ledger))
    if not outcome.accepted.is_empty():
        for line in _last_steps(outcome, ledger):
            console.say(line)


def tell_failure(told: dict[str, Any], *, is_bug: bool) -> None:
    """Write what ended a recompute to stderr, as an event."""
    trace = {"traceback": traceback.format_exc()} if is_bug else {}
    event("failed", level="error", **told, **trace)


def event(name: str, *, level: str = "info", **fields: Any) -> None:
    """Write one event to stderr, a line of JSON."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    console.say(json.dumps({"timestamp": now, "level": level, "event": name, **fields}))


def one_line(told: dict[str, Any], ledger: Path) -> str:
    """Return what was done in one line."""
    done = f"{told['batches']:,} batches, {told['samples']:,} samples, {told['rollouts']:,} rollouts"
    if not told["published"]:
        done = "nothing to do"
    others = ", ".join(
        f"{told[name]:,} {name}"
        for name in ("refused", "pending", "unchanged", "vanished", "errors", "warnings")
        if told[name] or name == "refused"
    )
    return f"{done}; {others}; {told['seconds']:.1f} s -> {ledger / 'ledger.duckdb'}"


def _tell_findings(findings: list[Finding], severity: str) -> None:
    for finding in findings[:_SHOWN]:
        place = finding.source or finding.run or ""
        row = f", row {finding.row}" if finding.row is not None else ""
        value = f" (found {finding.value})" if finding.value is not None else ""
        console.say(f"{severity}: {place}{row}: {finding.message}{value} [{finding.code}]")
    if len(findings) > _SHOWN:
        counts = ", ".join(f"{count} {code}" for code, count in Counter(f.code for f in findings).most_common())
        console.say(f"{severity}: {len(findings) - _SHOWN} more; all: {counts}; see the relation `findings`")


_LAST_STEP = """
SELECT scope, adapter_name, adapter_slot, value, count FROM metrics
WHERE run = ? AND split = 'train' AND step = ? AND metric = 'episode_raw_reward'
ORDER BY scope DESC, adapter_name, adapter_slot
"""


def _last_steps(outcome: Outcome, ledger: Path) -> list[str]:
    """Return, for every run, the pooled and the adapters' episode reward of the last train step computed."""
    last = outcome.accepted.filter(split="train").sort("run", "step").unique("run", keep="last", maintain_order=True)
    # The file that was just published: making its views once more would take longer than all the rest of a tick.
    from pipeline.store.layout import Layout
    from pipeline.store.publication import opened

    with opened(Layout(ledger)) as connection:
        steps = last.select("run", "step").iter_rows()
        rows = [(run, step, connection.execute(_LAST_STEP, [run, step]).fetchall()) for run, step in steps]
    return [line for run, step, found in rows for line in _last_step(run, step, found)]


def _last_step(run: str, step: int, rows: Sequence[tuple[Any, ...]]) -> Iterator[str]:
    for scope, name, slot, value, count in rows:
        if scope == "batch":
            yield f"{run}, step {step}: episode reward {_number(value)} over {count:,} rollouts"
        elif name is not None:
            yield f"  {name} (slot {slot}): {_number(value)} over {count:,}"


def _number(value: float | None) -> str:
    return "not scored" if value is None else f"{value:.6g}"


def write_summary(path: Path, told: dict[str, Any]) -> None:
    """Write what was done as a JSON file, whole or not at all."""
    _write(path, json.dumps(told, indent=1, sort_keys=True) + "\n")


def write_textfile(path: Path, told: dict[str, Any], runs: pl.DataFrame | None) -> None:
    """Write metrics for the Prometheus node exporter's textfile collector, whole or not at all.

    Args:
        path: a file that ends in .prom, in the collector's directory. When a recompute last ended well is taken from
            it where this one has not: an alert on its age must not lose it.
        told: what was done.
        runs: the ledger's status, one row a run; null where there is no ledger.
    """
    gauges = {
        "last_run_timestamp_seconds": ("when the last recompute ended", time.time()),
        "last_run_exit_code": ("exit code of the last recompute", told["exit_code"]),
        "last_run_duration_seconds": ("how long it took", told["seconds"]),
        "last_run_batches": ("batches computed by it", told["batches"]),
        "last_run_samples": ("samples computed by it", told["samples"]),
        "last_run_refused": ("batches refused by it", told["refused"]),
        "last_run_pending": ("files that were still being written", told["pending"]),
        "generation": ("number of the newest publication", told["generation"]),
    }
    succeeded = time.time() if told["exit_code"] in _WELL else _last_success(path)
    if succeeded is not None:
        gauges["last_success_timestamp_seconds"] = ("when a recompute last ended with 0 or 6", succeeded)
    lines = [line for name, (text, value) in gauges.items() for line in _gauge(name, text, {"": value})]
    rows = [] if runs is None else runs.to_dicts()
    for column, (name, text) in _OF_RUNS.items():
        values = {f'{{run="{_escaped(row["run"])}"}}': row[column] for row in rows}
        lines += _gauge(name, text, {label: value for label, value in values.items() if value is not None})
    _write(path, "\n".join(lines) + "\n")


_WELL = (Exit.DONE, Exit.REFUSED)
_OF_RUNS = {
    "last_step": ("last_step", "last published train step"),
    "pending": ("pending", "files that wait to be complete: the lag in steps"),
    "refused": ("refused", "batches that are refused as their dumps are now"),
    "stale": ("stale", "published batches whose newer dump is refused"),
    "vanished": ("vanished", "files that are gone and whose batches are kept"),
    "replaced": ("replaced", "published batches that were dumped again with other samples"),
}
"""Columns of the status, and the metrics that they become."""


def _last_success(path: Path) -> float | None:
    """Return when a recompute last ended well, as the file itself says."""
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "rollout_ledger_last_success_timestamp_seconds":
                return float(value)
    return None


def _gauge(name: str, text: str, values: dict[str, float]) -> list[str]:
    full = f"rollout_ledger_{name}"
    return [
        f"# HELP {full} {text}",
        f"# TYPE {full} gauge",
        *(f"{full}{label} {value}" for label, value in values.items()),
    ]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        staged = Path(file.name)
        try:
            file.write(text)
            file.flush()
            staged.chmod(0o666 & ~_umask())
            staged.replace(path)
        except OSError:
            staged.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
