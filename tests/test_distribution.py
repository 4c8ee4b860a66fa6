"""A wheel, built and installed in an empty environment, works without the repository."""

from __future__ import annotations

import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the programs of an environment that holds the wheel and what it needs, and nothing else."""
    place = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(place), str(ROOT)], check=True)
    (wheel,) = place.glob("rollout_ledger-*.whl")
    venv.create(place / "env", with_pip=False)
    python = place / "env" / "bin" / "python"
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "--python", str(python), "install", "--constraint", constraints, str(wheel)], check=True)
    return python.parent


def test_help_comes_at_once(installed: Path, tmp_path: Path) -> None:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        done = subprocess.run(
            [installed / "rollout-ledger", "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        seconds.append(time.perf_counter() - start)

    assert "recompute" in done.stdout
    assert min(seconds) < 1


def test_the_example_is_recomputed(installed: Path, tmp_path: Path) -> None:
    source = ROOT / "examples" / "three-adapters"
    command = [
        str(installed / "rollout-ledger"),
        "recompute",
        "--still",
        "0",
        str(source),
        "--ledger",
        str(tmp_path / "ledger"),
    ]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == ""
    assert "41 batches" in done.stderr
    status = [str(installed / "python"), "-m", "pipeline", "status", "--ledger", str(tmp_path / "ledger")]
    told = subprocess.run([*status, "--format", "csv"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[1].startswith("three-adapters,40,1,")


def test_the_queries_ship_with_it(installed: Path, tmp_path: Path) -> None:
    program = "from importlib.resources import files; print(len([f for f in files('queries').iterdir()]))"

    done = subprocess.run(
        [installed / "python", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert int(done.stdout) > 1
