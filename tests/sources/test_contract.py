"""What breaks the contract is refused, in every format alike, and said so: file, row, field, value and what to do."""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipeline
from pipeline import RunPlan, Settings
from pipeline.recomputing import Options
from pipeline.sources import columnar, contract
from pipeline.sources.batch import BatchRead
from pipeline.sources.discovery import discover
from pipeline.sources.record_writers import frame, write_ipc, write_json_lines, write_parquet
from pipeline.sources.writers import write_torch_dump
from schemas.findings import CODES
from schemas.record import SampleRecord
from tests.strategies import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.findings import Finding

    Record = dict[str, Any]

AT_ONCE = Options(still_seconds=0)
ROWS, ROW = 1000, 700
ANY_FORMAT = ["pt", "jsonl", "parquet", "arrow"]
RECORD_FORMATS = ["jsonl", "parquet", "arrow"]
WRITERS: dict[str, Callable[[Path, Sequence[Record]], None]] = {
    "pt": lambda path, records: write_torch_dump(path, {"rollout_id": 0, "samples": list(records)}),
    "jsonl": write_json_lines,
    "jsonl.gz": partial(write_json_lines, compression="gzip"),
    "jsonl.zst": partial(write_json_lines, compression="zstd"),
    "parquet": write_parquet,
    "arrow": write_ipc,
}


def good_record(row: int = 0, **more: Any) -> Record:
    return {"reward": float(row % 3), "rollout_id": row, "response_length": 1, "loss_mask": [1], **more}


def read(path: Path) -> list[BatchRead]:
    return [batch for file in discover(str(path), "run").files for batch in pipeline.read(file)]


def findings_of(path: Path) -> list[Finding]:
    """The findings of a file that holds one batch, which has to be refused; each names the file, and what to do."""
    (batch,) = read(path)
    assert batch.refused
    for finding in batch.findings:
        assert finding.code in CODES
        assert finding.source == str(path)
        assert "; " in finding.message, finding.message
    return list(batch.findings)


def write_fault(path: Path, records: list[Record], field: str, value: object) -> None:
    """Write records in the format that the path's ending says, with a fault that only an odd column can hold."""
    ending = path.name.split(".", 1)[1]
    if ending in ("pt", "jsonl"):
        records[ROW][field] = value
        WRITERS[ending](path, records)
        return
    own = None if field in ("loss_mask", "response_length") else [record.pop(field, None) for record in records]
    column = own if own is not None and isinstance(value, int) else [None] * len(records)
    column[ROW] = value
    table = frame(records).with_columns(pl.Series(field, column))
    table.write_parquet(path) if ending == "parquet" else table.write_ipc(path)


# --- values -----------------------------------------------------------------------------------------------------------

MORE_FAULTS: list[tuple[str, Any]] = [
    ("rollout_id", 1.5),
    ("rollout_id", float("nan")),
    ("index", float("inf")),
    ("group_index", True),
    ("response_length", 2**70),
    ("loss_mask", [0.5]),
    ("loss_mask", [-1]),
    ("loss_mask", [2**63]),
    ("loss_mask", [2**62]),
    ("loss_mask", ["1"]),
    ("loss_mask", [[1]]),
    ("loss_mask", []),
    ("remove_sample", 1),
    ("remove_sample", "no"),
    ("status", 5),
    ("adapter", {"name": None, "slot": 3}),
    ("adapter", {"name": "north", "slot": 1.5}),
    ("adapter", {"name": "north", "slot": 2**63}),
]
ONLY_IN_RECORDS: list[tuple[str, Any]] = [
    ("run", 5),
    ("split", "test"),
    ("split", 1),
    ("step", 1.5),
    ("step", "0"),
    ("step", 2**63),
    ("prompt_group", 0.5),
    ("adapter_name", 3),
    ("adapter_slot", 3),
    ("trainable_tokens", -1),
    ("has_raw_reward", "yes"),
]


def described(findings: list[Finding]) -> list[tuple[str, int | None, str | None, str | None]]:
    return [(finding.code, finding.row, finding.field, finding.value) for finding in findings]


