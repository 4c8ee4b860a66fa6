"""What is done with every file, and why: new, changed, renamed, vanished, back again, settings, versions, parts."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline import RunPlan, Settings, recompute
from pipeline.errors import NoInputError
from pipeline.expressions import versions
from pipeline.recomputing import Options, Selection, taking
from pipeline.recomputing.preview import preview
from pipeline.sources.record_writers import write_json_lines
from tests.fixture_dumps import FIXTURES
from tests.unattended.ledgers import (
    aged,
    ask,
    assert_same_figures,
    codes,
    files,
    rewards,
    sample,
    tick,
    write,
    write_steps,
)

SHARED = Settings(sibling_rewards="shared")
PLAIN = Settings(rewards_normalization=False)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Two steps, published."""
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    write(tmp_path / "dumps" / "1.jsonl", [1, 1])
    tick(tmp_path / "dumps", tmp_path / "l")
    return tmp_path / "dumps"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "l"


def reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a dump was opened")

    monkeypatch.setattr(taking, "read", fail)
    monkeypatch.setattr(taking, "digest", fail)
    monkeypatch.setattr("pipeline.recomputing.decisions.digest", fail)


def test_nothing_new_is_nothing_done(dumps: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads_nothing(monkeypatch)
    before = sorted(path for path in ledger.rglob("*") if path.is_file())

    outcome = tick(dumps, ledger)

    assert (outcome.unchanged, outcome.published, outcome.reasons) == (2, False, {})
    assert sorted(path for path in ledger.rglob("*") if path.is_file()) == before


def test_only_what_is_new_is_read(dumps: Path, ledger: Path) -> None:
    write(dumps / "2.jsonl", [0, 0])

    outcome = tick(dumps, ledger)

    assert outcome.reasons == {"new": 1}
    assert rewards(ledger) == {0: ("ok", 0.5), 1: ("ok", 1.0), 2: ("ok", 0.0)}


def test_a_changed_file_replaces_its_rows(dumps: Path, ledger: Path) -> None:
    write(dumps / "1.jsonl", [0, 0, 0], age=1_000)

    outcome = tick(dumps, ledger)

    assert outcome.reasons == {"changed": 1}
    assert files(ledger)["1.jsonl"] == ("taken", "changed")
    assert rewards(ledger) == {0: ("ok", 0.5), 1: ("ok", 0.0)}
    assert ask(ledger, "SELECT step, count(*) FROM samples GROUP BY ALL ORDER BY ALL") == [(0, 2), (1, 3)]


def test_a_changed_file_that_holds_other_steps_no_longer_has_the_old_ones(tmp_path: Path, ledger: Path) -> None:
    path = write_steps(tmp_path / "dumps" / "all.jsonl", {1: [1], 2: [1, 0], 3: [0]})
    tick(path.parent, ledger)

    write_steps(path, {2: [1, 0], 4: [1]}, age=900)
    tick(path.parent, ledger)

    assert rewards(ledger) == {2: ("ok", 0.5), 4: ("ok", 1.0)}


def test_a_file_that_is_broken_in_part_leaves_stale_what_it_no_longer_shows(tmp_path: Path, ledger: Path) -> None:
    path = write_steps(tmp_path / "dumps" / "all.jsonl", {1: [1], 2: [1, 0], 3: [0]})
    tick(path.parent, ledger)

    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:20])
    aged(path, 900)
    tick(path.parent, ledger)

    assert rewards(ledger) == {1: ("ok", 1.0), 2: ("stale", 0.5), 3: ("stale", 0.0)}


@pytest.mark.parametrize("new", ["rollout_1.jsonl", "step-1.jsonl"])
def test_a_renamed_file_is_told_as_such(new: str, dumps: Path, ledger: Path) -> None:
    (dumps / "1.jsonl").rename(dumps / new)

    outcome = tick(dumps, ledger)

    assert outcome.vanished == 1
    assert files(ledger) == {"0.jsonl": ("taken", "new"), new: ("taken", f"renamed from {dumps / '1.jsonl'}")}
    assert rewards(ledger) == {0: ("ok", 0.5), 1: ("ok", 1.0)}
    assert ask(ledger, "SELECT source FROM batches WHERE step = 1") == [(str(dumps / new),)]
    assert codes(ledger) == []


