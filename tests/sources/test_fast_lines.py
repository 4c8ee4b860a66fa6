"""Reading only the fields that are needed tells what reading all of a line with `json` tells, of every line.

The oracle is the tolerant path alone: `json.loads` for every line.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pipeline
from pipeline.sources import json_fields, json_lines
from pipeline.sources.batch import SourceFile
from pipeline.sources.contract import canonical_columns, check_records
from pipeline.sources.json_fields import fields
from pipeline.sources.json_text import parse
from schemas.record import SampleRecord, summarise_mask

if TYPE_CHECKING:
    from collections.abc import Sequence

GOOD: dict[str, Any] = {"reward": 1.5, "response_length": 3, "step": 7, "loss_mask": [0, 1, 1], "response": "so"}
UNNAMED = ["tokens", "rollout_log_probs", "", "x", "stepp", "Reward", "metadata.raw_reward", "é", "😀", "\x7f"]
SHORTENED = {"loss_mask", "prompt", "response"}


# --- both ways --------------------------------------------------------------------------------------------------------


def read_bytes(content: bytes, *, step: int | None = 7) -> list[Any]:
    """Everything that a file's batches say, as text: equal text is equal to the bit."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.jsonl"
        path.write_bytes(content)
        found = []
        for batch in pipeline.read(SourceFile(path, "run", step=step, format="jsonl")):
            findings = [repr(finding).replace(directory, "") for finding in batch.findings]
            rows = [repr(row) for row in batch.samples.iter_rows(named=True)]
            found.append((batch.key, batch.explicit_groups, batch.refused, findings, rows, batch.samples.schema))
        return found


def both_ways(content: bytes, **chosen: Any) -> tuple[list[Any], list[Any]]:
    fast = read_bytes(content, **chosen)
    with patch.object(json_lines, "fields", return_value=None):
        tolerant = read_bytes(content, **chosen)
    return fast, tolerant


def assert_same(content: bytes, **chosen: Any) -> None:
    fast, tolerant = both_ways(content, **chosen)
    assert fast == tolerant


def outcome(record: Any) -> str:
    """What the contract makes of a record, as text."""
    (checked,), findings = check_records([record])
    return repr((canonical_columns([checked]) if checked is not None else None, findings))


def assert_line(text: bytes) -> bool:
    """Whether the line was taken without `json`; then it says the same, and `json` takes it too."""
    found = fields(text)
    if found is None:
        return False
    whole = parse(text)
    assert isinstance(whole, dict)
    wanted = {name: whole[name] for name in SampleRecord.model_fields if name in whole}
    assert found.keys() == wanted.keys()
    for name in wanted.keys() - SHORTENED:
        assert repr(found[name]) == repr(wanted[name])
    assert outcome(found) == outcome(whole)
    return True


# --- lines ------------------------------------------------------------------------------------------------------------

WORDS = ["", "a", "NaN", '"reward": 4', '{"step": 9}', "\\", '"', "\x00", "\n", "\x7f", "é", "\u2028", "😀", "\ud800"]
NUMBERS = ["0", "-0", "1", "-1", "0.0", "-0.0", "1e5", "1E+05", "2e-3", "1e400", "-1e999", "0.1", "5e-324", "1.5"]
ODD_NUMBERS = ["NaN", "Infinity", "-Infinity", "9007199254740993.0", "18446744073709551616", "-9223372036854775809"]
LONG_NUMBERS = [
    "9" * 400,
    "9" * 4300,
    "9" * 4301,
    "-" + "1" * 5000,
    "1" * 400 + ".5",
    "0." + "3" * 999,
    "1e" + "9" * 30,
]
NO_NUMBERS = ["01", "-", "1.", ".5", "+1", "00", "-01", "1e", "1e+", "1.e5", "0x1", "1_0", "nan", "inf", "-NaN", "1 2"]
SPACES = st.sampled_from(["", "", "", " ", "\t", "\r", "  "])


def written(text: str, style: int) -> str:
    """A JSON string in one of the ways to write it: all escaped, escaped where it is not ASCII, as it is."""
    if style == 0:
        units = text.encode("utf-16-be", "surrogatepass")
        return '"' + "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2)) + '"'
    return json.dumps(text, ensure_ascii=style == 1)