@pytest.mark.parametrize(("field", "value"), [*FAULTS, *MORE_FAULTS, *ONLY_IN_RECORDS], ids=str)
def test_a_faulty_value_is_named_in_every_format(tmp_path: Path, field: str, value: object) -> None:
    formats = RECORD_FORMATS if (field, value) in ONLY_IN_RECORDS else ANY_FORMAT
    found = {}
    for ending in formats:
        records = [good_record(row) for row in range(ROWS)]
        if (field, value) == ("response_length", None):
            records[ROW]["loss_mask"] = None
        path = tmp_path / f"0.{ending}"
        write_fault(path, records, field, value)

        found[ending] = described(findings_of(path))

    (finding,) = found["jsonl"]
    code, row, named, shown = finding
    assert (code, row) == ("mask_length" if value in ([], [1] * 50) else "invalid_value", ROW)
    assert named is not None
    assert named.split(".")[0] == ("adapter_name" if field == "adapter_slot" else field)
    assert shown or code == "mask_length" or field in ("adapter_slot", "response_length")
    assert found == {ending: [finding] for ending in formats}


@pytest.mark.parametrize("ending", ANY_FORMAT)
def test_every_problem_of_a_batch_is_listed(tmp_path: Path, ending: str) -> None:
    records = [good_record(row) for row in range(10)]
    records[2]["response_length"] = -1
    records[5]["loss_mask"] = [1, 1]
    records[7]["response_length"] = 2**40
    WRITERS[ending](tmp_path / f"0.{ending}", records)

    found = described(findings_of(tmp_path / f"0.{ending}"))

    assert found == [
        ("invalid_value", 2, "response_length", "-1"),
        ("mask_length", 5, "loss_mask", None),
        ("invalid_value", 7, "response_length", str(2**40)),
    ]


@pytest.mark.parametrize("ending", ANY_FORMAT)
def test_a_list_of_problems_has_an_end(tmp_path: Path, ending: str) -> None:
    WRITERS[ending](tmp_path / f"0.{ending}", [good_record(row, response_length=-1) for row in range(3000)])

    (batch,) = read(tmp_path / f"0.{ending}")

    assert [finding.row for finding in batch.findings[:1000]] == list(range(1000))
    assert [finding.code for finding in batch.findings[1000:]] == ["too_many_problems"]
    assert "2000 more" in batch.findings[-1].message


@pytest.mark.parametrize("ending", RECORD_FORMATS)
def test_rows_count_within_their_batch(tmp_path: Path, ending: str) -> None:
    records = [good_record(row, step=row % 3) for row in range(30)]
    records[16]["response_length"] = -1
    WRITERS[ending](tmp_path / f"samples.{ending}", records)

    batches = {batch.step: batch for batch in read(tmp_path / f"samples.{ending}")}

    assert {step: batch.refused for step, batch in batches.items()} == {0: False, 1: True, 2: False}
    assert [finding.row for finding in batches[1].findings] == [5]
    assert [batches[step].samples.height for step in (0, 2)] == [10, 10]


@pytest.mark.parametrize("ending", RECORD_FORMATS)
def test_explicit_groups_of_some_samples_only(tmp_path: Path, ending: str) -> None:
    records = [good_record(row, prompt_group=None if row in (4, 6) else 1) for row in range(8)]
    WRITERS[ending](tmp_path / f"0.{ending}", records)

    assert described(findings_of(tmp_path / f"0.{ending}")) == [("group_sizes", 4, "prompt_group", None)]


@pytest.mark.parametrize("sizes", [[2], [3, 1], [2, -1, 2], ["3"], 3, [1.5, 1.5], [True, 2], "3", [10**30]])
def test_group_sizes_that_do_not_fit(tmp_path: Path, sizes: object) -> None:
    payload = {"rollout_id": 0, "metadata": {"prompt_group_sizes": sizes}, "samples": [good_record()] * 3}
    write_torch_dump(tmp_path / "0.pt", payload)

    (finding,) = findings_of(tmp_path / "0.pt")

    assert (finding.code, finding.field) == ("group_sizes", "metadata.prompt_group_sizes")


