"""What is told beside the contract is the same in every format, and however its columns are typed."""

from __future__ import annotations

import json
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipeline
from pipeline.sources import column_extras, columnar
from pipeline.sources.discovery import discover
from pipeline.sources.extras import RAW_FIELDS, versions_of
from pipeline.sources.record_writers import SCHEMA, frame, write_ipc, write_json_lines, write_parquet
from pipeline.sources.writers import write_torch_dump
from schemas.canonical import CanonicalSample
from schemas.findings import shown
from schemas.frames import polars_schema
from tests.fixture_dumps import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    Record = dict[str, Any]

EXTRAS = list(polars_schema(CanonicalSample))[list(polars_schema(CanonicalSample)).index("status") + 1 :]
NOTHING = dict.fromkeys(EXTRAS)
WRITERS: dict[str, Callable[[Path, list[Record]], None]] = {
    "pt": lambda path, records: write_torch_dump(path, {"rollout_id": 0, "samples": records}),
    "jsonl": write_json_lines,
    "jsonl.zst": partial(write_json_lines, compression="zstd"),
    "parquet": write_parquet,
    "arrow": write_ipc,
}
REPETITIVE, VARIED = "so " * 5000, " ".join(map(str, range(4000)))
TOOL, USER = {"role": "tool", "content": "42"}, {"role": "user", "content": "6 times 7?"}


class Spans:
    """A call as the engine's own class gives it."""

    def __init__(self, *versions: str) -> None:
        self.spans = [Span(version) for version in versions]
        self.output_start = 2


class Span:
    def __init__(self, version: str) -> None:
        self.version, self.abs_start, self.abs_end = version, 2, 4


def good(row: int = 0, **more: Any) -> Record:
    return {"reward": 1.0, "rollout_id": row, "response_length": 1, **more}


def span(version: str) -> Record:
    return {"version": version, "abs_start": 2, "abs_end": 4}


def read(path: Path) -> pl.DataFrame:
    """The canonical samples of a file that holds one batch, about which there must be nothing to say."""
    (batch,) = (batch for file in discover(str(path), "run").files for batch in pipeline.read(file))
    assert not [finding for finding in batch.findings if finding.severity == "error"], batch.findings
    return batch.samples


def extras_of(path: Path) -> list[Record]:
    """What is told of every sample of a file, without what is null."""
    rows = read(path).select(EXTRAS).rows(named=True)
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def told(table: pl.DataFrame) -> list[Record]:
    """The same of a frame, by way of both columnar formats, which have to agree."""
    with tempfile.TemporaryDirectory() as directory:
        parquet, arrow = (Path(directory) / f"0.{ending}" for ending in ("parquet", "arrow"))
        table.write_parquet(parquet)
        table.write_ipc(arrow)
        found = extras_of(parquet)
        assert extras_of(arrow) == found
    return found


