"""The same samples give the same figures, to the bit, whatever file they lie in and however its columns are typed."""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import pipeline
from pipeline import RunPlan, Settings
from pipeline.audit.query import connected
from pipeline.recomputing import Options
from pipeline.sources.discovery import discover
from pipeline.sources.record_writers import frame, write_ipc, write_json_lines, write_parquet
from pipeline.sources.writers import TorchAdapterRef, write_torch_dump
from schemas.tables import PUBLISHED
from tests.reference import Dump
from tests.strategies import accounts, dumps, runs
from tests.strategies import settings as drawn_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import duckdb

    from pipeline.stages.accounting import Engine

    Record = dict[str, Any]
    Write = Callable[[Path, list[Record]], None]

COMPARED = [table for table in PUBLISHED if table.relation != "sources"]
"""Every relation but the one that is about the files themselves."""
AT_ONCE = Options(still_seconds=0)
WRITERS: dict[str, Write] = {
    "jsonl": write_json_lines,
    "jsonl.gz": partial(write_json_lines, compression="gzip"),
    "jsonl.zst": partial(write_json_lines, compression="zstd"),
    "parquet": write_parquet,
    "arrow": write_ipc,
}
HALF = hypothesis_settings(max_examples=max(20, hypothesis_settings().max_examples // 2))
A_FEW = hypothesis_settings(max_examples=max(10, hypothesis_settings().max_examples // 4))
WHOLE_LEDGERS = hypothesis_settings(
    max_examples=max(3, hypothesis_settings().max_examples // 40),
    # A ledger takes a good part of a second: a failing one would be shrunk for minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def pooled_runs(**restrictions: Any) -> st.SearchStrategy[list[Dump]]:
    return runs(**restrictions).map(with_registrations)


def with_registrations(batches: list[Dump]) -> list[Dump]:
    """Every second sample with metadata says which registration of its adapter made it."""
    for dump in batches:
        for row, sample in enumerate(dump.samples):
            if row % 2 and sample["metadata"] is not None:
                sample["metadata"]["registration_id"] = f"{row:x}é"
    return batches


def records_of(dump: Dump) -> list[Record]:
    """The samples of a batch in a record format: each says where it belongs; block sizes become labels."""
    place = {"run": dump.run, "split": dump.split, "step": dump.step}
    records = [{**sample, **place} for sample in dump.samples]
    if dump.prompt_group_sizes is not None:
        labels = [block for block, size in enumerate(dump.prompt_group_sizes) for _ in range(size)]
        for record, label in zip(records, labels, strict=True):
            record["prompt_group"] = label
    return records


def write_trainer_dump(directory: Path, dump: Dump) -> Path:
    """Write a batch as the trainer does: one file, the adapters as objects of the trainer's class."""
    samples = [dict(sample) for sample in dump.samples]
    for sample in samples:
        if sample["adapter"] is not None:
            sample["adapter"] = TorchAdapterRef(**sample["adapter"])
    metadata = {} if dump.prompt_group_sizes is None else {"prompt_group_sizes": dump.prompt_group_sizes}
    path = directory / f"{'eval_' if dump.split == 'eval' else ''}{dump.step}.pt"
    write_torch_dump(path, {"rollout_id": dump.step, "metadata": metadata, "samples": samples})
    return path


def interleaved(batches: Sequence[Dump], order: random.Random) -> list[Record]:
    """Rows of different batches mixed, the order within each batch kept."""
    queues = [records_of(dump) for dump in batches]
    turns = [number for number, queue in enumerate(queues) for _ in queue]
    order.shuffle(turns)
    return [queues[number].pop(0) for number in turns]


Canonical = dict[tuple[str, str, int | None], tuple[bool, list[str]]]


def read_directory(directory: Path, run: str = "run") -> Canonical:
    """What the files of a directory hold, by batch, rows as text: equal text is equal to the bit, -0.0 included."""
    found: Canonical = {}
    for file in discover(str(directory), run).files:
        for batch in pipeline.read(file):
            assert not batch.findings, batch.findings
            assert batch.key not in found
            found[batch.key] = (batch.explicit_groups, texts(batch.samples))
    return found


def texts(table: pl.DataFrame) -> list[str]:
    return [repr(row) for row in table.iter_rows(named=True)]


def read_frame(table: pl.DataFrame) -> Canonical:
    """The same of a frame, by way of both columnar formats, which have to agree."""
    found = read_parquet(table)
    with tempfile.TemporaryDirectory() as directory:
        table.write_ipc(Path(directory) / "samples.arrow")
        assert read_directory(Path(directory)) == found
    return found


def read_parquet(table: pl.DataFrame) -> Canonical:
    with tempfile.TemporaryDirectory() as directory:
        table.write_parquet(Path(directory) / "samples.parquet")
        return read_directory(Path(directory))


def read_samples(table: pl.DataFrame) -> list[Record]:
    """The canonical samples of a frame that holds one batch."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "0.parquet"
        table.write_parquet(path)
        (batch,) = pipeline.read(*discover(str(path), "run").files)
    assert not batch.findings, batch.findings
    return batch.samples.rows(named=True)


Ledger = dict[str, list[str]]


def ledger_of(
    sources: Sequence[Path],
    settings: dict[str, Any],
    *,
    engine: Engine = "in-memory",
    chunk_rows: int = 2**18,
    runs: Sequence[str] = ("run",),
    together: bool = True,
) -> Ledger:
    """Every relation of the ledger that is made of some sources, rows as text, without what names files and times.

    Args:
        sources: what each run is made of; where there are several runs, one directory for each.
        settings: of every run.
        engine: Polars engine.
        chunk_rows: samples to account for at once.
        runs: names of the runs.
        together: in one recompute, or one for each run.
    """
    grouped = [sources] if len(runs) == 1 else [[source] for source in sources]
    plans = [RunPlan(tuple(map(str, own)), Settings(**settings), run) for run, own in zip(runs, grouped, strict=True)]
    options = replace(AT_ONCE, engine=engine, chunk_rows=chunk_rows)
    with tempfile.TemporaryDirectory() as directory:
        ledger = Path(directory)
        for part in [plans] if together else [[plan] for plan in plans]:
            pipeline.recompute(part, ledger, options)
        with connected(ledger) as connection:
            return {table.relation: relation_rows(connection, table.relation, table.grain) for table in COMPARED}


def relation_rows(connection: duckdb.DuckDBPyConnection, relation: str, grain: tuple[str, ...]) -> list[str]:
    hidden = {"batches": "EXCLUDE (source, format, published_at)", "findings": "EXCLUDE (source)"}.get(relation, "")
    order = ", ".join(f"{name} NULLS FIRST" for name in grain if name != "source")
    return texts(pl.DataFrame(connection.sql(f"SELECT * {hidden} FROM {relation} ORDER BY {order}")))


def directories(root: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        (root / name).mkdir()
        yield root / name


# --- one batch, any format --------------------------------------------------------------------------------------------


@given(batches=pooled_runs(empty=False), seed=st.integers(0, 999))
def test_every_format_gives_the_same_samples(batches: list[Dump], seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        trainer, *others = directories(root, ["trainer", *WRITERS])
        for dump in batches:
            write_trainer_dump(trainer, dump)
        records = interleaved(batches, random.Random(seed))
        for ending, (place, write) in zip(WRITERS, zip(others, WRITERS.values(), strict=True), strict=True):
            write(place / f"samples.{ending}", records)

        expected = read_directory(trainer)

        assert len(expected) == len(batches)
        for place in others:
            assert read_directory(place) == expected, place.name


@WHOLE_LEDGERS
@given(batches=pooled_runs(empty=False), chosen=drawn_settings(), seed=st.integers(0, 999))
def test_every_format_gives_the_same_ledger(batches: list[Dump], chosen: dict[str, Any], seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        sources = list(directories(Path(directory), ["trainer", *WRITERS]))
        for dump in batches:
            write_trainer_dump(sources[0], dump)
        for source, (ending, write) in zip(sources[1:], WRITERS.items(), strict=True):
            records = interleaved(batches, random.Random(seed))
            write(source / f"samples.{ending}", [{**record, "run": ending} for record in records])

        ledger = ledger_of(sources, chosen, runs=["trainer", *WRITERS])

    expected = of_run(ledger, "trainer")
    assert len(expected["batches"]) == len(batches) or chosen.get("sibling_rewards") == "shared"
    for ending in WRITERS:
        assert of_run(ledger, ending) == expected, ending


def of_run(ledger: Ledger, run: str) -> Ledger:
    start = f"{{'run': {run!r}, "
    return {
        relation: [row.removeprefix(start) for row in rows if row.startswith(start)]
        for relation, rows in ledger.items()
    }


@given(dump=dumps(empty=True, max_samples=0))
def test_an_empty_batch_of_a_trainer_is_a_batch(dump: Dump) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write_trainer_dump(Path(directory), dump)

        found = read_directory(Path(directory))

    assert [(key, rows) for key, (_, rows) in found.items()] == [(("run", dump.split, dump.step), [])]


@pytest.mark.parametrize("ending", WRITERS)
def test_a_file_is_known_by_its_content(tmp_path: Path, ending: str) -> None:
    WRITERS[ending](tmp_path / "7.jsonl", [{"reward": 1.0, "response_length": 1}])

    found = read_directory(tmp_path)

    assert list(found) == [("run", "train", 7)]


@pytest.mark.parametrize("ending", ["jsonl.gz", "jsonl.zst"])
def test_compressed_files_may_be_appended_to(tmp_path: Path, ending: str) -> None:
    parts = []
    for step in range(3):
        WRITERS[ending](tmp_path / "part", [{"reward": row, "response_length": 1, "step": step} for row in range(500)])
        parts.append((tmp_path / "part").read_bytes())
    (tmp_path / f"samples.{ending}").write_bytes(b"".join(parts))

    batches = [batch for file in discover(str(tmp_path), "run").files for batch in pipeline.read(file)]

    assert [(batch.step, batch.samples.height, batch.refused) for batch in batches] == [
        (step, 500, False) for step in range(3)
    ]


@pytest.mark.parametrize("ending", WRITERS)
def test_writers_are_deterministic(tmp_path: Path, ending: str) -> None:
    records = [{"reward": {"acc": row}, "response_length": row, "step": 0} for row in range(50)]
    for name in ("one", "two"):
        WRITERS[ending](tmp_path / name, records)

    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


# --- files, chunks, engines, runs -------------------------------------------------------------------------------------


@WHOLE_LEDGERS
@given(
    batches=pooled_runs(max_batches=6),
    chosen=drawn_settings(),
    order=st.randoms(use_true_random=False),
    engine=st.sampled_from(["in-memory", "streaming"]),
    chunk_rows=st.sampled_from([1, 2, 5, 100]),
)
def test_file_order_chunks_and_engine_change_nothing(
    batches: list[Dump], chosen: dict[str, Any], order: random.Random, engine: Engine, chunk_rows: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        dumped = [write_trainer_dump(Path(directory), dump) for dump in batches]
        shuffled = order.sample(dumped, len(dumped))

        expected = ledger_of([Path(directory)], chosen)

        assert ledger_of(shuffled, chosen, engine=engine, chunk_rows=chunk_rows) == expected


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_chunk_of_one_group_is_divided_like_any_other(tmp_path: Path, engine: Engine) -> None:
    # Where a divisor is the same for all rows of a chunk, Polars may multiply with its rounded reciprocal instead.
    sources = []
    for step in range(2):
        samples = [
            {"reward": reward, "rollout_id": row, "group_index": 0, "response_length": 1, "adapter": None}
            for row, reward in enumerate([1.0, 0.0, 1.0, 1.0, 0.3][: 5 - step])
        ]
        sources.append(write_trainer_dump(tmp_path, Dump("run", "train", step, samples)))

    assert ledger_of(sources, {}, engine=engine, chunk_rows=1) == ledger_of(sources, {})


@WHOLE_LEDGERS
@given(
    several=st.lists(pooled_runs(max_batches=2), min_size=2, max_size=2),
    chosen=drawn_settings(),
    chunk_rows=st.sampled_from([1, 100]),
)
def test_runs_together_are_runs_one_by_one(several: list[list[Dump]], chosen: dict[str, Any], chunk_rows: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        names = [f"run-{number}" for number in range(len(several))]
        places = list(directories(Path(directory), names))
        for place, batches in zip(places, several, strict=True):
            for dump in batches:
                write_trainer_dump(place, dump)

        together = ledger_of(places, chosen, runs=names, chunk_rows=chunk_rows)

        assert ledger_of(places, chosen, runs=names, together=False) == together


# --- columns ----------------------------------------------------------------------------------------------------------

INTEGERS = (
    "step",
    "rollout_id",
    "index",
    "group_index",
    "prompt_group",
    "response_length",
    "trainable_tokens",
    "adapter_slot",
)
EXACT_IN_FLOAT64 = 2**53


def bounds(column: pl.Series) -> tuple[int, int]:
    values = column.drop_nulls().to_list()
    return min(values, default=0), max(values, default=0)


def columns_shuffled(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    return table.select(order.sample(table.columns, table.width))


def nulls_untyped(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    empty = [column.name for column in table if column.null_count() == table.height]
    return table.with_columns(pl.Series(name, [None] * table.height, dtype=pl.Null()) for name in empty)


def nulls_left_out(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    return table.select(column for column in table if column.null_count() < table.height)


def unknown_columns(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    return table.with_columns(
        tokens=pl.Series([[1, 2]] * table.height),
        row=pl.lit(7),
        source=pl.lit("x"),
        reward_model=pl.struct(pl.lit(1).alias("a")),
        advantage=pl.lit(0.5),
    )


def integers_as_floats(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    exact = [
        name
        for name in INTEGERS
        if table.schema.get(name) == pl.Int64() and max(map(abs, bounds(table[name]))) <= EXACT_IN_FLOAT64
    ]
    masks = [name for name in ("loss_mask",) if table.schema.get(name) == pl.List(pl.Int64())]
    return table.with_columns(
        *(pl.col(name).cast(pl.Float64) for name in exact), *(pl.col(name).cast(pl.List(pl.Float64)) for name in masks)
    )


def integers_of_any_width(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    changed = []
    for name in INTEGERS:
        if table.schema.get(name) != pl.Int64():
            continue
        low, high = bounds(table[name])
        fitting: list[pl.DataType] = [pl.Int128()]
        fitting += [pl.Int8()] if low >= -128 and high <= 127 else []
        fitting += [pl.UInt64()] if low >= 0 else []
        changed.append(pl.col(name).cast(order.choice(fitting)))
    mask_types = [pl.Int8(), pl.UInt8(), pl.UInt64(), pl.Float32(), pl.Boolean()]
    if table.schema.get("loss_mask") == pl.List(pl.Int64()):
        changed.append(pl.col("loss_mask").cast(pl.List(order.choice(mask_types))))
    return table.with_columns(changed)


def texts_in_categories(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    changed = []
    for name in ("run", "split", "status", "metadata", "adapter_name"):
        if table.schema.get(name) == pl.String():
            categories = pl.Enum(table[name].drop_nulls().unique().sort())
            changed.append(pl.col(name).cast(order.choice([categories, pl.Categorical()])))
    return table.with_columns(changed)


def adapter_in_two_columns(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    if "adapter" not in table.columns or not isinstance(table.schema["adapter"], pl.Struct):
        return table
    parts = pl.col("adapter").struct
    return table.with_columns(adapter_name=parts.field("name"), adapter_slot=parts.field("slot")).drop("adapter")


def adapter_in_another_struct(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    if not isinstance(table.schema.get("adapter"), pl.Struct):
        return table
    parts = pl.col("adapter").struct
    # "No adapter" as a struct of nulls, which is what a struct column made of two columns holds.
    struct = pl.struct(parts.field("slot"), version=pl.lit(1), name=parts.field("name").cast(pl.Categorical()))
    return table.with_columns(adapter=struct)


def mask_of_one_width(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    if not isinstance(table.schema.get("loss_mask"), pl.List):
        return table
    widths = table["loss_mask"].list.len().drop_nulls().unique().to_list()
    inner = pl.Int64()
    if len(widths) != 1 or widths[0] == 0 or table.schema["loss_mask"] != pl.List(inner):
        return table
    return table.with_columns(pl.col("loss_mask").cast(pl.Array(inner, widths[0])))


def mask_as_its_sum(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    if table.schema.get("loss_mask") != pl.List(pl.Int64()):
        return table
    return table.with_columns(trainable_tokens=pl.col("loss_mask").list.sum()).drop("loss_mask")


def metadata_in_columns(table: pl.DataFrame, order: random.Random) -> pl.DataFrame:
    if table.schema.get("metadata") != pl.String():
        return table
    metadata = [json.loads(text) if text is not None else {} for text in table["metadata"]]
    raws = [entries.get("raw_reward") for entries in metadata]
    if not all(raw is None or isinstance(raw, float) for raw in raws):
        return table
    registrations = [{"registration_id": entries.get("registration_id")} for entries in metadata]
    return table.with_columns(
        pl.Series("metadata", registrations, dtype=pl.Struct({"registration_id": pl.String()})),
        pl.Series("raw_reward", raws, dtype=pl.Float64()),
        pl.Series("has_raw_reward", ["raw_reward" in entries for entries in metadata]),
    )


CHANGES = [
    columns_shuffled,
    nulls_untyped,
    nulls_left_out,
    unknown_columns,
    integers_as_floats,
    integers_of_any_width,
    texts_in_categories,
    adapter_in_two_columns,
    adapter_in_another_struct,
    mask_of_one_width,
    mask_as_its_sum,
    metadata_in_columns,
]


@HALF
@given(
    batches=st.one_of(pooled_runs(empty=False), pooled_runs(empty=False, columnar=True)),
    changes=st.lists(st.sampled_from(CHANGES), min_size=1, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_columns_may_be_typed_and_arranged_in_any_way(
    batches: list[Dump],
    changes: list[Callable[[pl.DataFrame, random.Random], pl.DataFrame]],
    order: random.Random,
) -> None:
    table = frame(interleaved(batches, order))
    changed = table
    for change in changes:
        changed = change(changed, order)

    assert read_frame(changed) == read_parquet(table)


def test_rewards_of_32_bits_keep_their_exact_value() -> None:
    table = pl.DataFrame({"reward": pl.Series([0.1, 0.7], dtype=pl.Float32()), "response_length": [1, 1]})

    found = read_samples(table)

    assert [row["reward_value"] for row in found] == [float(np.float32(0.1)), float(np.float32(0.7))]


@pytest.mark.parametrize(
    ("rewards", "values", "states"),
    [
        (pl.Series([3, None], dtype=pl.Int8()), [3.0, None], ["ok", "missing"]),
        (pl.Series([2**64 - 1, 2**53 + 1], dtype=pl.UInt64()), [2.0**64, 2.0**53], ["ok", "ok"]),
        (pl.Series([True, False]), [1.0, 0.0], ["ok", "ok"]),
        (pl.Series([None, None], dtype=pl.Null()), [None, None], ["missing", "missing"]),
        (pl.Series(["1.0", None]), [None, None], ["other", "missing"]),
        (pl.Series([[1.0], None]), [None, None], ["other", "missing"]),
        (pl.Series([float("-inf"), float("nan")]), [None, None], ["inf", "nan"]),
        (pl.Series([0.25, 1.0]).cast(pl.Decimal(10, 2)), [0.25, 1.0], ["ok", "ok"]),
        (pl.Series([b"1", None]), [None, None], ["other", "missing"]),
    ],
    ids=lambda value: str(value.dtype) if isinstance(value, pl.Series) else "",
)
def test_reward_columns_of_every_type(rewards: pl.Series, values: list[float | None], states: list[str]) -> None:
    found = read_samples(pl.DataFrame({"reward": rewards, "response_length": [1, 1]}))

    assert [row["reward_value"] for row in found] == values
    assert [row["reward_value_state"] for row in found] == states


@pytest.mark.parametrize(
    "raws",
    [
        pl.Series("raw_reward", [{"acc": 1.0}, {"acc": 0.0}]),
        pl.Series("metadata", [{"raw_reward": {"acc": 1.0}}, {"raw_reward": {"acc": 0.0}}]),
        pl.Series("metadata", ['{"raw_reward": {"acc": 1.0}}', '{"raw_reward": [1]}']),
    ],
    ids=["column", "struct", "text"],
)
def test_a_raw_reward_that_is_no_number_is_other(raws: pl.Series) -> None:
    found = read_samples(pl.DataFrame([raws, pl.Series("response_length", [1, 1])]))

    assert [(row["has_raw_reward"], row["raw_value"], row["raw_value_state"]) for row in found] == [
        (True, None, "other")
    ] * 2


@A_FEW
@given(batch=accounts(columnar=True), order=st.randoms(use_true_random=False))
def test_dictionaries_in_structs_are_dictionaries(batch: tuple[Dump, dict[str, Any]], order: random.Random) -> None:
    dump, _ = batch
    for sample in dump.samples:
        reward = sample["reward"]
        sample["reward"] = {"acc": reward, "error": order.choice(["timeout", "é" * 300])}
    records = records_of(dump)
    as_struct = frame(records).with_columns(
        pl.Series("reward", [record["reward"] for record in records]), pl.lit(None, pl.String).alias("reward_json")
    )

    assert read_frame(as_struct) == read_parquet(frame(records))


# --- faults that others met -------------------------------------------------------------------------------------------


def test_rewards_of_every_kind_in_one_file(tmp_path: Path) -> None:
    rewards: list[Any] = [1.0, {"acc": 1.0}, "1.0", True, None, 10**400, -(10**5000), float("nan")]
    records = [{"reward": reward, "response_length": 1} for reward in rewards[:6] + rewards[7:]]
    for ending, write in WRITERS.items():
        write(tmp_path / f"0.{ending}", records)
        figures = metrics_of(tmp_path / f"0.{ending}", reward_key="acc")

        assert figures["batch"] == {"samples": 7, "missing": 1, "nan": 1, "inf": 1, "other": 1}, ending
        assert figures["row_mean_raw_reward"] == (1.0, 3), ending


def metrics_of(source: Path, **settings: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        ledger = Path(directory)
        pipeline.recompute([RunPlan((str(source),), Settings(**settings), "run")], ledger, AT_ONCE)
        metrics = pipeline.sql("SELECT metric, value, count FROM metrics WHERE scope = 'batch'", ledger)
        states = ", ".join(f"reward_{state} AS {state}" for state in ("missing", "nan", "inf", "other"))
        (batch,) = pipeline.sql(f"SELECT samples, {states} FROM batches", ledger).rows(named=True)
    return {"batch": batch, **{metric: (value, count) for metric, value, count in metrics.iter_rows()}}


def test_literals_that_are_no_json_are_states(tmp_path: Path) -> None:
    lines = [f'{{"reward": {reward}, "response_length": 1}}\n' for reward in ("1.0", "NaN", "-Infinity")]
    (tmp_path / "0.jsonl").write_text("".join(lines))

    figures = metrics_of(tmp_path / "0.jsonl")

    assert figures["batch"] == {"samples": 3, "missing": 0, "nan": 1, "inf": 1, "other": 0}
    assert figures["row_mean_raw_reward"] == (1.0, 1)


@pytest.mark.parametrize("ending", WRITERS)
def test_a_key_that_comes_late_is_not_lost(tmp_path: Path, ending: str) -> None:
    late = [{"raw_reward": 0.5 if row % 2 else 1} if row >= 100 else {} for row in range(1000)]
    WRITERS[ending](tmp_path / "0", [{"reward": 1, "response_length": 1, "metadata": own} for own in late])

    (batch,) = pipeline.read(*discover(str(tmp_path / "0"), "run").files)

    assert batch.samples["has_raw_reward"].to_list() == [row >= 100 for row in range(1000)]
    assert batch.samples["raw_value"].to_list() == [own.get("raw_reward") for own in late]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_files_of_one_run_may_differ_in_their_columns(tmp_path: Path, order: list[int]) -> None:
    length = pl.lit(1).alias("response_length")
    drifting = [
        pl.DataFrame({"reward": [1, 0]}),
        pl.DataFrame({"reward": [0.5, 0.25]}),
        pl.DataFrame({"reward": pl.Series([None, None], dtype=pl.Null())}),
        pl.DataFrame({"adapter_name": ["north"], "reward": [1.0]}),
    ]
    sources = [tmp_path / f"{step}.parquet" for step in range(4)]
    for source, table in zip(sources, drifting, strict=True):
        table.with_columns(length).write_parquet(source)
    ledger = tmp_path / "ledger"

    pipeline.recompute([RunPlan(tuple(str(sources[step]) for step in order), Settings(), "run")], ledger, AT_ONCE)

    found = pipeline.sql("SELECT reward, adapter_name FROM samples ORDER BY step, row", ledger)
    assert found["reward"].to_list() == [1.0, 0.0, 0.5, 0.25, None, None, 1.0]
    assert found["reward"].mean() == pytest.approx(0.55)
    assert found["adapter_name"].to_list() == [None] * 6 + ["north"]


@pytest.mark.parametrize("ending", ["pt", *WRITERS])
def test_evaluation_dumps_are_kept_apart_and_steps_are_numbers(tmp_path: Path, ending: str) -> None:
    for name, reward in (("0", 0.0), ("eval_0", 1.0), ("9", 0.0), ("10", 0.0)):
        sample = {"reward": reward, "response_length": 1}
        if ending == "pt":
            payload = {"rollout_id": int(name.removeprefix("eval_")), "samples": [sample, sample]}
            write_torch_dump(tmp_path / f"{name}.pt", payload)
        else:
            WRITERS[ending](tmp_path / f"{name}.{ending}", [sample, sample])
    (tmp_path / "notes.pt").write_bytes(b"PK")
    ledger = tmp_path / "ledger"

    outcome = pipeline.recompute([RunPlan((str(tmp_path),), Settings(), "run")], ledger, AT_ONCE)

    wanted = "SELECT split, step, value FROM metrics WHERE metric = 'episode_raw_reward' AND scope = 'batch'"
    assert pipeline.sql(f"{wanted} ORDER BY split, step", ledger).rows() == [
        ("eval", 0, 1.0),
        ("train", 0, 0.0),
        ("train", 9, 0.0),
        ("train", 10, 0.0),
    ]
    assert [(finding.code, Path(finding.source or "").name) for finding in outcome.findings] == [
        ("foreign_name", "notes.pt")
    ]
