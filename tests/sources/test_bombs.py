"""A directory of dumps made to harm ends in findings: nothing runs, memory and time stay within bounds."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pipeline
from pipeline.sources.writers import write_torch_dump

ROOT = Path(__file__).parents[2]
MIB = 2**20

# Recomputes as the command does, in a process of its own, and tells its exit code and the most memory it had (of its
# own: the figure of getrusage would count what the test itself had when it started the process).
MEASURE = """
import json, sys
from pathlib import Path
from pipeline.cli.app import run
code = run(["recompute", "--still", "0", sys.argv[1], "--ledger", sys.argv[2], "--run", "bombs"])
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps([code, int(peak.split()[1]) // 1024]))
"""


class Runs:
    """Calls os.system when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def archived(path: Path, stream: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(f"{path.stem}/data.pkl", stream)


def test_bombs_end_in_findings_and_the_good_dump_is_published(tmp_path: Path) -> None:
    place = tmp_path / "dumps"
    place.mkdir()
    marker = tmp_path / "marker"
    good = {"reward": 1.0, "response_length": 1}
    write_torch_dump(place / "0.pt", {"rollout_id": 0, "samples": [good]})
    harmful = {"rollout_id": 1, "samples": [good | {"metadata": {"x": Runs(marker)}}]}
    archived(place / "1.pt", pickle.dumps(harmful, protocol=2))
    archived(place / "2.pt", b"\x80\x02" + b"]" * (64 * MIB) + b".")
    archived(place / "3.pt", b"\x80\x02" + b"(" * (8 * MIB) + b"l" * (8 * MIB) + b".")
    archived(place / "4.pt", b"\x80\x04\x8d" + (10 * 2**30).to_bytes(8, "little") + b"text")
    archived(place / "5.pt", b"\x80\x02]q\x00h\x00a.")
    archived(place / "6.pt", b"\x80\x02Nr\xff\xff\xff\xff.")
    archived(place / "7.pt", b"\x80\x02" + b"\x00" * (512 * MIB), zipfile.ZIP_DEFLATED)

    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(place), str(tmp_path / "ledger")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    code, mebibytes = json.loads(done.stdout)
    assert code == 6
    assert mebibytes < 1024
    assert not marker.exists()
    published = pipeline.sql("SELECT step FROM batches ORDER BY step", tmp_path / "ledger")["step"].to_list()
    assert published == [0, 1]
    findings = pipeline.sql("SELECT source, code, value FROM findings", tmp_path / "ledger").rows()
    assert {Path(source).name: found for source, found, _ in findings} == {
        "1.pt": "unknown_class",
        "2.pt": "unreadable_file",
        "3.pt": "unreadable_file",
        "4.pt": "unreadable_file",
        "5.pt": "payload_shape",
        "6.pt": "payload_shape",
        "7.pt": "unreadable_file",
    }