# --- every format -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"weight_versions": ["3", "4"]}, {"versions_seen": 2, "version_oldest": 3, "version_newest": 4}),
        ({"weight_versions": ["default"]}, {"versions_seen": 1}),
        ({"weight_versions": [9, 10]}, {"versions_seen": 2, "version_oldest": 9, "version_newest": 10}),
        ({"weight_versions": [3] * 3000}, {"versions_seen": 1, "version_oldest": 3, "version_newest": 3}),
        (
            {"weight_versions": [[span("1")], [span("2")]]},
            {"versions_seen": 2, "version_oldest": 1, "version_newest": 2},
        ),
        ({"weight_versions": [{"spans": [span("1")]}]}, {"versions_seen": 1, "version_oldest": 1, "version_newest": 1}),
        (
            {"weight_versions": [], "legacy_weight_versions": ["5"]},
            {"versions_seen": 1, "version_oldest": 5, "version_newest": 5},
        ),
        ({"weight_versions": []}, {}),
        (
            {"prefix_cache_info": {"cached_tokens": 3, "total_prompt_tokens": 9}},
            {"cached_tokens": 3, "prompt_tokens": 9},
        ),
        ({"prefix_cache_info": {"cached_tokens": 3.0}}, {"cached_tokens": 3}),
        (
            {"spec_info": {"spec_accept_token_num": 1, "spec_draft_token_num": 2, "completion_token_num": 4}},
            {"spec_accepted": 1, "spec_proposed": 2, "spec_tokens": 4},
        ),
        (
            {"spec_info": {"spec_num_correct_drafts": 1, "spec_num_proposed_drafts": 2, "spec_verify_ct": 3}},
            {"spec_accepted": 1, "spec_proposed": 2, "spec_verifications": 3},
        ),
        ({"non_generation_time": 2.5}, {"non_generation_time": 2.5}),
        ({"non_generation_time": 2}, {"non_generation_time": 2.0}),
        ({"metadata": {"messages": [USER, TOOL]}}, {"tool_calls": 1}),
        ({"metadata": {"messages": []}}, {"tool_calls": 0}),
        ({"response": ""}, {"is_repetitive": False}),
        ({"response": "short"}, {"is_repetitive": False}),
        ({"response": REPETITIVE}, {"is_repetitive": True}),
        ({"response": VARIED}, {"is_repetitive": False}),
        ({"response": "é" * 100_000}, {"is_repetitive": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_a_dump_tells_is_read(tmp_path: Path, ending: str, fields: Record, expected: Record) -> None:
    path = tmp_path / f"0.{ending}"
    WRITERS[ending](path, [good(0, **fields), good(1)])

    assert extras_of(path) == [expected, {}]


@pytest.mark.parametrize("ending", ["pt", "jsonl"])
def test_the_prompt_tells_of_tools_where_metadata_does_not(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"0.{ending}"
    prompts: list[Any] = ["text", [], [1, 2], [USER], [USER, TOOL]]
    records = [good(row, prompt=prompt) for row, prompt in enumerate(prompts)]
    WRITERS[ending](path, [*records, good(prompt=[TOOL], metadata={"messages": [USER]})])

    assert read(path)["tool_calls"].to_list() == [None, None, None, 0, 1, 0]


def test_objects_of_the_engine_are_read_and_not_built(tmp_path: Path) -> None:
    records = [good(weight_versions=[Spans("1"), Spans("3", "2")]), good(weight_versions=[[Span("7")]])]
    write_torch_dump(tmp_path / "0.pt", {"rollout_id": 0, "samples": records})

    found = extras_of(tmp_path / "0.pt")

    assert found == [
        {"versions_seen": 3, "version_oldest": 1, "version_newest": 3},
        {"versions_seen": 1, "version_oldest": 7, "version_newest": 7},
    ]


def test_a_dump_of_the_trainer_tells_all_of_it() -> None:
    found = read(FIXTURES / "miles" / "single_run" / "rollout_data" / "0.pt").select(EXTRAS).row(0, named=True)

    assert found == {
        "versions_seen": 1,
        "version_oldest": 0,
        "version_newest": 0,
        "cached_tokens": 1,
        "prompt_tokens": 9,
        "spec_accepted": 3,
        "spec_proposed": 5,
        "spec_verifications": 0,
        "spec_tokens": 0,
        "non_generation_time": 0.0,
        "tool_calls": None,
        "is_repetitive": False,
    }


@pytest.mark.parametrize("ending", ["pt", "jsonl"])
@pytest.mark.parametrize("field", RAW_FIELDS)
@pytest.mark.parametrize(
    "value",
    [5, -1, True, 2**63, 0.5, math.nan, "x", [5.5], [[[]]], [True], {"cached_tokens": -1, "spec_verify_ct": True}],
    ids=shown,
)
def test_a_malformed_field_refuses_nothing(tmp_path: Path, ending: str, field: str, value: Any) -> None:
    path = tmp_path / f"0.{ending}"
    WRITERS[ending](path, [good(**{field: value})])

    (found,) = extras_of(path)

    understood: dict[str, list[Any]] = {"non_generation_time": [5, 2**63, 0.5], "response": ["x"]}
    assert bool(found) == (value in understood.get(field, []) and not isinstance(value, bool))


VERSIONS = st.one_of(
    st.none(),
    st.lists(st.sampled_from(["3", "4", "11", "default", "", "é"]), max_size=3),
    st.lists(st.integers(-1, 3), max_size=3),
    st.lists(st.lists(st.sampled_from(["1", "2", "default"]).map(span), max_size=2), max_size=2),
    st.lists(st.just({"spans": [span("8")], "output_start": 1}), max_size=2),
    st.sampled_from([["3", True], "3", [2**63]]),
)
NUMBERS = st.sampled_from([0, 1, 2**40 - 1, 3.0, 2**40, -1, 0.5, True, "1", None, math.nan, math.inf, 10**400])
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "weight_versions": VERSIONS,
        "legacy_weight_versions": VERSIONS,
        "prefix_cache_info": st.one_of(
            st.sampled_from([None, [], "x"]),
            st.dictionaries(st.sampled_from(["cached_tokens", "total_prompt_tokens", "more"]), NUMBERS),
        ),
        "spec_info": st.dictionaries(
            st.sampled_from(
                ["spec_num_correct_drafts", "spec_accept_token_num", "spec_verify_ct", "completion_tokens"]
            ),
            NUMBERS,
        ),
        "non_generation_time": st.one_of(NUMBERS, st.floats()),
        "metadata": st.fixed_dictionaries({}, optional={"messages": st.lists(st.sampled_from([USER, TOOL, 5, {}]))}),
        "response": st.sampled_from([None, "", "ab", REPETITIVE, VARIED, "é" * 30_000, "中文" * 2000 + VARIED, 5]),
    },
)


@given(fields=st.lists(RECORDS, min_size=1, max_size=4))
def test_every_format_tells_the_same(fields: list[Record]) -> None:
    records = [good(row, **more) for row, more in enumerate(fields)]
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        for ending, write in WRITERS.items():
            path = Path(directory) / f"0.{ending}"
            write(path, records)
            found[ending] = read(path)
            path.unlink()

    for ending in WRITERS:
        assert found[ending].equals(found["pt"]), (ending, found[ending].select(EXTRAS), found["pt"].select(EXTRAS))


def test_the_columns_of_the_writer_hold_what_is_understood() -> None:
    spans = good(
        weight_versions=[[span("1")], [span("2")]], spec_info={"spec_draft_token_num": 7, "spec_verify_ct": -1}
    )
    empty = good(weight_versions=[True], prefix_cache_info={"cached_tokens": "x"}, response=5, non_generation_time=-1)

    found = frame([spans, empty]).select(list(SCHEMA)[-5:]).rows(named=True)

    assert found == [
        {
            "weight_versions": ["1", "2"],
            "prefix_cache_info": None,
            "spec_info": {
                "spec_num_correct_drafts": None,
                "spec_num_proposed_drafts": 7,
                "spec_verify_ct": None,
                "completion_tokens": None,
            },
            "non_generation_time": None,
            "response": None,
        },
        dict.fromkeys(list(SCHEMA)[-5:]),
    ]


# --- columns of any type ----------------------------------------------------------------------------------------------


def table(rows: int, **columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"reward": [1.0] * rows, "response_length": [1] * rows}).with_columns(**columns)


