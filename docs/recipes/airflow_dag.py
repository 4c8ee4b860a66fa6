"""Airflow (2.4 or later, 3): a ledger recomputed every five minutes, each exit code as what it means to a scheduler."""

from __future__ import annotations

import json
import subprocess
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException

try:
    from airflow.sdk import dag, task
except ImportError:
    from airflow.decorators import dag, task

COMMAND = ["rollout-ledger", "recompute", "--config", "/etc/rollout-ledger/ledger.toml", "--log-format", "json"]


@dag(
    dag_id="rollout_ledger",
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1), "execution_timeout": timedelta(hours=6)},
)
def rollout_ledger() -> None:
    @task
    def recompute() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            summary = Path(folder) / "summary.json"
            code = subprocess.run([*COMMAND, "--summary", str(summary)], check=False).returncode
            told: dict[str, Any] = json.loads(summary.read_text()) if summary.exists() else {}
        if code == 0:
            return told
        if code == 5:
            raise AirflowSkipException(f"somebody else is writing: {told.get('error')}")
        if code in (2, 3, 6):
            # Trying again changes nothing; after 6 the other batches are published all the same.
            raise AirflowFailException(f"exit {code}: {told.get('error') or told}")
        raise AirflowException(f"exit {code}: {told.get('error')}")

    recompute()


rollout_ledger()