@pytest.mark.parametrize("ending", ANY_FORMAT)
def test_no_step_anywhere(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"samples.{ending}"
    if ending == "pt":
        write_torch_dump(path, {"samples": [good_record()]})
    else:
        WRITERS[ending](path, [good_record()])

    (batch,) = read(path)

    assert [(finding.code, finding.source) for finding in batch.findings] == [("step_unknown", str(path))]


def test_a_step_that_contradicts_the_name(tmp_path: Path) -> None:
    WRITERS["pt"](tmp_path / "7.pt", [good_record()])

    assert described(findings_of(tmp_path / "7.pt")) == [("step_mismatch", None, "rollout_id", "0")]


@pytest.mark.parametrize("ending", RECORD_FORMATS)
def test_half_a_surrogate_pair_is_text_like_any_other(tmp_path: Path, ending: str) -> None:
    half = "\ud800"
    reward = {half: 1.0, "error": half}
    records = [good_record(reward=reward, metadata={"registration_id": half})]
    if ending == "jsonl":
        records[0] |= {"adapter": {"name": half, "slot": 0}, "status": half, "run": half}
    WRITERS[ending](tmp_path / f"0.{ending}", records)

    (batch,) = read(tmp_path / f"0.{ending}")

    (sample,) = batch.samples.rows(named=True)
    assert not batch.refused
    assert sample["registration_id"] == "\\ud800"
    assert {part["key"]: part["text"] for part in sample["reward_parts"]} == {"\\ud800": None, "error": "\\ud800"}
    if ending == "jsonl":
        assert (batch.run, sample["adapter_name"], sample["status"]) == ("\\ud800",) * 3


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("content", [b"", b"\0" * 200, b"garbage, and a lot of it" * 20, b"\xff" * 300])
def test_files_of_nothing_and_of_garbage(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"0.{ending}"
    path.write_bytes(content)

    (finding,) = findings_of(path)

    assert finding.code in ("unreadable_file", "unknown_format")


@pytest.mark.parametrize("ending", WRITERS)
def test_a_format_in_name_only(tmp_path: Path, ending: str) -> None:
    whole = tmp_path / "whole"
    WRITERS[ending](whole, [good_record(row) for row in range(10)])
    path = tmp_path / f"0.{ending}"
    path.write_bytes(whole.read_bytes()[:8] + b"and then something else entirely" * 9)

    (finding,) = findings_of(path)

    assert finding.code in ("unreadable_file", "torn_line")


WHOLE_FILES: dict[str, bytes] = {}


def whole_file(ending: str) -> bytes:
    """The bytes of a file with several hundred samples, written once."""
    if ending not in WHOLE_FILES:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "whole"
            WRITERS[ending](path, [good_record(row) for row in range(400)])
            WHOLE_FILES[ending] = path.read_bytes()
    return WHOLE_FILES[ending]


@pytest.mark.parametrize("ending", [ending for ending in WRITERS if ending != "jsonl"])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_that_is_cut_off_is_never_taken(ending: str, share: float) -> None:
    content = whole_file(ending)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"0.{ending}"
        path.write_bytes(content[: int(share * len(content))])

        (finding,) = findings_of(path)

    assert finding.code in ("unreadable_file", "unknown_format")


@given(share=st.floats(0, 1, exclude_max=True))
def test_json_lines_that_are_cut_off_are_taken_up_to_a_whole_line(share: float) -> None:
    content = whole_file("jsonl")[: int(share * len(whole_file("jsonl")))]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "0.jsonl"
        path.write_bytes(content)

        (batch,) = read(path)

    is_line_end = content.endswith((b"\n", b"}")) and content.count(b"{") == content.count(b"}")
    assert batch.refused == (not is_line_end)
    if is_line_end:
        assert batch.samples.height == content.count(b"{")
    else:
        assert [finding.code for finding in batch.findings] == ["torn_line" if content else "unreadable_file"]


def json_lines(path: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join(line + end for line in lines))
    return path


def line(**fields: Any) -> bytes:
    return json.dumps(good_record(**fields)).encode()


def test_a_torn_last_line_refuses_its_batch_only(tmp_path: Path) -> None:
    lines = [line(step=0), line(step=1), line(step=2), line(step=2)[:-5]]
    path = json_lines(tmp_path / "samples.jsonl", *lines)
    path.write_bytes(path.read_bytes()[:-1])

    batches = {batch.step: batch for batch in read(path)}

    assert {step: batch.refused for step, batch in batches.items()} == {0: False, 1: False, 2: True}
    (finding,) = batches[2].findings
    assert (finding.code, finding.source, finding.step) == ("torn_line", str(path), 2)
    assert "line 4" in finding.message


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b'{"reward": 1, "response_len', "not JSON"),
        (b"{'reward': 1}", "not JSON"),
        (b"\xc3{}", "not JSON"),
        (b'{"reward": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b"[1, 2]", "list"),
        (b'"text"', "str"),
        (b"3", "int"),
        (b"NaN", "float"),
        (b"null", "NoneType"),
    ],
    ids=range(9),
)
def test_a_bad_line_in_the_middle_refuses_the_file(tmp_path: Path, bad: bytes, says: str) -> None:
    # Which batch the line belonged to cannot be known.
    path = json_lines(tmp_path / "0.jsonl", line(), b"", bad, line(step=1))

    (finding,) = findings_of(path)

    assert finding.code == "bad_line"
    assert "line 3" in finding.message
    assert says in finding.message
    assert finding.value
    assert len(finding.value) <= 80
    assert len(finding.message) < 300