@pytest.mark.parametrize(
    "dtype",
    [pl.List(pl.String()), pl.List(pl.Categorical()), pl.List(pl.Int8()), pl.List(pl.Float64()), pl.List(pl.UInt64())],
    ids=str,
)
def test_versions_of_any_type(dtype: pl.DataType) -> None:
    values = [["3", "4"], ["3", None], [], None]
    versions = pl.Series(values, dtype=pl.List(pl.String()))
    if dtype.inner.is_numeric():  # type: ignore[attr-defined]
        versions = versions.cast(pl.List(pl.Int64()))

    found = told(table(4, weight_versions=versions.cast(dtype)))

    both = {"versions_seen": 2, "version_oldest": 3, "version_newest": 4}
    assert found == [both, {"versions_seen": 1, "version_oldest": 3, "version_newest": 3}, {}, {}]


@pytest.mark.parametrize(
    "values",
    [
        [[[span("3")], [span("4"), None]], [[], None], [], None],
        [[{"spans": [span("3"), span("4")], "start": 1}], [{"spans": [], "start": 1}], [None], None],
        [[span("3"), span("4")], [{"version": None}], [], None],
        [["3", "4"], [None], [], None],
    ],
    ids=["spans", "calls", "bare spans", "texts"],
)
def test_versions_of_any_shape(values: list[Any]) -> None:
    legacy = pl.Series([["9"], None, ["5"], ["6", "x"]])

    found = told(table(4, weight_versions=pl.Series(values)))
    with_legacy = told(table(4, weight_versions=pl.Series(values), legacy_weight_versions=legacy))

    both = {"versions_seen": 2, "version_oldest": 3, "version_newest": 4}
    older = [{"versions_seen": 1, "version_oldest": 5, "version_newest": 5}]
    older += [{"versions_seen": 2, "version_oldest": 6, "version_newest": 6}]
    assert found == [both, {}, {}, {}]
    assert with_legacy == [both, {}, *older]
    assert told(table(4, legacy_weight_versions=pl.Series(values))) == found


