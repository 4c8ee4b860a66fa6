"""Which publications keep their files, and for whom; how few files a tick touches."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pytest

from pipeline.cli.app import run
from pipeline.recomputing import compaction, taking
from pipeline.sources.reading import read
from pipeline.store import publication, segments
from pipeline.store.layout import Layout
from pipeline.store.publication import Retention
from tests.unattended.ledgers import assert_same_figures, rewards, tick, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.sources.batch import BatchRead, SourceFile

AT_ONCE = Retention(1, 0)


def names_of_segments(ledger: Path) -> list[str]:
    return [path.name for path in (ledger / "data" / "segments").iterdir()]


def generations(ledger: Path) -> list[int]:
    return sorted(int(path.name) for path in (ledger / "data" / "generations").iterdir())


def published_times(ledger: Path, ago: dict[int, float]) -> None:
    """Let generations look as if they had been published so many seconds ago."""
    for number, seconds in ago.items():
        then = time.time() - seconds
        os.utime(Layout(ledger).generation(number), (then, then))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Six publications."""
    for step in range(6):
        write(tmp_path / "dumps" / f"{step}.jsonl", [step])
        tick(tmp_path / "dumps", tmp_path / "l")
    return tmp_path / "l"


def test_by_default_an_hour_of_publications_is_kept_and_three_at_least(ledger: Path) -> None:
    assert generations(ledger) == [1, 2, 3, 4, 5, 6]

    # Generation 2 was replaced by 3 two hours ago, and 3 by 4 half an hour ago.
    published_times(ledger, {1: 9_000, 2: 8_000, 3: 7_200, 4: 1_800})
    run(["gc", "--ledger", str(ledger)])
    assert generations(ledger) == [3, 4, 5, 6]

    published_times(ledger, dict.fromkeys(range(3, 7), 9_000))
    run(["gc", "--ledger", str(ledger)])
    assert generations(ledger) == [4, 5, 6]


@pytest.mark.parametrize(("keep", "kept"), [(1, [6]), (2, [5, 6]), (100, [1, 2, 3, 4, 5, 6])])
def test_keep_by_hand(keep: int, kept: list[int], ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gc", "--ledger", str(ledger), "--keep", str(keep), "--keep-for", "0"]) == 0

    assert generations(ledger) == kept
    assert "generation 6 is published" in capsys.readouterr().err
    assert list(rewards(ledger)) == list(range(6))


def test_keep_on_the_way(ledger: Path, tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "6.jsonl", [1])
    call = [
        "recompute",
        str(tmp_path / "dumps"),
        "--run",
        "a",
        "--ledger",
        str(ledger),
        "--keep",
        "2",
        "--keep-for",
        "0",
    ]
    assert run(call) == 0
    assert generations(ledger) == [6, 7]


@pytest.mark.parametrize("option", [("--keep", "0"), ("--keep-for", "-1")])
def test_gc_refuses_what_makes_no_sense(option: tuple[str, str], ledger: Path) -> None:
    assert run(["gc", "--ledger", str(ledger), *option]) == 2


def test_gc_without_a_ledger(tmp_path: Path) -> None:
    assert run(["gc", "--ledger", str(tmp_path / "nowhere")]) == 3
    assert not (tmp_path / "nowhere").exists()


def test_gc_removes_ruins_and_leftovers(ledger: Path) -> None:
    layout = Layout(ledger)
    (layout.generation(2) / "batches.parquet").unlink()
    (layout.generation(3) / "batches.parquet").write_bytes(b"PAR1")
    shutil.copytree(layout.generation(6), layout.generation(7))
    (layout.staging / "half").mkdir(parents=True)
    (layout.segment("unnamed")).mkdir()

    assert run(["gc", "--ledger", str(ledger), "--keep", "100"]) == 0

    assert 7 not in generations(ledger)
    assert not layout.staging.exists()
    assert not layout.segment("unnamed").exists()
    assert list(rewards(ledger)) == list(range(6))


def test_gc_asks_for_the_newest_only_when_nobody_writes(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recompute that publishes between gc's start and its lock must not lose what it has published."""
    newest = publication.newest_number
    asked: list[int] = []

    def slow_to_lock(layout: Layout) -> int:
        asked.append(newest(layout))
        if len(asked) == 1:
            write(tmp_path / "dumps" / "6.jsonl", [1])
            tick(tmp_path / "dumps", ledger)
        return asked[-1]

    monkeypatch.setattr(publication, "newest_number", slow_to_lock)
    assert run(["gc", "--ledger", str(ledger), "--keep", "1", "--keep-for", "0"]) == 0

    assert asked == [6, 7]
    assert list(rewards(ledger)) == list(range(7))


def test_a_reader_keeps_what_it_has_opened_as_long_as_it_is_promised(ledger: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(ledger / "ledger.duckdb"), read_only=True) as reader:
        for step in range(6, 12):
            write(tmp_path / "dumps" / f"{step}.jsonl", [step])
            tick(tmp_path / "dumps", ledger)
        assert reader.execute("SELECT count(*) FROM samples").fetchone() == (6,)


# --- few files ---


def test_a_tick_touches_a_bounded_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is there already: at most its own segment and one that joins small ones, and no dump but the new one."""
    written: list[str] = []
    opened: list[str] = []
    write_segment = segments.write_segment

    def writing(layout: Layout, tables: dict[str, pl.DataFrame]) -> str:
        written.append(write_segment(layout, tables))
        return written[-1]

    def reading(file: SourceFile) -> Iterator[BatchRead]:
        opened.append(file.path.name)
        return read(file)

    monkeypatch.setattr(segments, "write_segment", writing)
    monkeypatch.setattr(taking, "read", reading)
    monkeypatch.setattr(compaction, "FAN_IN", 3)
    monkeypatch.setattr(compaction, "LARGE_BATCHES", 9)
    most = 0

    for step in range(24):
        write(tmp_path / "dumps" / f"{step}.jsonl", [step])
        tick(tmp_path / "dumps", tmp_path / "l", retention=AT_ONCE)
        assert len(written) <= 2
        assert opened == [f"{step}.jsonl"]
        most = max(most, len(names_of_segments(tmp_path / "l")))
        written.clear()
        opened.clear()

    # 24 batches: two large segments of 9, and fewer than three of each smaller size.
    assert most <= 2 + 2 + 2 + 1
    assert list(rewards(tmp_path / "l")) == list(range(24))
    tick(tmp_path / "dumps", tmp_path / "scratch")
    assert_same_figures(tmp_path / "l", tmp_path / "scratch")


def test_a_large_segment_is_left_alone_but_for_a_batch_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(20):
        write(tmp_path / "dumps" / f"{step}.jsonl", [step])
    tick(tmp_path / "dumps", tmp_path / "l")
    (large,) = names_of_segments(tmp_path / "l")

    write(tmp_path / "dumps" / "20.jsonl", [1])
    tick(tmp_path / "dumps", tmp_path / "l", retention=AT_ONCE)
    assert large in names_of_segments(tmp_path / "l")

    write(tmp_path / "dumps" / "7.jsonl", [1], age=900)
    tick(tmp_path / "dumps", tmp_path / "l", retention=AT_ONCE)
    assert large not in names_of_segments(tmp_path / "l")
    assert len(rewards(tmp_path / "l")) == 21
