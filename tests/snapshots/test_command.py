"""`rollout-ledger snapshot`: verbs, exit codes, formats, and what lies on disk afterwards."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pipeline
from pipeline import RunPlan, Settings, recompute
from pipeline.cli.app import run
from pipeline.errors import NoInputError, StorageError
from pipeline.recomputing.options import Options
from pipeline.snapshots import baselines, histories
from pipeline.sources.record_writers import write_json_lines
from schemas.snapshot import Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Told = tuple[int, str, str]


def records(path: Path, rewards: list[object], **fields: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    common = {"response_length": 1, "group_index": 0}
    write_json_lines(path, [{"reward": reward, "index": i, **common, **fields} for i, reward in enumerate(rewards)])
    return path


def publish(source: Path, ledger: Path, **settings: Any) -> None:
    recompute([RunPlan((str(source),), Settings(**settings), "a")], ledger, Options(still_seconds=0.0, force=True))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger of two train steps and an eval step."""
    for name, rewards in (("0", [1, 0]), ("1", [1, 1, 0]), ("eval_1", [1])):
        records(tmp_path / "dumps" / f"{name}.jsonl", list(rewards))
    publish(tmp_path / "dumps", tmp_path / "l")
    return tmp_path / "l"


@pytest.fixture
def say(ledger: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    def said(verb: str, *arguments: str) -> Told:
        capsys.readouterr()
        code = run(["snapshot", verb, *arguments, "--ledger", str(ledger)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return said


def test_save_and_check(say: Callable[..., Told], ledger: Path) -> None:
    assert say("save", "base")[:2] == (0, "")
    code, out, _ = say("check", "base")

    assert code == 0
    assert out.startswith("PASS  snapshot base against ledger ")
    assert [path.name for path in (ledger / "snapshots" / "base").iterdir()] == ["snapshot.jsonl"]


def test_a_changed_dump_is_exit_4_and_told(say: Callable[..., Told], ledger: Path) -> None:
    say("save", "base")
    publish(records(ledger.parent / "dumps" / "1.jsonl", [1, 0, 0]), ledger)

    code, out, _ = say("check", "base")

    assert code == 4
    headline, header, *lines = out.splitlines()
    assert headline.startswith("FAIL  snapshot base against ledger ")
    assert "values differ" in headline
    assert header.split()[:3] == ["table", "metric", "differ"]
    (line,) = (line for line in lines if line.split()[:2] == ["adapters", "episode_raw_reward"])
    assert line.split()[-4:] == ["0.666667", "0.333333", "-0.333333", "0.5"]


def test_overwriting_needs_force(say: Callable[..., Told]) -> None:
    say("save", "base")

    assert say("save", "base")[0] == 2
    assert say("save", "base", "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["check", "nothing"], 3, "nothing: not in"),
        (["check", "../base"], 2, "snapshot name"),
        (["save", "a/b"], 2, "snapshot name"),
        (["save", "new", "--run", "other"], 3, "no batch there is selected"),
        (["save", "new", "--from", "5", "--to", "4"], 2, "no step lies between"),
        (["save", "new", "--table", "findings"], 2, "findings"),
        (["check", "base", "--tolerance", "episode_raw_reward=nan,0"], 2, "finite number"),
        (["diff", "generation:1", "generation:99"], 3, "publications kept are 1"),
        (["diff", "generation:x", "base"], 2, "generation:N"),
        (["show", "nothing"], 3, "nothing"),
        (["accept", "base"], 2, "reason"),
        (["accept", "base", "--reason", " "], 2, "reason"),
        (["gate", "--revoke", "none", "--reason", "x"], 2, "no point none"),
        (["gate"], 2, "--absolute or --relative"),
        (["gate", "--relative", "0.7"], 2, "less than 0.5"),
    ],
)
def test_exit_codes(arguments: list[str], code: int, told: str, say: Callable[..., Told]) -> None:
    say("save", "base")

    result, out, err = say(*arguments)

    assert (result, out) == (code, "")
    assert told in err


def test_no_ledger_or_another_schema_cannot_be_compared(
    say: Callable[..., Told], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say("save", "base")
    directory = tmp_path / "l" / "snapshots"
    (tmp_path / "empty").mkdir()

    for ledger in ("nowhere", "empty"):
        arguments = ["snapshot", "check", "base", "--snapshots", str(directory), "--ledger", str(tmp_path / ledger)]
        assert run(arguments) == 3
        assert "no ledger" in capsys.readouterr().err
    path = directory / "base" / "snapshot.jsonl"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 0'))
    assert say("check", "base")[0] == 3


def test_a_snapshot_keeps_what_it_was_selected_by(say: Callable[..., Told], ledger: Path) -> None:
    say("save", "train", "--split", "train", "--to", "0", "--table", "metrics")

    publish(records(ledger.parent / "dumps" / "1.jsonl", [0, 0]), ledger)

    assert say("check", "train")[0] == 0
    shown = json.loads(say("show", "train", "--format", "json")[1])
    assert shown["counts"] == {"runs": 1, "batches": 1, "samples": 2, "rollouts": 2}
    assert [table["table"] for table in shown["tables"]] == ["metrics"]


def test_a_growing_run(say: Callable[..., Told], ledger: Path) -> None:
    say("save", "base", "--rows")
    publish(records(ledger.parent / "dumps" / "2.jsonl", [1]), ledger)

    assert say("check", "base")[0] == 4
    code, out, _ = say("check", "base", "--allow-new")
    assert code == 0
    assert "new rows allowed" in out


def test_publications_can_be_compared(say: Callable[..., Told], ledger: Path) -> None:
    publish(ledger.parent / "dumps", ledger, grpo_std_normalization=False)
    say("save", "second", "--rows")

    code, out, _ = say("diff", "generation:1", "generation:2", "--rows", "--format", "json")
    told = json.loads(out)

    assert code == 4
    assert {(one["table"], one["metric"]) for one in told["metrics"]} == {
        ("samples", "advantage"),
        ("samples", "row_advantage"),
        ("rollouts", "advantage"),
        ("batches", "settings"),
        ("metrics", "mean_abs_advantage"),
        ("metrics", "token_mean_abs_advantage"),
    }
    assert told["hints"][0] == "settings of run a: grpo_std_normalization was true, is false"
    assert say("diff", "second", "generation:2")[0] == 0
    assert say("diff", "generation:1", "second")[0] == 4


def test_accept_moves_the_baseline_and_keeps_who_when_why_and_what(say: Callable[..., Told], ledger: Path) -> None:
    say("save", "base")
    before = baselines.shown("base", ledger / "snapshots").header
    assert "nothing to accept" in say("accept", "base", "--reason", "none")[2]
    publish(records(ledger.parent / "dumps" / "1.jsonl", [1, 0, 0]), ledger)

    assert say("accept", "base", "--reason", "a better scorer", "--by", "ann")[0] == 0

    assert say("check", "base")[0] == 0
    (entry,) = histories.read(ledger / "snapshots" / "base" / "accepted.jsonl")
    after = baselines.shown("base", ledger / "snapshots").header
    assert {name: entry[name] for name in ("by", "reason", "from", "to")} == {
        "by": "ann",
        "reason": "a better scorer",
        "from": before.fingerprint,
        "to": after.fingerprint,
    }
    assert entry["differences"]["counts"]["differing"] > 0
    assert "a better scorer" in say("show", "base")[1]
    (row,) = json.loads(say("list", "--format", "json")[1])
    assert (row["name"], row["state"], row["accepted"]) == ("base", "ok", 1)


def test_a_baseline_of_another_schema_can_be_moved(say: Callable[..., Told], ledger: Path) -> None:
    say("save", "base")
    path = ledger / "snapshots" / "base" / "snapshot.jsonl"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 0'))

    assert say("accept", "base", "--reason", "columns were renamed")[0] == 0

    assert say("check", "base")[0] == 0
    (entry,) = histories.read(path.with_name("accepted.jsonl"))
    assert entry["differences"]["verdict"] == "not comparable"


def test_a_harmed_ledger_cannot_be_compared(say: Callable[..., Told], ledger: Path) -> None:
    say("save", "base")
    for path in (ledger / "data" / "segments").glob("*/metrics.parquet"):
        path.write_bytes(b"PAR1")

    code, out, err = say("check", "base")

    assert (code, out) == (3, "")
    assert "metrics: its files cannot be read" in err


def test_a_snapshot_that_cannot_be_written_leaves_the_earlier_one(
    say: Callable[..., Told], ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("save", "base")
    before = (ledger / "snapshots" / "base" / "snapshot.jsonl").read_bytes()
    publish(records(ledger.parent / "dumps" / "1.jsonl", [1, 0, 0]), ledger)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipeline.store.durable.sync_file", full)
    code, _, err = say("save", "base", "--force")

    assert code == StorageError.exit
    assert "No space left" in err
    assert (ledger / "snapshots" / "base" / "snapshot.jsonl").read_bytes() == before


def test_list_names_what_cannot_be_read(say: Callable[..., Told], ledger: Path) -> None:
    for name in ("a1", "a2", "b1"):
        say("save", name)
    (ledger / "snapshots" / "a2" / "snapshot.jsonl").write_text("{")

    rows = json.loads(say("list", "a*", "--format", "json")[1])

    assert {row["name"]: row["state"] for row in rows} == {"a1": "ok", "a2": "unreadable"}


@pytest.mark.parametrize("format_name", ["table", "markdown", "json", "junit"])
def test_a_report_of_any_size_is_one_screen_or_one_document(
    format_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in range(3):
        records(tmp_path / "d" / f"{step}.jsonl", [i % 2 for i in range(400)], adapter={"name": "x<&|\n", "slot": 0})
    publish(tmp_path / "d", tmp_path / "l")
    arguments = ["--ledger", str(tmp_path / "l")]
    run(["snapshot", "save", "base", "--rows", *arguments])
    for step in range(3):
        samples = [{"reward": i % 3, "index": i + 100, "response_length": 2, "group_index": i % 50} for i in range(500)]
        write_json_lines(tmp_path / "d" / f"{step}.jsonl", samples)
    publish(tmp_path / "d", tmp_path / "l", advantage_estimator="gspo")
    capsys.readouterr()

    assert run(["snapshot", "check", "base", *arguments, "--format", format_name]) == 4

    out = capsys.readouterr().out
    if format_name == "json":
        assert json.loads(out)["verdict"] == "fail"
    elif format_name == "junit":
        suite = ET.fromstring(out.encode())
        assert int(suite.attrib["failures"]) == len(suite.findall("testcase/failure")) > 3
        assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) > 20
    else:
        assert len(out.splitlines()) <= 30


def test_the_configuration_file_gives_places_tables_and_tolerances(ledger: Path, tmp_path: Path) -> None:
    config = tmp_path / "ledger.toml"
    config.write_text(
        'ledger = "l"\n[snapshot]\ndirectory = "kept"\ntables = ["metrics"]\nrows = true\n'
        '[snapshot.tolerance]\n"*raw_reward" = "0.4,0"\n"samples.*" = { absolute = 2.0 }\n'
        "[snapshot.gate]\nepisode_raw_reward = { absolute = 0.1 }\n"
    )
    arguments = ["--config", str(config)]
    assert run(["snapshot", "save", "base", *arguments]) == 0
    assert (tmp_path / "kept" / "base" / "snapshot.jsonl").exists()
    shown = baselines.shown("base", tmp_path / "kept")
    assert [table.table for table in shown.tables] == ["metrics", "rollouts", "samples"]
    assert run(["snapshot", "gate", "--record", *arguments]) == 0
    assert run(["snapshot", "check", "base", *arguments]) == 0
    assert ledger.exists()


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ('tolerance = { "*" = "nan" }', "finite number"),
        ('tolerance = { "*" = { relative = 0.5 } }', "cannot fail"),
        ('tables = ["findings"]', "tables"),
        ("strct = true", "strct"),
        ("gate = { x = { relative = 1.0 } }", "relative"),
    ],
)
def test_a_wrong_section_is_exit_2_and_named(
    section: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ledger.toml").write_text(f"[snapshot]\n{section}\n")

    assert run(["snapshot", "list", "--config", str(tmp_path / "ledger.toml")]) == 2
    assert told in capsys.readouterr().err


# --- the history gate -------------------------------------------------------------------------------------------------


def publish_step(ledger: Path, step: int, rewards: Sequence[object]) -> None:
    publish(records(ledger.parent / "more" / f"{step}.jsonl", list(rewards)), ledger)


def test_gate_is_inactive_then_passes_inside_and_fails_on_either_side(say: Callable[..., Told], ledger: Path) -> None:
    def gate(*arguments: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = say("gate", "--absolute", "0.2", "--format", "json", *arguments)
        return code, json.loads(out)

    code, told = gate("--record")
    assert (code, told["status"], told["points"]) == (0, "inactive", 0)
    for step, rewards, expected in ((10, [1, 1, 0, 1], 0), (11, [1, 1, 1, 1], 4), (12, [0, 0, 0, 1], 4)):
        publish_step(ledger, step, rewards)
        code, told = gate("--record")
        assert (code, told["status"]) == (expected, "pass" if expected == 0 else "fail")
    assert told["points"] == 2
    assert (told["low"], told["high"]) == pytest.approx((told["mean"] - 0.2, told["mean"] + 0.2))


def test_gate_does_not_confirm_a_point_by_itself_nor_record_it_twice(say: Callable[..., Told], ledger: Path) -> None:
    for _ in range(2):
        code, out, _ = say("gate", "--absolute", "0.2", "--record", "--format", "json")
        assert (code, json.loads(out)["status"]) == (0, "inactive")

    assert len(histories.read(ledger / "snapshots" / "gate-history.jsonl")) == 1


def test_gate_points_are_revoked_and_trusted_not_deleted(say: Callable[..., Told], ledger: Path) -> None:
    first = json.loads(say("gate", "--absolute", "0.2", "--record", "--format", "json")[1])["recorded"]
    publish_step(ledger, 10, [1, 1, 1, 1])
    assert say("gate", "--absolute", "0.2", "--record")[0] == 4

    assert say("gate", "--revoke", first, "--reason", "a wrong scorer", "--by", "ann")[0] == 0

    assert say("gate", "--absolute", "0.2")[1].startswith("INACTIVE")
    points = json.loads(say("gate", "--show", "--format", "json")[1])
    assert [(point["trusted"], point["reason"]) for point in points] == [(False, "a wrong scorer"), (False, None)]
    say("gate", "--trust", points[1]["id"], "--reason", "the new level")
    publish_step(ledger, 11, [1, 1, 1, 0.9])
    assert say("gate", "--absolute", "0.2")[0] == 0
    assert len(histories.read(ledger / "snapshots" / "gate-history.jsonl")) == 4


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no_such_metric"], "is missing"),
        (["episode_raw_reward", "--run", "other"], "is missing"),
        (["episode_raw_reward", "--step", "77"], "is missing"),
        (["episode_raw_reward", "--adapter", "north"], "is missing"),
    ],
)
def test_gate_a_missing_metric_is_an_error(arguments: list[str], told: str, say: Callable[..., Told]) -> None:
    say("gate", "--absolute", "0.5", "--record")

    code, out, _ = say("gate", *arguments, "--absolute", "0.5", "--record")

    assert code == 3
    assert out.startswith("ERROR")
    assert told in out


def test_gate_a_mean_of_nothing_is_an_error_and_not_recorded(say: Callable[..., Told], ledger: Path) -> None:
    publish_step(ledger, 10, [None, None])

    code, out, _ = say("gate", "--absolute", "100", "--record")

    assert (code, out.split()[0]) == (3, "ERROR")
    assert "a mean of nothing" in out
    assert not (ledger / "snapshots" / "gate-history.jsonl").exists()


def test_gate_of_one_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [
        {"reward": reward, "index": 0, "response_length": 1, "group_index": 0, "adapter": {"name": name, "slot": slot}}
        for name, slot, reward in (("north", 0, 1), ("north", 1, 0), ("a#1", 2, 0.5))
    ]
    (tmp_path / "d").mkdir()
    write_json_lines(tmp_path / "d" / "0.jsonl", samples)
    publish(tmp_path / "d", tmp_path / "l")

    def value(adapter: str) -> tuple[int, Any]:
        capsys.readouterr()
        arguments = ["snapshot", "gate", "--ledger", str(tmp_path / "l"), "--absolute", "1", "--format", "json"]
        code = run([*arguments, "--adapter", adapter])
        return code, json.loads(capsys.readouterr().out)["value"]

    assert value("north#0") == (0, 1.0)
    assert value("north#1") == (0, 0.0)
    assert value("a#1#2") == (0, 0.5)
    assert value("north") == (3, None)


def test_a_torn_last_entry_is_left_out_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    histories.append(path, {"a": 1})
    with path.open("a") as file:
        file.write('{"torn": ')

    assert histories.read(path) == [{"a": 1}]
    histories.append(path, {"b": 2})
    with pytest.raises(NoInputError, match="line 2 is no entry"):
        histories.read(path)


def test_every_verb_has_its_twin_in_python(ledger: Path, tmp_path: Path) -> None:
    snapshots = tmp_path / "s"
    header = baselines.save("x", ledger, snapshots, Selection(tables=("metrics",)))

    assert baselines.check("x", ledger, snapshots).verdict == "pass"
    assert baselines.diff("x", "x", snapshots=snapshots).verdict == "pass"
    assert baselines.accept("x", ledger, snapshots, "nothing") is None
    assert [row["name"] for row in baselines.listed(snapshots)] == ["x"]
    assert baselines.shown("x", snapshots).header == header
    assert pipeline.sql("SELECT count(*) FROM batches", ledger).item() == 3
