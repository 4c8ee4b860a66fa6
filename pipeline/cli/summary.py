"""What a recompute says at its end: counts, findings, and the reward of the last step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pipeline.audit.query import sql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

    from pipeline.recomputing.job import Outcome
    from schemas.findings import Finding

_SHOWN = 10


def lines(outcome: Outcome, ledger: Path) -> Iterator[str]:
    """Yield the lines of the summary."""
    yield from (f"error: {failure}" for failure in outcome.failed_runs)
    errors = [finding for finding in outcome.findings if finding.severity == "error"]
    warnings = [finding for finding in outcome.findings if finding.severity == "warning"]
    yield from _findings(errors, "error")
    yield from _findings(warnings, "warning")
    accepted = outcome.accepted
    yield (
        f"{accepted.height:,} batches, {accepted['samples'].sum():,} samples, {accepted['rollouts'].sum():,} rollouts; "
        f"{outcome.refused:,} refused, {len(errors):,} errors, {len(warnings):,} warnings -> {ledger / 'ledger.duckdb'}"
    )
    for (run,), batches in accepted.sort("run", "step").group_by("run", maintain_order=True):
        yield from _last_step(str(run), batches, ledger)


def _findings(findings: list[Finding], severity: str) -> Iterator[str]:
    for finding in findings[:_SHOWN]:
        place = finding.source or finding.run or ""
        row = f", row {finding.row}" if finding.row is not None else ""
        value = f" (found {finding.value})" if finding.value is not None else ""
        yield f"{severity}: {place}{row}: {finding.message}{value} [{finding.code}]"
    if len(findings) > _SHOWN:
        counts = ", ".join(f"{count} {code}" for code, count in Counter(f.code for f in findings).most_common())
        yield f"{severity}: {len(findings) - _SHOWN} more; all: {counts}; see the relation `findings`"


def _last_step(run: str, batches: pl.DataFrame, ledger: Path) -> Iterator[str]:
    train = batches.filter(split="train")
    if train.is_empty():
        return
    step = int(train["step"].sort()[-1])
    rows = sql(_LAST_STEP.format(run=run.replace("'", "''"), step=step), ledger)
    pooled = rows.filter(scope="batch")
    yield f"{run}, step {step}: episode reward {_number(pooled['value'])} over {pooled['count'].sum():,} rollouts"
    for name, slot, value, count in (
        rows.filter(scope="adapter").select("adapter_name", "adapter_slot", "value", "count").iter_rows()
    ):
        if name is not None or slot is not None:
            yield f"  {name} (slot {slot}): {_number([value])} over {count:,}"


_LAST_STEP = """
SELECT scope, adapter_name, adapter_slot, value, count FROM metrics
WHERE run = '{run}' AND split = 'train' AND step = {step} AND metric = 'episode_raw_reward'
ORDER BY scope DESC, adapter_name, adapter_slot
"""


def _number(values: pl.Series | list[float | None]) -> str:
    value = values[0] if len(values) else None
    return "not scored" if value is None else f"{value:.6g}"
