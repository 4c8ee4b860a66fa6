"""Segments that an older version wrote stand beside those of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import pipeline
from pipeline import RunPlan, Settings
from pipeline.errors import NoInputError
from pipeline.recomputing import Options
from pipeline.sources.record_writers import write_json_lines
from pipeline.store import publication, segments
from pipeline.store.layout import SEGMENT_TABLES, Layout
from schemas.frames import stored_schema

if TYPE_CHECKING:
    from pathlib import Path

AT_ONCE = Options(still_seconds=0)
RECORD = {"reward": 1.0, "rollout_id": 0, "response_length": 3, "weight_versions": ["4"]}


def recompute(root: Path, run: str, settings: Settings | None = None) -> Path:
    dumps = root / run
    dumps.mkdir(exist_ok=True)
    write_json_lines(dumps / "0.jsonl", [RECORD])
    pipeline.recompute([RunPlan((str(dumps),), settings or Settings(), run)], root / "ledger", AT_ONCE)
    return root / "ledger"


def as_an_older_version_wrote_it(ledger: Path) -> None:
    layout = Layout(ledger)
    for segment in publication.current(layout).segments:
        layout.segment_file(segment, "absent_metrics").unlink()
        samples = layout.segment_file(segment, "samples")
        pl.read_parquet(samples).drop("versions_seen", "version_oldest", "reward_parts").write_parquet(samples)
    batches = layout.generation_file(publication.current_number(layout), "batches")
    pl.read_parquet(batches).with_columns(versions=pl.lit('{"schema":1}')).write_parquet(batches)


def test_an_older_ledger_is_told_as_one(tmp_path: Path) -> None:
    ledger = recompute(tmp_path, "a")
    as_an_older_version_wrote_it(ledger)

    with pytest.raises(NoInputError, match="older version of rollout-ledger; recompute once"):
        pipeline.sql("SELECT count(*) FROM samples", ledger)


def test_older_segments_are_read_beside_new_ones(tmp_path: Path) -> None:
    as_an_older_version_wrote_it(recompute(tmp_path, "a"))

    ledger = recompute(tmp_path, "b")

    rows = pipeline.sql("SELECT run, reward, version_oldest FROM samples ORDER BY run", ledger).rows()
    assert rows == [("a", 1.0, None), ("b", 1.0, 4)]
    assert pipeline.sql("SELECT DISTINCT run FROM absent_metrics", ledger)["run"].to_list() == ["b"]


def test_words_that_lie_as_texts_are_joined_with_words_and_computed_again(tmp_path: Path) -> None:
    ledger = recompute(tmp_path, "a")
    layout = Layout(ledger)
    (older,) = publication.current(layout).segments
    for table in SEGMENT_TABLES:
        path = layout.segment_file(older, table.relation)
        pl.read_parquet(path).with_columns(pl.selectors.by_dtype(pl.Enum).cast(pl.String)).write_parquet(path)
    recompute(tmp_path, "b")

    joined = segments.joined(layout, publication.current(layout).segments)

    for table in SEGMENT_TABLES:
        stored = segments.read_segment(layout, joined, table.relation).collect_schema()
        assert stored == stored_schema(table)
    assert set(pl.read_parquet(layout.segment_file(joined, "samples"))["run"]) == {"a", "b"}
    recompute(tmp_path, "a", Settings(pass_threshold=2.0))
    rows = pipeline.sql("SELECT run, kind, reward_state FROM samples ORDER BY run", ledger).rows()
    assert rows == [("a", "rollout", "ok"), ("b", "rollout", "ok")]


def test_a_harmed_template_is_made_again(tmp_path: Path) -> None:
    (template,) = (recompute(tmp_path, "a") / "data").glob("views-*.duckdb")
    template.write_bytes(template.read_bytes()[:5_000])

    ledger = recompute(tmp_path, "b")

    assert pipeline.sql("SELECT count(*) FROM batches", ledger).item() == 2