@pytest.mark.parametrize("digits", ["1" * 5000, "-" + "9" * 100_000])
def test_integers_of_thousands_of_digits(tmp_path: Path, digits: str) -> None:
    as_reward = f'{{"reward": {digits}, "response_length": 1}}\n'
    path = tmp_path / "0.jsonl"
    path.write_text(as_reward * 2)

    (batch,) = read(path)

    assert not batch.refused
    assert batch.samples["reward_value_state"].to_list() == ["inf", "inf"]

    path.write_text(as_reward + f'{{"rollout_id": {digits}, "response_length": 1}}\n')

    assert [row for _, row, _, _ in described(findings_of(path))] == [1]


@pytest.mark.parametrize("ending", RECORD_FORMATS)
@pytest.mark.parametrize("field", ["reward", "metadata"])
def test_text_with_integers_of_thousands_of_digits(tmp_path: Path, ending: str, field: str) -> None:
    text = "1" * 5000 if field == "reward" else '{"raw_reward": ' + "1" * 5000 + "}"
    path = tmp_path / f"0.{ending}"
    if ending == "jsonl":
        path.write_text(f'{{"response_length": 1, "{field}": {text}}}\n')
    else:
        column = "reward_json" if field == "reward" else field
        table = frame([{"response_length": 1}]).with_columns(pl.Series(column, [text]))
        table.write_parquet(path) if ending == "parquet" else table.write_ipc(path)

    (batch,) = read(path)

    assert batch.samples["reward_value_state" if field == "reward" else "raw_value_state"].to_list() == ["inf"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n  \n", b" \t\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_line_ends_blank_lines_and_byte_order_mark(tmp_path: Path, end: bytes, start: bytes) -> None:
    path = json_lines(tmp_path / "0.jsonl", *[line(row=row) for row in range(20)], end=end)
    path.write_bytes(start + path.read_bytes())

    (batch,) = read(path)

    assert not batch.findings
    assert batch.samples["rollout_id"].to_list() == list(range(20))


def test_a_last_line_without_its_end_is_a_line(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "0.jsonl", line(row=0), line(row=1))
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))

    (batch,) = read(path)

    assert not batch.refused
    assert batch.samples.height == 2


def test_literals_that_are_no_json_are_no_ids(tmp_path: Path) -> None:
    path = tmp_path / "0.jsonl"
    path.write_text('{"response_length": 1, "rollout_id": NaN}\n{"response_length": Infinity}\n')

    assert described(findings_of(path)) == [
        ("invalid_value", 0, "rollout_id", "nan"),
        ("invalid_value", 1, "response_length", "inf"),
    ]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_table_of_something_else(tmp_path: Path, ending: str) -> None:
    table = pl.DataFrame({"prompt": ["a"], "score": [1.0]})
    path = tmp_path / f"0.{ending}"
    table.write_parquet(path) if ending == "parquet" else table.write_ipc(path)

    (finding,) = findings_of(path)

    assert finding.code == "payload_shape"
    assert "prompt, score" in finding.message


