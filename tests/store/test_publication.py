"""The ledger on disk: whole or not there, replaced or kept, readable while it is written, and by anybody."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import pipeline
from pipeline import RunPlan, Settings, recompute
from pipeline.errors import LockedError, StorageError
from pipeline.recomputing import Options
from pipeline.sources.record_writers import write_json_lines
from pipeline.store import database, lock, publication, segments
from pipeline.store.layout import Layout
from pipeline.store.publication import Retention
from schemas.frames import answered_schema, sql_columns
from schemas.tables import PUBLISHED

AT_ONCE = Options(still_seconds=0, retention=Retention(seconds=0))


def write(path: Path, rewards: list[object], **fields: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    common = {"response_length": 1, "group_index": 0}
    write_json_lines(path, [{"reward": reward, "index": i, **common, **fields} for i, reward in enumerate(rewards)])
    return path


def run(source: Path, ledger: Path, **settings: Any) -> Any:
    return recompute([RunPlan((str(source),), Settings(**settings), "a")], ledger, AT_ONCE)


def steps(ledger: Path) -> dict[int, tuple[str, float]]:
    question = """
        SELECT step, state, value FROM batches JOIN metrics USING (run, split, step)
        WHERE metric = 'episode_raw_reward' AND scope = 'batch'
    """
    return {step: (state, value) for step, state, value in pipeline.sql(question, ledger).iter_rows()}


def test_relations_have_the_columns_types_and_comments_of_the_schemas(tmp_path: Path) -> None:
    run(write(tmp_path / "0.jsonl", [1, 0]), tmp_path / "l")

    with duckdb.connect(str(tmp_path / "l" / "ledger.duckdb"), read_only=True) as connection:
        for table in PUBLISHED:
            rows = connection.execute(
                "SELECT column_name, data_type, comment FROM duckdb_columns() "
                "WHERE table_name = ? ORDER BY column_index",
                [table.relation],
            ).fetchall()
            assert [(name, kind.replace('"', ""), text) for name, kind, text in rows] == [
                (name, kind.replace('"', ""), text) for name, kind, text in sql_columns(table)
            ]
            about = connection.execute("SELECT comment FROM duckdb_views() WHERE view_name = ?", [table.relation])
            assert about.fetchall() == [(table.summary(),)]


def test_an_empty_ledger_has_every_relation_with_its_types(tmp_path: Path) -> None:
    broken = write(tmp_path / "0.jsonl", [1], response_length=-1)

    run(broken, tmp_path / "l")

    for table in PUBLISHED:
        frame = pipeline.sql(f"SELECT * FROM {table.relation}", tmp_path / "l")
        assert frame.height == (table.relation in {"findings", "sources"})
        expected = [str(dtype) for dtype in answered_schema(table).dtypes()]
        assert [str(dtype).replace("Etc/UTC", "UTC") for dtype in frame.dtypes] == expected


def test_the_file_keeps_an_old_storage_format(tmp_path: Path) -> None:
    run(write(tmp_path / "0.jsonl", [1, 0]), tmp_path / "l")

    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH '{tmp_path / 'l' / 'ledger.duckdb'}' AS ledger (READ_ONLY)")
        (tags,) = (
            connection.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'ledger'").fetchone() or ()
        )

    assert "v1.0" in tags["storage_version"]


def test_a_new_dump_of_a_step_replaces_it_and_others_stay(tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    for step, rewards in enumerate(([1, 0], [1, 1], [0, 0])):
        write(tmp_path / "dumps" / f"{step}.jsonl", list(rewards))
    run(tmp_path / "dumps", ledger)

    run(write(tmp_path / "dumps" / "1.jsonl", [0, 0, 1, 1]), ledger)

    assert steps(ledger) == {0: ("ok", 0.5), 1: ("ok", 0.5), 2: ("ok", 0.0)}
    assert pipeline.sql("SELECT count(*) FROM samples", ledger).item() == 8
    assert pipeline.sql("SELECT count(*) FROM batches", ledger).item() == 3


def test_a_refused_dump_leaves_the_published_step_and_marks_it_stale(tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    write(tmp_path / "dumps" / "1.jsonl", [1, 1])
    run(tmp_path / "dumps", ledger)

    write(tmp_path / "dumps" / "0.jsonl", [0, 0], response_length=-1)
    run(tmp_path / "dumps", ledger)

    assert steps(ledger) == {0: ("stale", 0.5), 1: ("ok", 1.0)}
    assert pipeline.sql("SELECT DISTINCT code FROM findings", ledger).item() == "invalid_value"

    write(tmp_path / "dumps" / "0.jsonl", [0, 0])
    run(tmp_path / "dumps", ledger)

    assert steps(ledger) == {0: ("ok", 0.0), 1: ("ok", 1.0)}
    assert pipeline.sql("SELECT code FROM findings", ledger)["code"].to_list() == ["replaced_batch"]


def test_an_unreadable_file_of_many_steps_marks_all_of_them_stale(tmp_path: Path) -> None:
    source = tmp_path / "all.jsonl"
    write_json_lines(source, [{"reward": 1, "response_length": 1, "step": step} for step in (3, 4)])
    run(source, tmp_path / "l")

    source.write_bytes(b"\x1f\x8b\x08 no gzip")
    run(source, tmp_path / "l")

    assert {state for state, _ in steps(tmp_path / "l").values()} == {"stale"}


def test_two_sources_of_one_step_are_both_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "x" / "0.jsonl", [1, 0])
    write(tmp_path / "y" / "0.jsonl", [1, 1])
    write(tmp_path / "y" / "1.jsonl", [1, 1])
    plans = [RunPlan((str(tmp_path / "x"), str(tmp_path / "y")), Settings(), "a")]

    outcome = recompute(plans, tmp_path / "l", AT_ONCE)

    assert outcome.refused == 2
    assert list(steps(tmp_path / "l")) == [1]
    findings = pipeline.sql("SELECT source, value FROM findings WHERE code = 'duplicate_batch'", tmp_path / "l")
    names = {str(tmp_path / folder / "0.jsonl") for folder in "xy"}
    assert set(findings["source"]) == names
    assert set(findings["value"]) == names


def test_whoever_opened_the_ledger_before_keeps_the_old_state(tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    run(write(tmp_path / "0.jsonl", [1, 0]), ledger)
    with duckdb.connect(str(ledger / "ledger.duckdb"), read_only=True) as reader:
        before = reader.execute("SELECT count(*) FROM samples").fetchone()

        run(write(tmp_path / "0.jsonl", [1, 0, 1, 1]), ledger)

        assert reader.execute("SELECT count(*) FROM samples").fetchone() == before == (2,)
        assert reader.execute("SELECT samples FROM batches").fetchone() == (2,)
    assert pipeline.sql("SELECT count(*) FROM samples", ledger).item() == 4


@pytest.mark.parametrize("stage", ["segment", "generation", "database"])
def test_a_failure_on_the_way_leaves_the_published_state(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "l"
    run(write(tmp_path / "0.jsonl", [1, 0]), ledger)
    before = pipeline.sql("SELECT * FROM samples ORDER BY row", ledger)
    write(tmp_path / "0.jsonl", [0, 0, 0])
    fail = {"segment": (segments, "write_segment"), "generation": (publication, "_write_generation")}
    module, name = fail.get(stage, (database, "write"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, name, full)
    with pytest.raises(StorageError, match="No space"):
        run(tmp_path / "0.jsonl", ledger)
    monkeypatch.undo()

    assert_frame_equal(pipeline.sql("SELECT * FROM samples ORDER BY row", ledger), before)
    run(tmp_path / "0.jsonl", ledger)
    assert pipeline.sql("SELECT count(*) FROM samples", ledger).item() == 3


def test_a_second_writer_is_told_who_holds_the_ledger(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom pipeline.store import lock\n"
        "from pipeline.store.layout import Layout\n"
        f"with lock.writing(Layout(Path({str(tmp_path)!r}))):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid} .* since"), lock.writing(Layout(tmp_path)):
            pass
        holder.kill()
        holder.wait()

    with lock.writing(Layout(tmp_path)):
        pass


def test_older_generations_and_leftovers_are_removed(tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    write(tmp_path / "0.jsonl", [1, 0])
    for reward in range(6):
        run(write(tmp_path / "0.jsonl", [reward, 0]), ledger)

    assert len(list((ledger / "data" / "generations").iterdir())) == Retention().generations
    assert len(list((ledger / "data" / "segments").iterdir())) == Retention().generations
    assert not (ledger / "data" / "staging").exists()


def test_a_moved_ledger_works_at_once_and_for_others_after_the_next_recompute(tmp_path: Path) -> None:
    run(write(tmp_path / "0.jsonl", [1, 0]), tmp_path / "l")
    shutil.move(tmp_path / "l", tmp_path / "moved")

    assert pipeline.sql("SELECT count(*) FROM samples", tmp_path / "moved").item() == 2

    run(tmp_path / "0.jsonl", tmp_path / "moved")
    with duckdb.connect(str(tmp_path / "moved" / "ledger.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM samples").fetchone() == (2,)


def test_findings_of_other_runs_stay(tmp_path: Path) -> None:
    ledger = tmp_path / "l"
    broken = write(tmp_path / "b" / "0.jsonl", [1], response_length=-1)
    recompute([RunPlan((str(broken),), Settings(), "b")], ledger, AT_ONCE)

    run(write(tmp_path / "a" / "0.jsonl", [1]), ledger)

    assert pipeline.sql("SELECT run FROM findings", ledger)["run"].to_list() == ["b"]


def test_a_shared_setting_refuses_batches_after_the_accounting(tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    write_json_lines(
        tmp_path / "dumps" / "1.jsonl",
        [{"reward": r, "response_length": 1, "index": 0, "group_index": 0} for r in (1, 0.5)],
    )

    outcome = run(tmp_path / "dumps", tmp_path / "l", sibling_rewards="shared")

    assert outcome.refused == 1
    for relation in ("batches", "samples", "rollouts", "prompt_groups", "adapters", "metrics"):
        assert set(pipeline.sql(f"SELECT step FROM {relation}", tmp_path / "l")["step"]) == {0}
    (finding,) = pipeline.sql("SELECT code, row, value, message FROM findings", tmp_path / "l").to_dicts()
    assert (finding["code"], finding["row"]) == ("siblings_differ", 1)
    assert "1.0 and 0.5" in finding["value"]


def test_published_rows_are_sorted_by_their_grain(tmp_path: Path) -> None:
    for step in (3, 1, 2):
        write(tmp_path / "dumps" / f"{step}.jsonl", [1, 0, 1])
    run(tmp_path / "dumps", tmp_path / "l")

    frame = pipeline.sql("SELECT step, row FROM samples", tmp_path / "l")

    assert frame.equals(frame.sort("step", "row"))
    assert isinstance(frame, pl.DataFrame)
