"""Dagster: a ledger recomputed every five minutes, each exit code as what it means to a scheduler."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from dagster import Definitions, Failure, OpExecutionContext, RetryRequested, ScheduleDefinition, job, op

COMMAND = ["rollout-ledger", "recompute", "--config", "/etc/rollout-ledger/ledger.toml", "--log-format", "json"]


@op
def recompute(context: OpExecutionContext) -> None:
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        code = subprocess.run([*COMMAND, "--summary", str(summary)], check=False).returncode
        told: dict[str, Any] = json.loads(summary.read_text()) if summary.exists() else {}
    if code == 5:
        context.log.info("somebody else is writing: %s", told.get("error"))
    elif code in (2, 3):
        raise Failure(f"exit {code}: {told.get('error')}", allow_retries=False)
    elif code not in (0, 6):
        raise RetryRequested(max_retries=2, seconds_to_wait=60)
    else:
        context.add_output_metadata({name: value for name, value in told.items() if isinstance(value, (int, float))})
    if code == 6:
        # The other batches are published; the run is marked, not tried again.
        raise Failure(f"{told['refused']} batches are refused; see the findings", allow_retries=False)


@job
def rollout_ledger() -> None:
    recompute()


definitions = Definitions(
    jobs=[rollout_ledger], schedules=[ScheduleDefinition(job=rollout_ledger, cron_schedule="*/5 * * * *")]
)
