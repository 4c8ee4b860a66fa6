"""Stored snapshots: the same content the same bytes, whole or not there, and readable for ever."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import NoInputError, UsageError
from pipeline.snapshots import names, part_files, stored
from pipeline.snapshots.compare import compare
from pipeline.snapshots.content import TABLES, kept_schema
from schemas.snapshot import Selection
from tests.snapshots.contents import content, groups_of, metrics, rollouts

if TYPE_CHECKING:
    from pipeline.snapshots.content import Content

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
ANY = Selection(tables=tuple(TABLES))


def some(rows: int = 40) -> Content:
    table = rollouts(groups_of([1.0, 0.1 + 0.2], [0.7, -0.7], groups=rows // 2))
    return content(rollouts=table, metrics=metrics({"a": (0.1, 1), "b": (None, 0), "c": (-0.0, 3)}))


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_TEXT_ROWS", 10)
    monkeypatch.setattr(part_files, "PART_ROWS", 1_000)


values = st.one_of(st.none(), st.floats(), st.sampled_from([-0.0, 5e-324, 1e16 + 2, math.nan, math.inf]))


@given(st.lists(st.tuples(values, st.integers(-(2**63), 2**63 - 1), st.text(min_size=0, max_size=5)), max_size=8))
def test_any_row_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[object, int, str]]
) -> None:
    frame = pl.concat(
        [
            metrics({f"{place} {name}": (value, count)}, adapter_name=name)  # type: ignore[dict-item]
            for place, (value, count, name) in enumerate(rows)
        ]
        or [metrics({"only": (1.0, 1)})]
    )
    directory = tmp_path_factory.mktemp("any") / "a"

    stored.write(content(metrics=frame), ANY, directory)
    header, back = stored.read(directory)
    again = stored.write(back, ANY, directory.with_name("b"))

    table = back.tables["metrics"].pieces[0].collect()
    assert table.equals(frame.sort(TABLES["metrics"].grain, nulls_last=False), null_equal=True)
    assert again == header
    assert bytes_of(directory) == bytes_of(directory.with_name("b"))


@pytest.mark.parametrize("parts", [False, True])
def test_neither_order_nor_pieces_change_the_bytes(
    parts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parts:
        in_parts(monkeypatch)
    frame = some(3_000).tables["rollouts"].pieces[0].collect()
    turned = frame.sample(fraction=1, shuffle=True, seed=3)
    other = content(rollouts=turned)
    pieces = tuple(turned[start : start + 700].lazy() for start in range(0, 3_000, 700))
    split = content(rollouts=turned).tables["rollouts"].__class__(TABLES["rollouts"], frame.schema, pieces)

    for name, one in (("a", content(rollouts=frame)), ("b", other), ("c", content(rollouts=frame))):
        if name == "c":
            one.tables["rollouts"] = split
        stored.write(one, ANY, tmp_path / name)

    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b") == bytes_of(tmp_path / "c")
    assert len(bytes_of(tmp_path / "a")) == (2 if parts else 1)


def test_neither_threads_nor_hash_seeds_change_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from pipeline.snapshots import stored, part_files\n"
        "from tests.snapshots.test_stored import some, ANY\n"
        "stored.MAX_TEXT_ROWS, part_files._GROUP_ROWS = 10, 512\n"
        "stored.write(some(6_000), ANY, Path(sys.argv[1]))"
    )
    for name, threads in (("a", "1"), ("b", "3")):
        environment = {**os.environ, "POLARS_MAX_THREADS": threads, "PYTHONHASHSEED": threads}
        subprocess.run([sys.executable, "-c", program, str(tmp_path / name)], check=True, env=environment, cwd=ROOT)

    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")


def test_parts_hold_what_the_text_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.write(some(200), ANY, tmp_path / "text")
    in_parts(monkeypatch)
    stored.write(some(200), ANY, tmp_path / "parts")

    text, parts = (stored.read(tmp_path / name)[1] for name in ("text", "parts"))

    assert compare(text, parts).verdict == "pass"
    assert len(bytes_of(tmp_path / "parts")) == 2


def test_a_replaced_snapshot_leaves_no_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    stored.write(some(200), ANY, tmp_path / "a")
    (tmp_path / "a" / ".dead.writing").write_text("")

    stored.write(some(300), ANY, tmp_path / "a")

    assert len(bytes_of(tmp_path / "a")) == 2
    assert stored.read(tmp_path / "a")[1].tables["rollouts"].rows == 300


def test_nothing_of_a_snapshot_depends_on_time_or_place(tmp_path: Path) -> None:
    stored.write(some(), ANY, tmp_path / "a")

    text = (tmp_path / "a" / stored.FILE).read_text()

    assert str(tmp_path) not in text
    assert "published" not in text


def test_two_rows_of_one_key_cannot_be_kept(tmp_path: Path) -> None:
    frame = metrics({"a": (1.0, 1)})

    with pytest.raises(NoInputError, match="two rows of one key"):
        stored.write(content(metrics=pl.concat([frame, frame])), ANY, tmp_path / "a")


# --- what is not what was written -------------------------------------------------------------------------------------


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"a",0.1,1]', '"a",0.2,1]', "fingerprint"),
        ('"a",0.1,1]', '"a",0.1]', "expected 9 values"),
        ('"a",0.1,1]', '"a","x",1]', "no snapshot that can be trusted"),
        ('"a",0.1,1]', '"a",[],1]', "no snapshot that can be trusted"),
        ('{"snapshot": 1}', '{"snapshot": 2}', "format version 2"),
        ('{"snapshot": 1}', "<<<<<<< HEAD", "line 1 is no JSON"),
        ('"rows": 3', '"rows": 4', "fingerprint"),
        ('{"table": "metrics"', '{"table": "findings"', "table"),
        ('{"fingerprint": "', '{"fingerprint": "00', "fingerprint of its header"),
    ],
)
def test_an_edited_snapshot_is_not_trusted(old: str, new: str, told: str, tmp_path: Path) -> None:
    stored.write(some(), ANY, tmp_path / "a")
    edited(tmp_path / "a" / stored.FILE, old, new)

    with pytest.raises(NoInputError, match=told):
        stored.read(tmp_path / "a")


def test_a_torn_snapshot_is_not_trusted(tmp_path: Path) -> None:
    stored.write(some(), ANY, tmp_path / "a")
    whole = (tmp_path / "a" / stored.FILE).read_bytes()

    for length in range(0, len(whole) - 1, 97):
        (tmp_path / "a" / stored.FILE).write_bytes(whole[:length])
        with pytest.raises(NoInputError):
            stored.read(tmp_path / "a")


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_harmed_part_is_not_trusted(harm: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(monkeypatch)
    stored.write(some(200), ANY, tmp_path / "a")
    (part,) = (tmp_path / "a").glob("*.parquet")
    harm(part)  # type: ignore[operator]

    with pytest.raises(NoInputError, match="missing, or is not what was written"):
        stored.read(tmp_path / "a")


def test_line_ends_that_git_translated_do_not_matter(tmp_path: Path) -> None:
    stored.write(some(), ANY, tmp_path / "a")
    path = tmp_path / "a" / stored.FILE
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert compare(stored.read(tmp_path / "a")[1], some()).verdict == "pass"


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "Nightly-2026.10_05", "0", "x" * 100])
def test_safe_names(name: str) -> None:
    assert names.checked(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../a", "a/b", "a\\b", "a b", "-a", ".a", "a.", "a..b", "con", "NUL.txt", "é", "a\n", "x" * 101],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        names.checked(name)


def test_a_name_that_differs_in_case_alone_is_refused(tmp_path: Path) -> None:
    stored.write(some(), ANY, tmp_path / "base")

    with pytest.raises(UsageError, match="the same name on some systems"):
        names.check_is_new(tmp_path, "Base")


# --- for ever ---------------------------------------------------------------------------------------------------------

SETTINGS_USED = re.compile(r'"[0-9a-f]{8}"(?=\]$)')
FINGERPRINTS = {
    "text-of-format-1": "7f8cb42f49711d4c2c1808f507a812d49d23a34761f7af16a9d44448f5887641",
    "parts-of-format-1": "763c4118161f11c12c50ef5bcd40218ae42aed1ac831b25c6cbfc41b80e1166f",
}

ROWS = {"metrics": 33, "adapters": 6, "batches": 3, "prompt_groups": 8, "rollouts": 28, "samples": 36}
FIRST = {
    "run": "rich",
    "split": "eval",
    "step": 1,
    "scope": "adapter",
    "adapter_name": None,
    "adapter_slot": None,
    "metric": "episode_raw_reward",
    "value": 0.35,
    "count": 2,
}


@pytest.mark.parametrize("name", sorted(FINGERPRINTS))
def test_files_of_earlier_versions_stay_readable(name: str) -> None:
    header, back = stored.read(GOLDEN / name)

    assert header.snapshot == 1
    assert header.fingerprint == FINGERPRINTS[name]
    assert header.counts == {"runs": 1, "batches": 3, "samples": 36, "rollouts": 28}
    assert {table: held.rows for table, held in back.tables.items()} == ROWS
    held = back.tables["metrics"]
    first = held.read(held.sizes, held.schema.names()).sort(held.grain, nulls_last=False).row(0, named=True)
    assert first == FIRST
    assert [use.values["advantage_estimator"] for use in back.settings.values()] == ["grpo"]
    assert json.loads(back.tables["batches"].pieces[0].collect()["settings"][0])["grpo_std_normalization"] is True


def test_golden_text_and_parts_say_the_same() -> None:
    parts, text = (stored.read(GOLDEN / name)[1] for name in sorted(FINGERPRINTS))

    assert compare(text, parts).verdict == "pass"


def test_a_golden_snapshot_can_be_compared_with_todays_columns() -> None:
    _, back = stored.read(GOLDEN / "text-of-format-1")

    for name, held in back.tables.items():
        assert set(held.schema) <= set(kept_schema(TABLES[name])), "a published column is gone: raise SCHEMA_VERSION"


def test_a_golden_snapshot_is_written_as_it_was(tmp_path: Path) -> None:
    """What is told of settings apart, of which some have come since."""
    header, back = stored.read(GOLDEN / "text-of-format-1")

    stored.write(back, header.selection, tmp_path)

    written, golden = (
        [SETTINGS_USED.sub("", line) for line in (path / "snapshot.jsonl").read_text().splitlines() if line[0] == "["]
        for path in (tmp_path, GOLDEN / "text-of-format-1")
    )
    assert written == golden


def test_a_snapshot_can_be_copied(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "parts-of-format-1", tmp_path / "copy")

    assert stored.read(tmp_path / "copy")[0].fingerprint == FINGERPRINTS["parts-of-format-1"]
