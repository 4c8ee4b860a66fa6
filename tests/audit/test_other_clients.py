"""The file that readers know, in an older DuckDB client: from elsewhere, without write permission, by another user."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.store import derived
from tests.accounting import TABLES
from tests.audit.ledgers import published
from tests.fixture_dumps import load_run

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ["1.2.2", "1.4.1"]
PACKAGES = ["pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--timeout", "20"]
NOBODY = 65534
READER = """
import json, os, sys
import duckdb

file, user = sys.argv[1], int(sys.argv[2])
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
connection = duckdb.connect(file, read_only=True)
# A bar on stdout, where the answer goes, for whatever takes longer than two seconds.
connection.execute("SET enable_progress_bar = false")

def ask(statement):
    return connection.execute(statement).fetchall()

names = [name for (name,) in ask("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1")]
rows = {}
for name in names:
    # Every column is computed, and none made a Python value: times of day need a further package there.
    ask(f"CREATE TEMP TABLE answer_{name} AS SELECT * FROM {name}")
    ((rows[name],),) = ask(f"SELECT count(*) FROM answer_{name}")
try:
    ask("CREATE TABLE ledger.t (a INTEGER)")
    writes = True
except duckdb.Error:
    writes = False
((uncommented,),) = ask(
    "SELECT count(*) FROM duckdb_columns() "
    "WHERE comment IS NULL "
    "AND (table_name = 'ledger_info' OR table_name IN (SELECT view_name FROM duckdb_views() WHERE NOT internal))"
)
((agreeing,),) = ask(
    "SELECT count(*) FROM metrics AS m INNER JOIN recomputed_metrics AS r "
    "ON m.run = r.run AND m.split = r.split AND m.step = r.step AND m.scope = r.scope AND m.metric = r.metric "
    "AND m.adapter_name IS NOT DISTINCT FROM r.adapter_name AND m.adapter_slot IS NOT DISTINCT FROM r.adapter_slot "
    "WHERE agrees(m.value, r.value, 1.0) OR (m.value IS NULL AND r.value IS NULL)"
)
weights = ask("SELECT round(weight_unscoped, 9) FROM adapter_weighting WHERE step = 0 ORDER BY 1")
answer = {
    "version": duckdb.__version__,
    "user": os.getuid(),
    "rows": rows,
    "uncommented": uncommented,
    "agreeing": agreeing,
    "weights": [weight for (weight,) in weights],
    "writes": writes,
}
print(json.dumps(answer))
"""
UNREACHABLE = ("Connection", "Temporary failure", "timed out", "Network")


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter of its own with an older DuckDB."""
    place = tmp_path_factory.mktemp("client")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True)
    executable = place / "bin" / "python"
    done = subprocess.run(
        [str(executable), "-m", *PACKAGES, f"duckdb=={request.param}"], capture_output=True, text=True, check=False
    )
    if done.returncode and any(
        word in done.stderr for word in ("Connection", "Temporary failure", "timed out", "Network")
    ):
        pytest.skip(f"pip reaches no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return executable


@pytest.fixture(scope="module")
def ledger() -> Iterator[Path]:
    """A ledger where every user may read and nobody may write. Directories of tests are closed to others."""
    place = Path(tempfile.mkdtemp(prefix="ledger-for-all-"))
    published(place / "ledger", load_run("miles_multilora_fanout_run").values())
    paths = [place, *place.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield place / "ledger"
    for path in paths:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    shutil.rmtree(place)


def read(python: Path, ledger: Path, elsewhere: Path, user: int) -> dict[str, Any]:
    command = [str(python), "-c", READER, str(ledger / "ledger.duckdb"), str(user)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_every_view_answers_in_an_older_client_by_a_user_who_may_not_write(
    python: Path, ledger: Path, tmp_path: Path
) -> None:
    user = NOBODY if os.getuid() == 0 else 0
    answer = read(python, ledger, tmp_path, user)

    assert answer["version"] in VERSIONS
    assert answer["user"] == (user or os.getuid())
    views = {table.relation for table in TABLES} | {view.name for view in derived.views()}
    assert set(answer["rows"]) == views
    assert {name: answer["rows"][name] for name in ("batches", "samples", "adapters", "adapter_weighting")} == {
        "batches": 3,
        "samples": 62,
        "adapters": 7,
        "adapter_weighting": 7,
    }
    assert answer["uncommented"] == 0
    assert answer["weights"] == [0.309090909, 0.690909091]
    assert answer["agreeing"] == answer["rows"]["metrics"] == answer["rows"]["recomputed_metrics"]
    assert answer["writes"] is False
