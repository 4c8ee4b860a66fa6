"""Directories that a trainer is writing into: what is taken, what waits, what is a finding, what is left alone."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from pathlib import Path

import pytest

from pipeline import RunPlan, Settings, recompute
from pipeline.errors import NoInputError
from pipeline.recomputing import Options, taking
from pipeline.recomputing.decisions import is_still
from pipeline.sources.batch import SourceFile
from pipeline.sources.stamps import Stamp
from tests.fixture_dumps import FIXTURES
from tests.unattended.ledgers import aged, ask, codes, files, rewards, tick, write, write_steps

DUMP = FIXTURES / "miles" / "single_run" / "rollout_data" / "0.pt"
SECOND = 10**9


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "run" / "rollout_data").mkdir(parents=True)
    return tmp_path / "run"


@pytest.mark.parametrize(("age", "state"), [(0.0, "pending"), (8.0, "pending"), (11.0, "taken"), (90.0, "taken")])
def test_a_file_is_taken_when_it_has_been_still_for_ten_seconds(age: float, state: str, tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    write(tmp_path / "dumps" / "1.jsonl", [1, 1], age=age)

    outcome = tick(tmp_path / "dumps", tmp_path / "l")

    assert files(tmp_path / "l")["1.jsonl"][0] == state
    assert len(outcome.pending) == (state == "pending")
    assert codes(tmp_path / "l") == []


def test_a_young_dump_is_taken_when_its_train_dump_exists(dumps: Path, tmp_path: Path) -> None:
    for name in ("0.pt", "eval_0.pt"):
        aged(Path(shutil.copy(DUMP, dumps / "rollout_data" / name)), 1)
    (dumps / "train_data").mkdir()
    (dumps / "train_data" / "0_0.pt").touch()

    tick(dumps, tmp_path / "l")

    # The train dump is that of the training step: it says nothing of the evaluation.
    assert {name: state for name, (state, _) in files(tmp_path / "l").items()} == {
        "0.pt": "taken",
        "eval_0.pt": "pending",
    }


@pytest.mark.parametrize("companion", [False, True])
@pytest.mark.parametrize(("age", "state"), [(15.0, "pending"), (3_600.0, "refused")])
def test_unreadable_and_young_is_pending_and_older_is_a_finding(
    age: float, state: str, companion: bool, dumps: Path, tmp_path: Path
) -> None:
    torn = dumps / "rollout_data" / "1.pt"
    torn.write_bytes(DUMP.read_bytes()[: DUMP.stat().st_size // 2])
    aged(torn, age)
    aged(Path(shutil.copy(DUMP, dumps / "rollout_data" / "0.pt")), 3_600)
    if companion:
        # A resumed run comes by again: the train dump beside its half-written file is that of the step's earlier life.
        (dumps / "train_data").mkdir()
        aged(Path(shutil.copy(DUMP, dumps / "train_data" / "1_0.pt")), 7_200)

    outcome = tick(dumps, tmp_path / "l")

    assert files(tmp_path / "l")["1.pt"][0] == state
    assert codes(tmp_path / "l") == ([] if state == "pending" else ["unreadable_file"])
    assert outcome.refused == (state == "refused")
    assert list(rewards(tmp_path / "l")) == [0]


def test_a_pending_file_is_taken_once_it_is_complete(tmp_path: Path) -> None:
    path = write(tmp_path / "dumps" / "0.jsonl", [1, 0], age=20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    aged(path, 20)
    assert len(tick(path.parent, tmp_path / "l").pending) == 1

    path.write_bytes(whole)
    aged(path, 12)
    outcome = tick(path.parent, tmp_path / "l")

    assert outcome.pending == []
    assert outcome.reasons == {"new": 1}
    assert rewards(tmp_path / "l") == {0: ("ok", 0.5)}


def test_a_published_step_stays_as_it_is_while_its_dump_is_written_again(tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    tick(tmp_path / "dumps", tmp_path / "l")

    write(tmp_path / "dumps" / "0.jsonl", [0, 0], age=1)
    tick(tmp_path / "dumps", tmp_path / "l")

    assert rewards(tmp_path / "l") == {0: ("ok", 0.5)}
    assert files(tmp_path / "l")["0.jsonl"] == ("pending", "changed, changed less than 10 s ago")


def test_a_file_that_changes_while_it_is_read_is_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    from pipeline.sources.reading import read

    def reading(file: SourceFile) -> object:
        batches = list(read(file))
        path.write_bytes(path.read_bytes() + b"\n")
        return iter(batches)

    monkeypatch.setattr(taking, "read", reading)
    tick(path.parent, tmp_path / "l")

    assert files(tmp_path / "l")["0.jsonl"] == ("pending", "changed while it was read")


def test_a_first_call_by_hand_waits_until_the_files_are_still(tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0], age=0)

    start = time.monotonic()
    outcome = recompute(
        [RunPlan((str(tmp_path / "dumps"),), Settings(), "a")], tmp_path / "l", Options(still_seconds=1)
    )

    assert time.monotonic() - start > 0.5
    assert outcome.accepted.height == 1


# --- clocks ---


def test_a_file_servers_clock_that_is_ahead_holds_nothing_up(tmp_path: Path) -> None:
    path = write(tmp_path / "dumps" / "0.jsonl", [1, 0], age=-7_200)
    file = SourceFile(path, "a", "train", 0, stamp=Stamp.of(path))
    now = time.time_ns()
    tick(path.parent, tmp_path / "l")
    assert files(tmp_path / "l")["0.jsonl"][0] == "pending"
    ((size, changed, seen),) = ask(tmp_path / "l", "SELECT size, modified_ns, seen_at FROM sources")
    row = {"size": size, "modified_ns": changed, "seen_at": seen}

    assert not is_still(file, row, 10, now + 5 * SECOND)
    assert is_still(file, row, 10, now + 11 * SECOND)
    assert not is_still(file, {**row, "modified_ns": changed - 1}, 10, now + 11 * SECOND)
    assert is_still(file, None, 0, now)


def test_a_clock_that_is_a_little_ahead_only_makes_a_file_a_little_younger(tmp_path: Path) -> None:
    path = write(tmp_path / "0.jsonl", [1], age=-2)
    file = SourceFile(path, "a", "train", 0, stamp=Stamp.of(path))

    assert not is_still(file, None, 10, time.time_ns() + 9 * SECOND)
    assert is_still(file, None, 10, time.time_ns() + 13 * SECOND)


def test_a_broken_file_from_the_future_is_a_finding_once_it_has_been_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    path.write_bytes(path.read_bytes()[:-9])
    aged(path, -7_200)
    tick(path.parent, tmp_path / "l")
    assert files(tmp_path / "l")["0.jsonl"][0] == "pending"

    later = time.time_ns() + 11 * SECOND
    monkeypatch.setattr(time, "time_ns", lambda: later)
    tick(path.parent, tmp_path / "l")

    assert codes(tmp_path / "l") == ["torn_line"]


# --- what else lies there ---


def test_temporary_files_and_other_folders_are_left_alone(dumps: Path, tmp_path: Path) -> None:
    aged(Path(shutil.copy(DUMP, dumps / "rollout_data" / "0.pt")), 60)
    others = (
        "rollout_data/1.pt.tmp",
        "rollout_data/.2.pt.swp",
        "rollout_data/rollout_1.tmp",
        "rollout_data/notes.txt",
        "policy_loss_debug/rank_0_call_1.pt",
        "train_data/7_0.pt",
        "dashboard_columns/rollout_0.parquet",
        "trajectory/0.jsonl",
        "events/a.jsonl",
    )
    for name in others:
        path = dumps / name
        path.parent.mkdir(exist_ok=True)
        aged(Path(shutil.copy(DUMP, path)), 60)

    tick(dumps, tmp_path / "l")

    assert set(files(tmp_path / "l")) == {"0.pt"}
    assert codes(tmp_path / "l") == []


def test_a_foreign_name_is_told_once_and_forgotten_with_its_file(dumps: Path, tmp_path: Path) -> None:
    aged(Path(shutil.copy(DUMP, dumps / "rollout_data" / "0.pt")), 60)
    foreign = Path(shutil.copy(DUMP, dumps / "rollout_data" / "eval_x.pt"))

    assert [finding.code for finding in tick(dumps, tmp_path / "l").findings] == ["foreign_name"]
    again = tick(dumps, tmp_path / "l")
    assert (again.findings, again.published) == ([], False)
    assert codes(tmp_path / "l") == ["foreign_name"]

    foreign.unlink()
    tick(dumps, tmp_path / "l")
    assert codes(tmp_path / "l") == []


def test_the_partial_fixture(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "miles" / "partial", tmp_path / "partial")
    for path in (tmp_path / "partial" / "rollout_data").iterdir():
        aged(path, 3_600)

    tick(tmp_path / "partial", tmp_path / "l")

    states = {name: state for name, (state, _) in files(tmp_path / "l").items()}
    assert "eval_x.pt" not in states
    assert states["0.pt"] == "taken"
    assert set(states.values()) == {"taken", "refused"}
    assert "foreign_name" in codes(tmp_path / "l")


# --- file systems ---


def test_sources_behind_links_in_directories_that_are_read_only(tmp_path: Path) -> None:
    real = tmp_path / "volume" / "real"
    write(real / "0.jsonl", [1, 0])
    write(tmp_path / "elsewhere" / "1.jsonl", [1, 1])
    (real / "1.jsonl").symlink_to(tmp_path / "elsewhere" / "1.jsonl")
    (real / "2.jsonl").symlink_to(tmp_path / "nowhere.jsonl")
    (real / "3.jsonl").symlink_to(real / "3.jsonl")
    (tmp_path / "mount").symlink_to(real)
    before = sorted((path, path.lstat().st_mtime_ns) for path in (tmp_path / "volume").rglob("*"))
    for path in (real / "0.jsonl", real):
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))

    outcome = tick(tmp_path / "mount", tmp_path / "l")

    real.chmod(0o755)
    assert rewards(tmp_path / "l") == {0: ("ok", 0.5), 1: ("ok", 1.0)}
    assert outcome.refused == 0
    assert sorted((path, path.lstat().st_mtime_ns) for path in (tmp_path / "volume").rglob("*")) == before
    assert ask(tmp_path / "l", "SELECT DISTINCT source FROM batches WHERE step = 1") == [
        (str(tmp_path / "mount" / "1.jsonl"),)
    ]


def test_a_link_that_is_pointed_to_another_file_is_a_change(tmp_path: Path) -> None:
    for name, values in (("old", [1, 0]), ("new", [1, 1, 1])):
        write(tmp_path / name / "0.jsonl", values)
    (tmp_path / "dumps").mkdir()
    link = tmp_path / "dumps" / "0.jsonl"
    link.symlink_to(tmp_path / "old" / "0.jsonl")
    tick(tmp_path / "dumps", tmp_path / "l")

    link.unlink()
    link.symlink_to(tmp_path / "new" / "0.jsonl")
    outcome = tick(tmp_path / "dumps", tmp_path / "l")

    assert outcome.reasons == {"changed": 1}
    assert rewards(tmp_path / "l") == {0: ("ok", 1.0)}


def test_a_ledger_on_another_file_system_than_its_sources(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dumps = tmp_path_factory.mktemp("elsewhere")
    if dumps.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system to write to")
    write(dumps / "0.jsonl", [1, 0])

    for _ in range(2):
        tick(dumps, tmp_path / "l")

    assert rewards(tmp_path / "l") == {0: ("ok", 0.5)}


@pytest.mark.parametrize(
    ("error", "state"),
    [(errno.ENOENT, "pending"), (errno.ESTALE, "pending"), (errno.EMFILE, "pending"), (errno.EIO, "refused")],
)
def test_an_error_of_the_file_system_is_passing_or_a_finding_that_is_tried_again(
    error: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])

    def fail(_: Path) -> str:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(Stamp, "of", fail)
        for _ in range(2):
            tick(tmp_path / "dumps", tmp_path / "l")
        assert files(tmp_path / "l")["0.jsonl"][0] == state
        assert not tick(tmp_path / "dumps", tmp_path / "l").published

    tick(tmp_path / "dumps", tmp_path / "l")

    assert rewards(tmp_path / "l") == {0: ("ok", 0.5)}
    assert codes(tmp_path / "l") == []


def test_a_directory_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    tick(tmp_path / "dumps", tmp_path / "l")

    listed = os.scandir

    def fail(path: Path) -> object:
        if path == tmp_path / "dumps":
            raise PermissionError(errno.EACCES, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(NoInputError, match="cannot be listed"):
        tick(tmp_path / "dumps", tmp_path / "l")


def test_an_emptied_directory_marks_its_files_and_keeps_their_batches(tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    write_steps(tmp_path / "dumps" / "many.jsonl", {1: [1], 2: [0]})
    tick(tmp_path / "dumps", tmp_path / "l")
    for path in list((tmp_path / "dumps").iterdir()):
        path.unlink()

    outcome = tick(tmp_path / "dumps", tmp_path / "l")

    assert outcome.used_nothing
    assert "2 were there before" in outcome.failed_runs[0]
    assert {state for state, _ in files(tmp_path / "l").values()} == {"vanished"}
    assert list(rewards(tmp_path / "l")) == [0, 1, 2]
    assert not tick(tmp_path / "dumps", tmp_path / "l").published