@given(versions=st.lists(st.one_of(st.none(), st.lists(st.lists(st.sampled_from(["1", "07", "x", None])))), max_size=6))
def test_versions_of_spans_are_those_that_python_finds(versions: list[Any]) -> None:
    spans = [calls and [[span(name) for name in call] for call in calls] for calls in versions]
    dtype = pl.List(pl.List(pl.Struct({"version": pl.String(), "abs_start": pl.Int64(), "abs_end": pl.Int64()})))
    types = {"weight_versions": dtype}
    lazy = pl.DataFrame({"weight_versions": pl.Series(spans, dtype=dtype)}).lazy()

    found = lazy.with_columns(**column_extras.parsed(types)).select(**column_extras.read(types)).collect()

    assert found.rows() == list(map(versions_of, spans))


@pytest.mark.parametrize("as_text", [True, False])
def test_counts_in_structs_and_in_json_text(as_text: bool) -> None:
    caches = [
        {"cached_tokens": 3, "total_prompt_tokens": 9},
        {"cached_tokens": -1},
        {"total_prompt_tokens": 2**40},
        None,
    ]
    drafts = [
        {"spec_accept_token_num": 1.0, "spec_num_correct_drafts": None, "completion_token_num": 4.0},
        {"spec_accept_token_num": 1.0, "spec_num_correct_drafts": 2.0, "completion_token_num": 0.5},
        {"spec_accept_token_num": 1.0, "spec_num_correct_drafts": -2.0, "completion_token_num": math.nan},
        None,
    ]
    if as_text:
        table_of = table(4, prefix_cache_info=as_json(caches), spec_info=as_json(drafts).cast(pl.Categorical()))
    else:
        table_of = table(4, prefix_cache_info=pl.Series(caches), spec_info=pl.Series(drafts))

    found = told(table_of)

    assert found == [
        {"cached_tokens": 3, "prompt_tokens": 9, "spec_accepted": 1, "spec_tokens": 4},
        {"spec_accepted": 2},
        {},
        {},
    ]


def as_json(values: list[Any]) -> pl.Series:
    return pl.Series([None if value is None else json.dumps(value) for value in values])


def test_json_text_that_is_none_tells_nothing() -> None:
    texts = ["{", "[]", "5", '{"cached_tokens": ' + "9" * 5000 + "}", "[" * 100_000]

    assert told(table(5, prefix_cache_info=pl.Series(texts), spec_info=pl.Series(texts))) == [{}] * 5


@pytest.mark.parametrize("dtype", [pl.Float64(), pl.Float32(), pl.Int64(), pl.UInt8(), pl.Int128(), pl.Decimal(9, 2)])
def test_seconds_of_any_type(dtype: pl.DataType) -> None:
    assert told(table(2, non_generation_time=pl.Series([2, None]).cast(dtype))) == [{"non_generation_time": 2.0}, {}]


def test_seconds_are_finite_and_not_negative() -> None:
    found = told(table(5, non_generation_time=pl.Series([math.nan, math.inf, -1.0, -0.0, 0.5])))

    assert [repr(row.get("non_generation_time")) for row in found] == ["None", "None", "None", "0.0", "0.5"]


def test_responses_in_categories() -> None:
    texts = pl.Series([REPETITIVE, VARIED, "", None], dtype=pl.Categorical())

    assert told(table(4, response=texts)) == [{"is_repetitive": flag} for flag in (True, False, False)] + [{}]


@pytest.mark.parametrize("metadata_as_text", [True, False])
def test_messages_in_structs(metadata_as_text: bool) -> None:
    metadata = [{"messages": [USER, TOOL, None]}, {"messages": []}, {"messages": None}, None]
    prompts = pl.Series([[TOOL, TOOL], [TOOL], [USER, None], []], dtype=pl.List(pl.Struct({"role": pl.String()})))
    told_of = as_json(metadata) if metadata_as_text else pl.Series(metadata)

    with_prompts = told(table(4, metadata=told_of, prompt=prompts))

    assert with_prompts == [{"tool_calls": 1}, {"tool_calls": 0}, {"tool_calls": 0}, {}]
    assert told(table(4, metadata=told_of)) == [{"tool_calls": 1}, {"tool_calls": 0}, {}, {}]
    assert told(table(4, prompt=prompts)) == [{"tool_calls": 2}, {"tool_calls": 1}, {"tool_calls": 0}, {}]


