"""Several processes side by side publish what one does."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

import pipeline
from pipeline import RunPlan, Settings, recompute
from pipeline.errors import StorageError
from pipeline.recomputing import Options, pieces
from pipeline.sources.isolation import Process
from pipeline.sources.record_writers import write_json_lines, write_parquet
from pipeline.store.layout import GENERATION_TABLES, SEGMENT_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLES = (*GENERATION_TABLES, *SEGMENT_TABLES)
WHEN = ("published_at", "seen_at")


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WORTH_IT", 1)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Good batches in two formats, one that two files claim, one that is refused, and a file that is none."""
    directory = tmp_path / "dumps"
    directory.mkdir()
    for step in range(10):
        write = write_parquet if step % 3 == 0 else write_json_lines
        suffix = "parquet" if step % 3 == 0 else "jsonl"
        write(directory / f"{step}.{suffix}", [sample(step, number) for number in range(5)])
    write_json_lines(directory / "more.jsonl", [{**sample(4, 0), "step": 4}])
    write_json_lines(directory / "11.jsonl", [{**sample(11, 0), "response_length": -1}])
    (directory / "12.parquet").write_bytes(b"PAR1 and nothing else")
    return directory


def sample(step: int, number: int) -> dict[str, Any]:
    return {"reward": (step + number) % 3 / 2, "index": number, "group_index": number // 2, "response_length": 3}


def published(dumps: Path, ledger: Path, jobs: int) -> dict[str, list[str]]:
    recompute([RunPlan((str(dumps),), Settings(), "a")], ledger, Options(still_seconds=0, jobs=jobs))
    return {
        table.relation: sorted(
            map(repr, pipeline.sql(f"SELECT * FROM {table.relation}", ledger).drop(WHEN, strict=False).to_dicts())
        )
        for table in TABLES
    }


def test_the_number_of_processes_changes_nothing(dumps: Path, tmp_path: Path) -> None:
    alone = published(dumps, tmp_path / "one", 1)

    together = published(dumps, tmp_path / "three", 3)

    assert together == alone
    assert len(together["batches"]) == 9
    assert any("duplicate_batch" in row for row in together["findings"])


def test_a_piece_is_a_value(dumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[pieces.Piece] = []
    ask = Process.ask

    def noted(self: Process, question: object) -> Iterator[tuple[Any, ...]]:
        if isinstance(question, pieces.Piece):
            sent.append(pickle.loads(pickle.dumps(question)))
        return ask(self, question)

    monkeypatch.setattr(Process, "ask", noted)

    published(dumps, tmp_path / "ledger", 2)

    assert len(sent) >= 8
    work = pieces.done_here(sent[0])
    assert sum(frame.height for frame in work.accepted) >= 1
    remembered = [batch.samples for taken, _ in work.taken for batch in taken.batches]
    assert all(samples.is_empty() for samples in remembered)
    assert len(set(map(id, remembered))) == 1


@pytest.mark.parametrize(("ending", "is_worth_it"), [("parquet", True), ("jsonl", False)])
def test_a_byte_of_a_columnar_file_is_more_work(
    ending: str, is_worth_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "dumps"
    directory.mkdir()
    write = write_parquet if ending == "parquet" else write_json_lines
    paths = [directory / f"{step}.{ending}" for step in range(3)]
    for step, path in enumerate(paths):
        write(path, [sample(step, number) for number in range(5)])
    monkeypatch.setattr(pieces, "WORTH_IT", 1 + sum(path.stat().st_size for path in paths))
    done = Mock(side_effect=pieces.done)
    monkeypatch.setattr(pieces, "done", done)

    published(directory, tmp_path / "ledger", 2)

    assert done.called == is_worth_it


def test_a_process_that_has_ended_costs_nothing_but_its_time(
    dumps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = published(dumps, tmp_path / "one", 1)
    start = Process.__init__

    def ending(self: Process, module: str, environment: dict[str, str] | None = None) -> None:
        start(self, module, environment)
        if module == "pipeline.recomputing.piece_worker":
            self.process.kill()

    monkeypatch.setattr(Process, "__init__", ending)

    assert published(dumps, tmp_path / "two", 2) == alone


def test_an_error_of_the_disk_is_told_as_one(dumps: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    (ledger / "data").mkdir(parents=True)
    (ledger / "data" / "staging").write_text("in the way")

    with pytest.raises(StorageError, match="cannot be written"):
        published(dumps, ledger, 2)


def test_what_was_told_to_stop_publishes_what_is_done(dumps: Path, tmp_path: Path) -> None:
    asked = iter([False, False, *[True] * 100])
    options = Options(still_seconds=0, jobs=2, stop=lambda: next(asked))

    recompute([RunPlan((str(dumps),), Settings(), "a")], tmp_path / "ledger", options)

    assert 0 < pipeline.sql("SELECT count(*) FROM batches", tmp_path / "ledger").item() < 9
