"""Dump directories that change, and what a ledger says of them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from pipeline import RunPlan, Settings, recompute
from pipeline.recomputing import Options
from pipeline.sources.record_writers import write_json_lines
from pipeline.store import publication, segments
from pipeline.store.layout import SEGMENT_TABLES, Layout
from schemas.tables import PUBLISHED, BatchRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.recomputing import Outcome

QUICK_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A file system in memory, where there is one."""
OLD = 3_600.0
"""Age of a file that nobody writes into any more, seconds."""
FIGURES = tuple(table.relation for table in PUBLISHED if table.relation not in {"findings", "sources"})
Tables = dict[str, pl.DataFrame]


def sample(reward: object, position: int, **fields: Any) -> dict[str, Any]:
    return {"reward": reward, "response_length": 2, "index": position, "group_index": 0, **fields}


def write(path: Path, rewards: Sequence[object], *, age: float = OLD, **fields: Any) -> Path:
    """Write a dump of one batch that was last changed so many seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_lines(path, [sample(reward, index, **fields) for index, reward in enumerate(rewards)])
    return aged(path, age)


def write_steps(path: Path, steps: dict[int, Sequence[object]], *, age: float = OLD, **fields: Any) -> Path:
    """Write a dump of many batches."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [sample(r, i, step=step, **fields) for step, rewards in steps.items() for i, r in enumerate(rewards)]
    write_json_lines(path, lines)
    return aged(path, age)


def aged(path: Path, age: float) -> Path:
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def tick(
    source: Path | str, ledger: Path, *, run: str = "a", settings: Settings | None = None, **options: Any
) -> Outcome:
    """Recompute as a schedule does, with the live directory's rules."""
    return recompute([RunPlan((str(source),), settings or Settings(), run)], ledger, Options(wait=False, **options))


def ask(ledger: Path, statement: str) -> list[tuple[Any, ...]]:
    """Ask as any DuckDB client does: by the file, read-only."""
    with publication.opened(Layout(ledger)) as connection:
        return connection.execute(statement).fetchall()


def files(ledger: Path) -> dict[str, tuple[str, str]]:
    """Return state and reason of every source file, by its name."""
    return {
        Path(name).name: (state, why) for name, state, why in ask(ledger, "SELECT source, state, reason FROM sources")
    }


def codes(ledger: Path) -> list[str]:
    return [code for (code,) in ask(ledger, "SELECT code FROM findings ORDER BY code, source, step")]


def rewards(ledger: Path) -> dict[int, tuple[str, float]]:
    """Return state and episode reward of every train step."""
    rows = ask(
        ledger,
        "SELECT step, state, value FROM batches JOIN metrics USING (run, split, step) "
        "WHERE split = 'train' AND scope = 'batch' AND metric = 'episode_raw_reward' ORDER BY step",
    )
    return {step: (state, value) for step, state, value in rows}


def stored(ledger: Path) -> tuple[publication.Publication, Tables]:
    """Return the newest publication, and every relation that holds figures as its files do."""
    layout = Layout(ledger)
    newest = publication.current(layout)
    tables = {BatchRow.relation: newest.batches.select([name for name, *_ in BatchRow.columns()])}
    for table in SEGMENT_TABLES:
        columns = [name for name, *_ in table.columns()]
        parts = [segments.read_segment(layout, s, table.relation).select(columns).collect() for s in newest.segments]
        if parts:
            tables[table.relation] = pl.concat(parts)
    return newest, tables


def published(ledger: Path, relations: Sequence[str] = FIGURES) -> Tables:
    """Return relations as any DuckDB client finds them, sorted, without the time of publication."""
    by_name = {table.relation: table for table in PUBLISHED}
    with publication.opened(Layout(ledger)) as connection:
        frames = {name: pl.DataFrame(connection.sql(f"SELECT * FROM {name}")) for name in relations}
    return {
        name: frame.drop("published_at", "seen_at", strict=False).sort(by_name[name].grain)
        for name, frame in frames.items()
    }


def assert_same_figures(ledger: Path, other: Path) -> None:
    """Every relation that holds figures is the same in two ledgers, to the bit."""
    one, two = published(ledger), published(other)
    for name in FIGURES:
        assert bits(one[name]).equals(bits(two[name])), f"{name} differs:\n{one[name]}\n{two[name]}"


def bits(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with its floating-point numbers as their bits: 0.0 is not -0.0."""
    return frame.with_columns(pl.col(pl.Float64).reinterpret(dtype=pl.Int64))


def disagreements(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return where the relations of a ledger do not agree with one another."""
    found = []
    for what, statement in AGREEMENTS.items():
        rows = connection.execute(statement).fetchall()
        if rows:
            found.append(f"{what}: {rows[:3]}")
    return found


_KEY = "run, split, step"
AGREEMENTS = {
    "batches and samples": f"""
        SELECT {_KEY}, b.samples, s.n FROM batches b
        FULL JOIN (SELECT {_KEY}, count(*) AS n FROM samples GROUP BY ALL) s USING ({_KEY})
        WHERE b.samples IS DISTINCT FROM s.n""",
    "batches and prompt groups": f"""
        SELECT {_KEY}, b.prompt_groups, g.n, b.samples, g.samples FROM batches b
        FULL JOIN (SELECT {_KEY}, count(*) AS n, sum(samples) AS samples FROM prompt_groups GROUP BY ALL) g
        USING ({_KEY})
        WHERE (b.prompt_groups, b.samples) IS DISTINCT FROM (g.n, g.samples)""",
    "batches and rollouts": f"""
        SELECT {_KEY}, b.samples, r.samples FROM batches b
        FULL JOIN (SELECT {_KEY}, sum(samples) AS samples FROM rollouts GROUP BY ALL) r USING ({_KEY})
        WHERE b.samples IS DISTINCT FROM r.samples""",
    "batches and adapters": f"""
        SELECT {_KEY}, b.samples, b.rollouts, a.samples, a.rollouts FROM batches b
        FULL JOIN (SELECT {_KEY}, sum(samples) AS samples, sum(rollouts) AS rollouts FROM adapters GROUP BY ALL) a
        USING ({_KEY})
        WHERE (b.samples, b.rollouts) IS DISTINCT FROM (a.samples, a.rollouts)""",
    "batches and metrics": f"""
        SELECT {_KEY}, b.samples, b.scored_rollouts, m.samples, m.scored FROM batches b
        FULL JOIN (
            SELECT {_KEY}, max(value) FILTER (metric = 'num_training_samples') AS samples,
                   max(count) FILTER (metric = 'episode_raw_reward') AS scored
            FROM metrics WHERE scope = 'batch' GROUP BY ALL
        ) m USING ({_KEY})
        WHERE (b.samples, b.scored_rollouts) IS DISTINCT FROM (m.samples, m.scored)""",
    "metrics and samples": f"""
        SELECT {_KEY}, m.value, s.mean FROM (
            SELECT {_KEY}, value FROM metrics WHERE scope = 'batch' AND metric = 'row_mean_raw_reward'
        ) m
        FULL JOIN (SELECT {_KEY}, coalesce(avg(raw_reward), 0.0) AS mean FROM samples GROUP BY ALL) s USING ({_KEY})
        WHERE NOT coalesce(abs(m.value - s.mean) < 1e-9, false)""",
    "batches and their files": """
        SELECT b.run, b.source FROM batches b LEFT JOIN sources s USING (run, source) WHERE s.source IS NULL""",
    "one row a key": f"SELECT {_KEY} FROM batches GROUP BY ALL HAVING count(*) > 1",
}