def test_a_file_renamed_to_another_step_takes_its_batch_along(dumps: Path, ledger: Path) -> None:
    (dumps / "1.jsonl").rename(dumps / "7.jsonl")

    tick(dumps, ledger)

    assert rewards(ledger) == {0: ("ok", 0.5), 7: ("ok", 1.0)}


def test_a_file_that_moved_while_it_was_new_counts_as_renamed_too(dumps: Path, ledger: Path) -> None:
    (dumps / "1.jsonl").rename(dumps / "7.jsonl")
    aged(dumps / "7.jsonl", 1)
    tick(dumps, ledger)
    assert files(ledger)["7.jsonl"][0] == "pending"

    aged(dumps / "7.jsonl", 60)
    tick(dumps, ledger)

    assert rewards(ledger) == {0: ("ok", 0.5), 7: ("ok", 1.0)}


def test_a_vanished_file_keeps_its_rows_and_is_marked(dumps: Path, ledger: Path) -> None:
    (dumps / "1.jsonl").unlink()

    outcome = tick(dumps, ledger)

    assert outcome.vanished == 1
    assert files(ledger)["1.jsonl"] == ("vanished", "not there any more")
    assert rewards(ledger) == {0: ("ok", 0.5), 1: ("ok", 1.0)}
    assert not tick(dumps, ledger).published


def test_a_file_that_is_back_again_is_read(dumps: Path, ledger: Path, tmp_path: Path) -> None:
    (dumps / "1.jsonl").rename(tmp_path / "aside")
    tick(dumps, ledger)

    (tmp_path / "aside").rename(dumps / "1.jsonl")
    outcome = tick(dumps, ledger)

    assert outcome.reasons == {"back again": 1}
    assert files(ledger)["1.jsonl"] == ("taken", "back again")


def test_a_refused_file_that_is_removed_is_forgotten(dumps: Path, ledger: Path) -> None:
    broken = write(dumps / "2.jsonl", [1], response_length=-1)
    tick(dumps, ledger)
    assert codes(ledger) == ["invalid_value"]

    broken.unlink()
    tick(dumps, ledger)

    assert codes(ledger) == []
    assert "2.jsonl" not in files(ledger)


def test_files_of_a_glob_vanish_too(tmp_path: Path, ledger: Path) -> None:
    for step in (0, 1):
        write(tmp_path / "dumps" / f"{step}.jsonl", [1])
    tick(tmp_path / "dumps" / "*.jsonl", ledger)

    (tmp_path / "dumps" / "1.jsonl").unlink()
    tick(tmp_path / "dumps" / "*.jsonl", ledger)

    assert files(ledger)["1.jsonl"][0] == "vanished"


def test_a_source_of_its_own_name_does_not_vanish_from_its_directory(dumps: Path, ledger: Path) -> None:
    shutil.copy(FIXTURES / "miles" / "single_run" / "rollout_data" / "2.pt", dumps / "special.pt")
    aged(dumps / "special.pt", 60)
    tick(dumps / "special.pt", ledger, run="b")
    tick(dumps, ledger, run="b")

    assert files(ledger)["special.pt"][0] == "taken"


# --- settings and versions ---