def strings() -> st.SearchStrategy[str]:
    return st.builds(written, st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), st.integers(0, 2))


def numbers() -> st.SearchStrategy[str]:
    common = st.sampled_from(NUMBERS)
    drawn = st.one_of(st.floats().map(json.dumps), st.integers().map(str), st.from_regex(r"\A-?[0-9.eE+]{1,30}\Z"))
    return st.one_of(common, common, drawn, st.sampled_from(ODD_NUMBERS), st.sampled_from(LONG_NUMBERS))


def joined(opening: str, items: Sequence[str], closing: str, space: str) -> str:
    return opening + space + f"{space},".join(items) + space + closing


def entries(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda key, before, after, value: key + before + ":" + after + value, keys, SPACES, SPACES, values)


def json_texts() -> st.SearchStrategy[str]:
    scalars = st.one_of(numbers(), strings(), st.sampled_from(["null", "true", "false"]))
    keys = st.builds(
        written, st.sampled_from([*SampleRecord.model_fields, "raw_reward", "name", "x"]), st.integers(0, 2)
    )
    return st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.builds(joined, st.just("["), st.lists(inner, max_size=4), st.just("]"), SPACES),
            st.builds(joined, st.just("{"), st.lists(entries(keys, inner), max_size=4), st.just("}"), SPACES),
        ),
        max_leaves=6,
    )


def masks() -> st.SearchStrategy[str]:
    plain = st.lists(st.sampled_from(["0", "1"]), min_size=3, max_size=3)
    mixed = st.lists(
        st.sampled_from(["0", "1", "-0", "0.0", "1.0", "true", "false", "2", "-1", "null", '"1"']), max_size=4
    )
    return st.builds(joined, st.just("["), st.one_of(plain, mixed), st.just("]"), SPACES)


def lines() -> st.SearchStrategy[bytes]:
    """Objects with a good record's fields, each perhaps twice and perhaps of something else, and fields of no name."""
    names = st.sampled_from([*SampleRecord.model_fields, *UNNAMED, *SHORTENED])
    keys = st.builds(written, names, st.sampled_from([1, 1, 1, 2, 0]))
    any_field = entries(keys, json_texts())
    mask = entries(st.just('"loss_mask"'), masks())
    good = st.sampled_from([f'"{name}": {json.dumps(value)}' for name, value in GOOD.items()])
    length = st.just('"response_length": 3')
    step = st.sampled_from(['"step": 7', '"step": 8.0', '"step": 9', '"split": "eval"', '"run": "other"'])
    pairs = st.lists(st.one_of(good, good, any_field, mask, step), max_size=7)
    built = st.builds(lambda some, one, space: joined("{", [one, *some], "}", space), pairs, length, SPACES)
    return built.map(lambda text: text.encode("utf-8", "surrogatepass"))


PIECES = [
    *(bytes([byte]) for byte in b'{}[]",:\\0129-+.eEuNItn \t\r\x00\x1f\x0b\x7f\x80\xc3\xff'),
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
]
PIECES += [
    b"NaN",
    b"Infinity",
    b"\\u",
    b"\\ud800",
    b"\\q",
    b"null",
    b",,",
    b'"reward":',
    b"\xc2\xa0",
    b"\xc0\x80",
    b"//",
]
PIECES += [number.encode() for number in NO_NUMBERS]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    text = draw(lines())
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.sampled_from([0, 0, 1, 2]))
        text = text[:at] + draw(st.sampled_from(PIECES)) + text[at + cut :]
    return text if draw(st.integers(0, 9)) else text[: draw(st.integers(0, len(text)))]


# --- every line -------------------------------------------------------------------------------------------------------


@given(mutated())
def test_a_line_that_is_taken_is_read_as_json_reads_it(text: bytes) -> None:
    assert_line(text)


@given(
    st.text('{}[]":,0123456789.eE+-\\u naftlrsreward', max_size=24).map(lambda some: f'{{"reward":{some}}}'.encode())
)
def test_a_line_of_anything_is_read_as_json_reads_it(text: bytes) -> None:
    assert_line(text)