def test_messages_without_a_role_are_of_no_tool() -> None:
    messages = pl.Series([[{"content": "tool"}]])

    assert told(table(1, metadata=pl.struct(messages=messages.implode()).first())) == [{"tool_calls": 0}]
    assert told(table(1, prompt=messages)) == [{"tool_calls": 0}]
    assert told(table(1, metadata=pl.struct(pl.lit(pl.Series([["tool"]])).alias("messages")))) == [{"tool_calls": 0}]


ODD: list[pl.Series] = [
    pl.Series([None, None], dtype=pl.Null()),
    pl.Series([True, False]),
    pl.Series([b"a", b"b"]),
    pl.Series(["tool", "3"]),
    pl.Series([[True], [False]]),
    pl.Series([[None], []], dtype=pl.List(pl.Null())),
    pl.Series([[b"a"], []]),
    pl.Series([[[["3"]]], []]),
    pl.Series([{"role": 5, "spans": 1}, {"role": 6, "spans": None}]),
    pl.Series([[{"role": 5, "spans": 1}], [{"role": 6, "spans": 2}]]),
    pl.Series([0, 1]).cast(pl.Date()),
    pl.Series([[0], [1]]).cast(pl.List(pl.Duration("us"))),
    pl.Series([{"cached_tokens": "1", "spec_verify_ct": True}, {"cached_tokens": "", "spec_verify_ct": None}]),
]


@pytest.mark.parametrize("field", RAW_FIELDS)
@pytest.mark.parametrize("column", ODD, ids=lambda column: str(column.dtype))
def test_a_column_of_an_odd_type_tells_nothing(field: str, column: pl.Series) -> None:
    expected: list[Record] = [{}, {}]
    if field == "response" and column.dtype == pl.String():
        expected = [{"is_repetitive": False}] * 2
    elif field == "prompt" and column.dtype.base_type() is pl.List and isinstance(column.dtype.inner, pl.Struct):  # type: ignore[attr-defined]
        expected = [{"tool_calls": 0}] * 2

    assert told(table(2, **{field: column})) == expected


def test_arrays_of_fixed_width() -> None:
    versions = pl.Series([["3", "4"], ["5", "5"]]).cast(pl.Array(pl.String(), 2))
    prompts = pl.Series([[TOOL, USER], [TOOL, TOOL]]).list.to_array(2)

    found = told(table(2, weight_versions=versions, prompt=prompts))

    assert [list(row.values()) for row in found] == [[2, 3, 4, 1], [1, 5, 5, 2]]


def test_columns_that_are_not_there_cost_nothing() -> None:
    assert column_extras.parsed({}) == column_extras.read({}) == column_extras.canonical({}, {}) == {}


def test_a_file_of_prompts_is_no_file_of_samples(tmp_path: Path) -> None:
    pl.DataFrame({"prompt": ["a"], "response": ["b"]}).write_parquet(tmp_path / "0.parquet")

    (batch,) = (batch for file in discover(str(tmp_path), "run").files for batch in pipeline.read(file))

    assert [finding.code for finding in batch.findings] == ["payload_shape"]


# --- many rows --------------------------------------------------------------------------------------------------------

ROWS = 50_000


def many_rows() -> pl.DataFrame:
    """Rows of three steps, mixed, each with a response of its own length and a version of its own."""
    numbers = pl.int_range(ROWS, eager=True)
    return pl.DataFrame(
        {
            "step": numbers % 3,
            "rollout_id": numbers,
            "reward": numbers.cast(pl.Float64),
            "response_length": numbers,
            "weight_versions": numbers.cast(pl.String).reshape((ROWS, 1)).cast(pl.List(pl.String())),
            "response": ["so " * (4000 if number % 1000 == 7 else 3) for number in numbers],
        }
    )


@pytest.mark.parametrize("rows_at_once", [2**20, 20_000])
def test_rows_keep_their_order_and_their_extras(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(columnar, "_ROWS_AT_ONCE", rows_at_once)
    many_rows().write_parquet(tmp_path / "samples.parquet", row_group_size=1000)
    (source,) = discover(str(tmp_path), "run").files

    batches = {batch.step: batch.samples for batch in columnar.read_parquet(source)}

    assert sorted(step for step in batches if step is not None) == [0, 1, 2]
    for step, samples in batches.items():
        assert samples["rollout_id"].to_list() == list(range(step or 0, ROWS, 3))
        assert samples["version_newest"].to_list() == samples["rollout_id"].to_list()
        assert samples["is_repetitive"].to_list() == [number % 1000 == 7 for number in samples["rollout_id"]]
