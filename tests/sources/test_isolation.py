"""A file that aborts its native reader costs a finding, not the process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pipeline
from pipeline.sources import isolation, reading
from pipeline.sources.batch import SourceFile


@pytest.fixture
def dump(tmp_path: Path) -> SourceFile:
    path = tmp_path / "0.parquet"
    pl.DataFrame({"reward": [1.0, 0.0], "response_length": [1, 2]}).write_parquet(path)
    return SourceFile(path, run="run", split="train", step=0)


def test_an_abort_is_a_finding_and_the_next_file_is_read(dump: SourceFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(reading.READERS, "parquet", ("tests.aborting", "abort"))
        (broken,) = pipeline.read(dump)

    (whole,) = pipeline.read(dump)

    assert [finding.code for finding in broken.findings] == ["unreadable_file"]
    assert "reader's process" in broken.findings[0].message
    assert whole.samples.height == 2


def test_the_worker_serves_many_files(dump: SourceFile) -> None:
    list(pipeline.read(dump))
    (worker,) = isolation.running

    list(pipeline.read(dump))

    assert isolation.running == [worker]


def test_an_answer_that_nobody_wants_does_not_reach_the_next_question(dump: SourceFile, tmp_path: Path) -> None:
    frame = pl.DataFrame({"reward": [1.0] * 6, "response_length": [1] * 6, "step": [1, 2, 3, 4, 5, 6]})
    frame.write_parquet(tmp_path / "many.parquet")
    several: Any = pipeline.read(SourceFile(tmp_path / "many.parquet", run="run"))
    next(several)
    several.close()

    (batch,) = pipeline.read(dump)

    assert batch.key == ("run", "train", 0)


def test_an_error_of_the_operating_system_is_a_finding(tmp_path: Path) -> None:
    missing = SourceFile(tmp_path / "gone.parquet", run="run", format="parquet")

    (batch,) = pipeline.read(missing)

    assert [finding.code for finding in batch.findings] == ["unreadable_file"]


def test_a_bug_of_a_reader_is_raised_as_one(dump: SourceFile) -> None:
    with pytest.raises(RuntimeError, match="no_such_function"):
        list(isolation.read("pipeline.sources.columnar", "no_such_function", dump))