@given(st.lists(st.one_of(lines(), mutated()), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\n \n"]), st.booleans())
def test_files_say_the_same(some: list[bytes], end: bytes, is_torn: bool) -> None:
    content = b"".join(line + end for line in some)
    assert_same(content[: -len(end) - 1] if is_torn else content)


@given(st.lists(st.one_of(lines(), mutated()), max_size=9), st.integers(1, 3), st.integers(1, 400), st.integers(0, 99))
def test_files_of_several_chunks_say_the_same(some: list[bytes], at_once: int, size: int, cut: int) -> None:
    content = b"\n".join(some)
    with patch.object(json_lines, "_LINES_AT_ONCE", at_once), patch.object(json_lines, "_BYTES_AT_ONCE", size):
        assert_same(content[: max(0, len(content) - cut)])


@given(st.lists(numbers(), min_size=1, max_size=5), st.sampled_from(PIECES), st.integers(0, 99), st.booleans())
def test_numbers_that_are_stepped_over_are_checked(some: list[str], piece: bytes, at: int, is_named: bool) -> None:
    inside = ", ".join(some).encode()
    inside = inside[: at % (len(inside) + 1)] + piece + inside[at % (len(inside) + 1) :]
    key = b"reward" if is_named else b"tokens"
    assert_line(b'{"response_length": 3, "%s": [%s]}' % (key, inside))


# --- by name ----------------------------------------------------------------------------------------------------------

TAKEN = {
    "literals": b'{"response_length":1,"reward":NaN,"metadata":{"raw_reward":-Infinity},"x":[NaN,Infinity]}',
    "twice": b'{"response_length":1,"reward":1,"step":1,"reward":2}',
    "twice, of two types": b'{"response_length":1,"reward":1,"reward":{"a":1,"b":2,"a":3}}',
    "twice, one escaped": b'{"response_length":1,"reward":1,"rew\\u0061rd":2}',
    "escaped and then not": b'{"response_length":1,"rew\\u0061rd":2,"reward":1}',
    "huge": b'{"response_length":1,"reward":123456789012345678901234567890,"x":18446744073709551616}',
    "4,300 digits": b'{"response_length":1,"reward":' + b"9" * 4300 + b"}",
    "overflow": b'{"response_length":1,"reward":1e400,"non_generation_time":-1e999}',
    "negative zero": b'{"response_length":1,"reward":-0.0,"step":-0}',
    "names inside": b'{"response_length":1,"x":{"reward":3,"step":4},"y":"\\"reward\\": 4","metadata":{"reward":5}}',
    "whitespace": b' \t{ "response_length"\r:\t1 , "reward" : 2 }\r',
    "no name": b'{"response_length":1,"":2,"reward":3}',
    "all escapes": b'{"response_length":1,"status":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\\u0000"}',
    "unicode": '{"response_length":1,"status":"é😀\u2028\x7f","run":"ü"}'.encode(),
    "mask of bools": b'{"loss_mask":[true,false,1,0.0,-0.0,1.0]}',
    "mask of others": b'{"loss_mask":[2,0,3]}',
    "mask with a negative": b'{"loss_mask":[1,-1]}',
    "mask of NaN": b'{"loss_mask":[1,NaN]}',
    "mask nested": b'{"loss_mask":[[1],0]}',
    "mask empty": b'{"loss_mask":[]}',
    "mask null": b'{"loss_mask":null,"response_length":1}',
    "mask of the wrong length": b'{"loss_mask":[1,1],"response_length":1}',
    "mask no list": b'{"loss_mask":{"0":1}}',
    "absurd mask": b'{"loss_mask":[1,1099511627776]}',
    "nothing": b"{}",
    "wrong types": b'{"response_length":"1","step":true,"run":3,"reward":"x","metadata":[1],"response":5,"prompt":6}',
    "conversation": b'{"response_length":1,"prompt":[{"role":"tool"},{"role":"user"}]}',
    "long response": b'{"response_length":1,"response":"' + b"ab" * 5001 + b'"}',
    "response of 10,000": b'{"response_length":1,"response":"' + b"ab" * 5000 + b'"}',
    "null response": b'{"response_length":1,"response":null,"prompt":null}',
    "versions": b'{"response_length":1,"weight_versions":["3",[{"version":4}],{"spans":[{"version":"5"}]}]}',
    "reward of 300 parts": json.dumps(
        {"response_length": 1, "reward": {f"k{n % 290}": n for n in range(300)}}
    ).encode(),
}
LEFT = {
    "half a pair": b'{"response_length":1,"reward":2,"status":"\\ud800"}',
    "half a pair, not named": b'{"response_length":1,"reward":2,"x":"\\udc00\\ud800"}',
    "surrogate bytes": b'{"response_length":1,"reward":2,"x":"\xed\xa0\x80"}',
    "byte order mark": b'\xef\xbb\xbf{"response_length":1,"reward":2}',
    "UTF-16": '{"response_length":1,"reward":2}'.encode("utf-16"),
    "4,301 digits": b'{"response_length":1,"reward":' + b"9" * 4301 + b"}",
    "5,000 digits, not named": b'{"response_length":1,"reward":2,"x":-' + b"9" * 5000 + b"}",
    "deep": b'{"response_length":1,"reward":2,"x":' + b"[" * 250 + b"]" * 250 + b"}",
    "too deep": b'{"response_length":1,"reward":2,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "list": b"[1]",
    "text": b'"reward"',
    "null": b"null",
    "literal": b"NaN",
    "two": b'{"response_length":1}{"response_length":1}',
    "tail": b'{"response_length":1} x',
    "cut": b'{"response_length":1,"rewa',
    "control character": b'{"response_length":1,"x":"\x01"}',
    "tab": b'{"response_length":1,"x":"\t"}',
    "zero byte": b'{"response_length":1,"\x00":1}',
    "bad escape": b'{"response_length":1,"x":"\\q"}',
    "bad unicode escape": b'{"response_length":1,"x":"\\u12g4"}',
    "bad UTF-8": b'{"response_length":1,"x":"\xff"}',
    "overlong UTF-8": b'{"response_length":1,"x":"\xc0\x80"}',
    "comma": b'{"response_length":1,}',
    "comma in a list": b'{"response_length":1,"x":[1,]}',
    "no quotes": b"{response_length:1}",
    "other quotes": b"{'response_length':1}",
    "vertical tab": b'\x0b{"response_length":1}',
    "no-break space": b'{"response_length":\xc2\xa01}',
    "comment": b'{"response_length":/**/1}',
} | {f"no number {text}": b'{"response_length":1,"x":[%s]}' % text.encode() for text in NO_NUMBERS}


@pytest.mark.parametrize("name", TAKEN)
def test_lines_that_are_taken(name: str) -> None:
    assert assert_line(TAKEN[name])
    assert_same(TAKEN[name] + b"\n")
    assert_same(TAKEN[name] + b"\r\n" + json.dumps(GOOD).encode())
    assert_same(TAKEN[name], step=None)


@pytest.mark.parametrize("name", LEFT)
def test_lines_that_are_left_to_json(name: str) -> None:
    assert fields(LEFT[name]) is None
    good = json.dumps(GOOD).encode() + b"\n"
    assert_same(LEFT[name] + b"\n")
    assert_same(good + LEFT[name] + b"\n" + good)
    assert_same(good + LEFT[name])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_torn_and_bad_lines_among_broken_records(share: float) -> None:
    good, broken = json.dumps(GOOD).encode(), b'{"response_length":-1,"step":7}'
    whole = b"\n".join([good, broken, b"", good, b'{"loss_mask":[1],"response_length":2}', good])

    assert_same(whole[: -int(share * len(good))])
    assert_same(whole.replace(b'"step":7', b'"step":8') + b"\n" + broken[:9])


@example([1] * 5).via("all of them reach the loss")
@given(st.lists(st.sampled_from([0, 1, True, False, 0.0, -0.0, 1.0, 2, -1, 0.5, float("nan"), None, "1", [1], {}])))
def test_masks_are_summarised_as_the_contract_does(mask: list[Any]) -> None:
    found = fields(json.dumps({"loss_mask": mask}).encode())

    assert found is not None
    assert outcome(found) == outcome({"loss_mask": mask})
    if all(entry in (0, 1) for entry in mask):
        assert found["loss_mask"] == summarise_mask(mask)
        assert type(found["loss_mask"].total) is int


def test_long_lines_are_left_to_json() -> None:
    text = json.dumps(GOOD).encode()

    with patch.object(json_fields, "_MAX_LINE", len(text) - 1):
        assert fields(text) is None
    with patch.object(json_fields, "_MAX_LINE", len(text)):
        assert fields(text) is not None