def test_other_settings_compute_again_without_reading_a_dump(
    dumps: Path, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        reads_nothing(patch)
        outcome = tick(dumps, ledger, settings=PLAIN)

    assert outcome.reasons == {"settings": 2}
    assert outcome.accepted.height == 2
    tick(dumps, tmp_path / "scratch", settings=PLAIN)
    assert_same_figures(ledger, tmp_path / "scratch")
    assert not tick(dumps, ledger, settings=PLAIN).published


def test_another_version_of_a_metric_computes_again_without_reading_a_dump(
    dumps: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "current", lambda: '{"metrics":{"episode_raw_reward":99}}')
    reads_nothing(monkeypatch)

    outcome = tick(dumps, ledger)

    assert outcome.reasons == {"metric version": 2}
    assert ask(ledger, "SELECT DISTINCT versions FROM batches") == [('{"metrics":{"episode_raw_reward":99}}',)]
    assert not tick(dumps, ledger).published


def test_another_version_of_a_metric_reaches_the_good_batches_of_a_refused_file(
    tmp_path: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dumps" / "all.jsonl"
    path.parent.mkdir()
    write_json_lines(path, [sample(1, 0, step=1), {**sample(1, 0, step=2), "response_length": -1}])
    aged(path, 60)
    tick(path.parent, ledger)
    monkeypatch.setattr(versions, "current", lambda: "{}")
    reads_nothing(monkeypatch)

    tick(path.parent, ledger)

    assert ask(ledger, "SELECT step, versions FROM batches") == [(1, "{}")]


def test_another_way_to_read_reads_again(dumps: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "canonical", lambda: '{"canonical":99}')

    outcome = tick(dumps, ledger)

    assert outcome.reasons == {"read differently by this version": 2}
    assert not tick(dumps, ledger).published


def test_settings_reach_the_batches_of_vanished_files_at_once(dumps: Path, ledger: Path) -> None:
    (dumps / "1.jsonl").unlink()

    tick(dumps, ledger, settings=PLAIN)

    assert ask(ledger, "SELECT DISTINCT settings FROM batches") == [(PLAIN.as_json(),)]


def test_settings_reach_vanished_batches_of_a_directory_that_is_empty_by_now(dumps: Path, ledger: Path) -> None:
    for name in ("0.jsonl", "1.jsonl"):
        (dumps / name).unlink()
    tick(dumps, ledger)

    tick(dumps, ledger, settings=PLAIN)

    assert ask(ledger, "SELECT DISTINCT settings FROM batches") == [(PLAIN.as_json(),)]


def test_a_claim_stands_while_its_file_is_written_again(dumps: Path, ledger: Path) -> None:
    write(dumps / "rollout_1.jsonl", [0, 0])
    tick(dumps, ledger)
    write(dumps / "1.jsonl", [1, 1, 1], age=1)

    tick(dumps, ledger)
    assert rewards(ledger)[1] == ("stale", 1.0)
    assert files(ledger)["rollout_1.jsonl"][0] == "refused"

    write_steps(aged(dumps / "1.jsonl", 60), {7: [1]})
    tick(dumps, ledger)
    assert rewards(ledger) == {0: ("ok", 0.5), 1: ("ok", 0.0), 7: ("ok", 1.0)}


def test_records_that_name_their_own_run_are_computed_again_too(tmp_path: Path, ledger: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0], run="their-own")
    tick(tmp_path / "dumps", ledger)

    tick(tmp_path / "dumps", ledger, settings=PLAIN)

    assert ask(ledger, "SELECT run, settings FROM batches") == [("their-own", PLAIN.as_json())]
    assert not tick(tmp_path / "dumps", ledger, settings=PLAIN).published


def test_one_directory_given_for_two_runs_keeps_each_runs_settings_and_findings(tmp_path: Path, ledger: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    write(tmp_path / "dumps" / "1.jsonl", [1, 0.5], index=0)
    plans = [RunPlan((str(tmp_path / "dumps"),), settings, run) for run, settings in (("a", Settings()), ("b", SHARED))]

    for _ in range(2):
        recompute(plans, ledger, Options())
        assert ask(ledger, "SELECT run, step, settings FROM batches ORDER BY ALL") == [
            ("a", 0, Settings().as_json()),
            ("a", 1, Settings().as_json()),
            ("b", 0, SHARED.as_json()),
        ]
        assert ask(ledger, "SELECT run, code FROM findings") == [("b", "siblings_differ")]
        assert ask(ledger, "SELECT run, source, state FROM sources WHERE state <> 'taken'") == [
            ("b", str(tmp_path / "dumps" / "1.jsonl"), "refused")
        ]


def test_what_settings_refuse_other_settings_give_back(tmp_path: Path, ledger: Path) -> None:
    path = write(tmp_path / "dumps" / "0.jsonl", [1, 0.5], index=0)
    write(tmp_path / "dumps" / "1.jsonl", [1])
    for is_gone in (False, True):
        tick(path.parent, ledger)
        if is_gone:
            path.unlink()
        for settings, state in ((SHARED, "stale"), (Settings(), "ok")):
            for _ in range(2):
                tick(path.parent, ledger, settings=settings)
                assert rewards(ledger)[0] == (state, 0.75)
            assert codes(ledger) == ([] if state == "ok" else ["siblings_differ"])
            assert not tick(path.parent, ledger, settings=settings).published


# --- being asked for ---


def test_verify_finds_other_content_of_the_same_look(dumps: Path, ledger: Path) -> None:
    path = dumps / "1.jsonl"
    look = path.stat()
    path.write_bytes(
        path.read_bytes().replace(b'"reward":1', b'"reward":0', 1).replace(b'"reward": 1', b'"reward": 0', 1)
    )
    os.utime(path, ns=(look.st_atime_ns, look.st_mtime_ns))
    assert path.stat().st_size == look.st_size
    assert not tick(dumps, ledger).published

    outcome = tick(dumps, ledger, verify=True)

    assert outcome.reasons == {"changed, though of the same size and time": 1}
    assert rewards(ledger)[1] == ("ok", 0.5)


def test_force_reads_everything_and_changes_nothing(dumps: Path, ledger: Path, tmp_path: Path) -> None:
    shutil.copytree(ledger, tmp_path / "before")

    outcome = tick(dumps, ledger, force=True)

    assert outcome.reasons == {"forced": 2}
    assert codes(ledger) == []
    tick(dumps, tmp_path / "scratch")
    assert_same_figures(ledger, tmp_path / "scratch")


def test_from_to_and_split_look_at_some_batches_only(tmp_path: Path, ledger: Path) -> None:
    for step in range(5):
        write(tmp_path / "dumps" / f"{step}.jsonl", [step])
        write(tmp_path / "dumps" / f"eval_{step}.jsonl", [step])

    tick(tmp_path / "dumps", ledger, selection=Selection(first=1, last=3, split="train"))
    assert ask(ledger, "SELECT split, step FROM batches ORDER BY ALL") == [("train", step) for step in (1, 2, 3)]

    tick(tmp_path / "dumps", ledger, selection=Selection(split="eval", last=0))
    assert ask(ledger, "SELECT step FROM batches WHERE split = 'eval'") == [(0,)]

    tick(tmp_path / "dumps", ledger)
    assert ask(ledger, "SELECT count(*) FROM batches") == [(10,)]


def test_since_looks_at_files_changed_since_only(tmp_path: Path, ledger: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1], age=7_200)
    write(tmp_path / "dumps" / "1.jsonl", [1], age=600)

    tick(tmp_path / "dumps", ledger, selection=Selection(since_ns=time.time_ns() - 3_600 * 10**9))

    assert list(rewards(ledger)) == [1]


def test_a_part_of_a_file_is_taken_once_and_the_rest_when_it_is_asked_for(tmp_path: Path, ledger: Path) -> None:
    path = write_steps(tmp_path / "dumps" / "all.jsonl", {step: [step] for step in range(4)})
    part = Selection(first=2)

    assert tick(path.parent, ledger, selection=part).accepted.height == 2
    assert files(ledger)["all.jsonl"] == ("partial", "new; only from 2")
    assert not tick(path.parent, ledger, selection=part).published

    outcome = tick(path.parent, ledger)
    assert outcome.reasons == {"only a part was taken": 1}
    assert list(rewards(ledger)) == [0, 1, 2, 3]
    assert files(ledger)["all.jsonl"][0] == "taken"
    assert codes(ledger) == []


def test_a_part_of_a_file_leaves_findings_of_the_rest(tmp_path: Path, ledger: Path) -> None:
    path = tmp_path / "dumps" / "all.jsonl"
    path.parent.mkdir()
    write_json_lines(path, [{**sample(1, 0, step=1), "response_length": -1}, sample(1, 0, step=2)])
    aged(path, 60)
    tick(path.parent, ledger)

    tick(path.parent, ledger, selection=Selection(first=2), force=True)

    assert codes(ledger) == ["invalid_value"]


# --- two claims on one step ---


def test_two_files_of_one_step_are_refused_by_name_until_one_gives_way(dumps: Path, ledger: Path) -> None:
    rival = write(dumps / "rollout_1.jsonl", [0, 0])

    for published in (True, False):
        assert tick(dumps, ledger).published == published
        assert rewards(ledger) == {0: ("ok", 0.5), 1: ("stale", 1.0)}
        claims = ask(ledger, "SELECT source, value FROM findings WHERE code = 'duplicate_batch' ORDER BY source")
        assert claims == [(str(dumps / "1.jsonl"), str(rival)), (str(rival), str(dumps / "1.jsonl"))]

    write(dumps / "2.jsonl", [0])
    assert tick(dumps, ledger).reasons == {"new": 1}

    rival.unlink()
    assert tick(dumps, ledger).reasons == {"was a duplicate": 1}
    assert rewards(ledger) == {0: ("ok", 0.5), 1: ("ok", 1.0), 2: ("ok", 0.0)}
    assert codes(ledger) == []


def test_what_a_later_call_gives_for_a_run_counts(tmp_path: Path, ledger: Path) -> None:
    write(tmp_path / "one" / "0.jsonl", [1, 0])
    write(tmp_path / "two" / "0.jsonl", [1, 1])
    tick(tmp_path / "one", ledger)

    tick(tmp_path / "two", ledger)

    assert rewards(ledger) == {0: ("ok", 1.0)}
    assert codes(ledger) == ["replaced_batch"]


# --- resumed runs ---


def test_a_resumed_run_leaves_its_later_steps_and_is_told(tmp_path: Path, ledger: Path) -> None:
    dumps = tmp_path / "rerun"
    shutil.copytree(FIXTURES / "miles" / "rerun" / "before", dumps)
    for path in (dumps / "rollout_data").iterdir():
        aged(path, 3_600)
    tick(dumps, ledger)
    assert codes(ledger) == []

    for path in (FIXTURES / "miles" / "rerun" / "after_resume" / "rollout_data").iterdir():
        aged(Path(shutil.copy(path, dumps / "rollout_data" / path.name)), 1_800)
    outcome = tick(dumps, ledger)

    tick(dumps, tmp_path / "scratch")
    assert_same_figures(ledger, tmp_path / "scratch")
    assert outcome.reasons == {"changed": 2}
    told = ask(ledger, "SELECT severity, step, message FROM findings WHERE code = 'replaced_batch' ORDER BY step")
    assert [(severity, step) for severity, step, _ in told] == [("warning", 1), ("warning", 2)]
    assert "dumped again with other samples" in told[0][2]
    assert files(ledger) == {"1.pt": ("taken", "changed"), "2.pt": ("taken", "changed")}
    (row,) = pipeline_status(ledger)
    assert (row["replaced"], row["warnings"], row["refused"], row["stale"]) == (2, 2, 0, 0)

    # It is history: reading the same dumps again does not make it undone.
    tick(dumps, ledger, force=True)
    assert codes(ledger) == ["replaced_batch", "replaced_batch"]


def test_a_file_of_many_steps_that_grows_replaces_nothing(tmp_path: Path, ledger: Path) -> None:
    path = write_steps(tmp_path / "dumps" / "all.jsonl", {1: [1], 2: [1, 0]})
    tick(path.parent, ledger)

    write_steps(path, {1: [1], 2: [1, 0], 3: [0]}, age=900)
    tick(path.parent, ledger)
    assert codes(ledger) == []

    write_steps(path, {1: [1], 2: [1, 1], 3: [0]}, age=800)
    tick(path.parent, ledger)
    assert ask(ledger, "SELECT code, step FROM findings") == [("replaced_batch", 2)]


def pipeline_status(ledger: Path) -> list[dict[str, Any]]:
    from pipeline.audit.status import status

    return status(ledger).to_dicts()


# --- the plan ---


def shown(ledger: Path, dumps: Path, settings: Settings | None = None, **options: Any) -> set[tuple[str, str, str]]:
    plan = RunPlan((str(dumps),), settings or Settings(), "a")
    frame = preview([plan], ledger, Options(**options))
    return {(Path(row["source"]).name, row["action"], row["reason"]) for row in frame.iter_rows(named=True)}


def test_the_plan_says_what_would_be_done_and_why(dumps: Path, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(ledger, dumps) == set()
    assert shown(ledger, dumps, PLAIN) == {(f"{n}.jsonl", "account again", "settings") for n in (0, 1)}
    assert shown(ledger, dumps, force=True) == {(f"{n}.jsonl", "read", "forced") for n in (0, 1)}

    write(dumps / "1.jsonl", [0], age=900)
    write(dumps / "2.jsonl", [0])
    write(dumps / "3.jsonl", [0], age=1)
    (dumps / "0.jsonl").unlink()
    assert shown(ledger, dumps) == {
        ("0.jsonl", "keep", "vanished"),
        ("1.jsonl", "read", "changed"),
        ("2.jsonl", "read", "new"),
        ("3.jsonl", "pending", "new, changed less than 10 s ago"),
    }
    monkeypatch.setattr(versions, "current", lambda: "{}")
    assert ("0.jsonl", "account again", "metric version") in shown(ledger, dumps)


def test_the_plan_of_one_run_that_is_not_there_stops_no_other(dumps: Path, ledger: Path, tmp_path: Path) -> None:
    plans = [RunPlan((str(path),), Settings(), path.name) for path in (tmp_path / "gone", dumps)]

    frame = preview(plans, tmp_path / "new", Options())

    assert frame["action"].to_list() == ["fail", "read", "read"]
    assert not (tmp_path / "new").exists()
    with pytest.raises(NoInputError):
        preview(plans[:1], ledger, Options())


# --- several sources, several runs ---


def test_one_source_that_is_not_there_stops_no_other(dumps: Path, tmp_path: Path, ledger: Path) -> None:
    write(dumps / "2.jsonl", [0])
    plan = RunPlan((str(tmp_path / "gone"), str(dumps)), Settings(), "a")

    outcome = recompute([plan], ledger, Options())

    assert list(rewards(ledger)) == [0, 1, 2]
    assert "gone: no such file" in outcome.failed_runs[0]


def test_a_broken_run_stops_no_other_and_tells_of_itself(tmp_path: Path, ledger: Path) -> None:
    write(tmp_path / "good" / "0.jsonl", [1, 0])
    write(tmp_path / "bad" / "0.jsonl", [1], response_length=-1)
    (tmp_path / "empty").mkdir()
    names = ("missing", "bad", "empty", "good")

    outcome = recompute([RunPlan((str(tmp_path / n),), Settings(), n) for n in names], ledger, Options())

    assert ask(ledger, "SELECT run FROM batches") == [("good",)]
    assert ask(ledger, "SELECT run FROM findings") == [("bad",)]
    assert [name in error for name, error in zip(("missing", "empty"), outcome.failed_runs, strict=True)] == [
        True,
        True,
    ]


def test_an_older_reader_in_the_same_process_does_not_mislead_the_writer(dumps: Path, ledger: Path) -> None:
    import duckdb

    with duckdb.connect(str(ledger / "ledger.duckdb"), read_only=True) as reader:
        for step in (2, 3, 4):
            write(dumps / f"{step}.jsonl", [1])
            tick(dumps, ledger)
        assert reader.execute("SELECT count(*) FROM batches").fetchone() == (2,)

    assert list(rewards(ledger)) == [0, 1, 2, 3, 4]