@pytest.mark.parametrize(
    "content", ["[]", '{"samples": 3}', '{"rollout_data": {}}', '{"samples": [], "dp_shards": []}']
)
def test_a_torch_file_of_something_else(tmp_path: Path, content: str) -> None:
    write_torch_dump(tmp_path / "0.pt", json.loads(content))

    assert [finding.code for finding in findings_of(tmp_path / "0.pt")] == ["payload_shape"]


# --- what is around a refused batch -----------------------------------------------------------------------------------


def test_the_other_batches_go_on(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    for step, ending in enumerate(WRITERS):
        good = dumps / f"{step}.{ending}"
        if ending == "pt":
            write_torch_dump(good, {"rollout_id": step, "samples": [good_record()]})
        else:
            WRITERS[ending](good, [good_record()])
        cut = dumps / f"eval_{step}.{ending}"
        cut.write_bytes(whole_file(ending)[:-20])
        # Old enough not to be taken for a file that is still being written.
        os.utime(cut, (0, 0))
    ledger = tmp_path / "ledger"

    outcome = pipeline.recompute([RunPlan((str(dumps),), Settings(), "run")], ledger, AT_ONCE)

    assert outcome.refused == len(WRITERS)
    accepted = pipeline.sql("SELECT split, step, state FROM batches ORDER BY step", ledger).rows()
    assert accepted == [("train", step, "ok") for step in range(len(WRITERS))]
    refused = pipeline.sql("SELECT source, severity, split, step, message FROM findings ORDER BY step", ledger)
    assert refused["source"].to_list() == [str(dumps / f"eval_{step}.{ending}") for step, ending in enumerate(WRITERS)]
    assert refused.select("severity", "split", "step").rows() == [("error", "eval", step) for step in range(6)]


@pytest.mark.parametrize("ending", RECORD_FORMATS)
def test_two_files_that_claim_one_batch(tmp_path: Path, ending: str) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    for name, steps in (("a", [0, 1]), ("b", [1, 2])):
        WRITERS[ending](dumps / f"{name}.{ending}", [good_record(step=step) for step in steps])
    ledger = tmp_path / "ledger"

    outcome = pipeline.recompute([RunPlan((str(dumps),), Settings(), "run")], ledger, AT_ONCE)

    assert pipeline.sql("SELECT step FROM batches ORDER BY step", ledger)["step"].to_list() == [0, 2]
    assert [(finding.code, finding.step, Path(finding.source or "").name) for finding in outcome.findings] == [
        ("duplicate_batch", 1, f"a.{ending}"),
        ("duplicate_batch", 1, f"b.{ending}"),
    ]


@pytest.mark.parametrize("failing", [0, 1])
def test_rows_of_a_table_that_are_right_do_not_become_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    rows = 300_000
    table = pl.select(
        row=pl.int_range(rows),
        reward=pl.int_range(rows) % 7 / 6,
        rollout_id=pl.int_range(rows) // 3,
        group_index=pl.int_range(rows) // 24,
        response_length=pl.lit(2),
        loss_mask=pl.concat_list(pl.lit(1), pl.lit(0)),
        adapter=pl.struct(name=pl.lit("north"), slot=pl.int_range(rows) % 2),
        metadata=pl.struct(raw_reward=pl.int_range(rows) % 2),
        status=pl.lit("completed"),
    )
    if failing:
        table = table.with_columns(response_length=pl.when(pl.col("row") == ROW).then(3).otherwise(2))
    table.write_parquet(tmp_path / "0.parquet")
    checked: list[int] = []
    validate = SampleRecord.model_validate

    def counted_check(records: Sequence[Any]) -> tuple[list[SampleRecord | None], list[Finding]]:
        checked.append(len(records))
        return contract.check_records(records)

    def counted_validate(record: Any) -> SampleRecord:
        checked.append(1)
        return validate(record)

    monkeypatch.setattr(columnar, "check_records", counted_check)
    monkeypatch.setattr(SampleRecord, "model_validate", staticmethod(counted_validate))

    (batch,) = read(tmp_path / "0.parquet")

    assert batch.refused == bool(failing)
    assert sum(checked) <= 2 * failing
    assert [finding.row for finding in batch.findings] == [ROW] * failing
    if not failing:
        assert batch.samples.height == rows
