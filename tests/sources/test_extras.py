"""What a dump tells beside the contract is taken where it is understood; elsewhere it is null, and never an error."""

from __future__ import annotations

import itertools
import math
import pickle
import random
import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pipeline.sources import extras
from pipeline.sources.arrays import ArrayValue
from pipeline.sources.byte_source import BufferSource
from pipeline.sources.contract import canonical_columns, canonical_frame, check_records
from pipeline.sources.extras import (
    PREFIX_CACHE,
    RAW_FIELDS,
    SPECULATION,
    compresses_tenfold,
    count,
    counts,
    is_repetitive,
    seconds,
    tool_calls,
    versions_of,
)
from pipeline.sources.inert import GlobalName, LongBytes, LongText, PickleError, Placeholder
from pipeline.sources.number_list import NumberList
from pipeline.sources.pickled import read_pickle
from schemas.findings import shown

MORE_EXAMPLES = hypothesis_settings(max_examples=max(200, hypothesis_settings().max_examples))


def unbuilt(**state: Any) -> Placeholder:
    """An object of a class that is not known."""
    found = Placeholder("engine.types", "Call")
    found.state = dict(state.items())
    return found


def span(version: object) -> dict[str, Any]:
    return {"version": version, "abs_start": 2, "abs_end": 4}


def lazy_numbers(numbers: list[Any]) -> NumberList:
    value = read_pickle(pickle.dumps(numbers, protocol=2)).value
    assert isinstance(value, NumberList)
    return value


def long_text(text: str, source: Any = None) -> LongText:
    raw = text.encode("utf-8", "surrogatepass")
    return LongText(source or BufferSource(raw), 0, len(raw))


class Broken:
    """A file that has become unreadable since it was opened."""

    size = 10**6

    def read(self, start: int, end: int) -> bytes:
        raise PickleError("the file is closed", start)


class Counting(BufferSource):
    """Bytes that know how many of them were read."""

    __slots__ = ("bytes_read",)

    def __init__(self, text: str) -> None:
        super().__init__(text.encode("utf-8"))
        self.bytes_read = 0

    def read(self, start: int, end: int) -> bytes:
        self.bytes_read += end - start
        return super().read(start, end)


def itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


# --- policy versions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (None, None, None)),
        ([], (None, None, None)),
        ([[]], (None, None, None)),
        (["3"], (1, 3, 3)),
        (["3", "4", "3"], (2, 3, 4)),
        (("3", "4"), (2, 3, 4)),
        ([10, 9], (2, 9, 10)),
        ([10.0, "10"], (1, 10, 10)),
        (["default"], (1, None, None)),
        (["default", "7", ""], (3, 7, 7)),
        (["007", "7"], (2, 7, 7)),
        (["-1", "1.5", "²", "٣"], (4, None, None)),
        ([str(2**40 - 1), str(2**40), "9" * 100], (3, 2**40 - 1, 2**40 - 1)),
        ([None, "3"], (1, 3, 3)),
        ([[span("1")], [span("1"), span("12")]], (2, 1, 12)),
        ([[span("1")], [], None, [None, span("2")]], (2, 1, 2)),
        ([{"spans": [span("4")], "prefill_spans": [span("9")], "output_start": 3}], (1, 4, 4)),
        ([unbuilt(spans=[unbuilt(version="4"), span("5")], output_start=3)], (2, 4, 5)),
        ([{"spans": None}, unbuilt(), Placeholder("a", "b")], (None, None, None)),
        (["3", [span("4")], {"spans": [span("5")]}], (3, 3, 5)),
        (lazy_numbers([5] * 1500 + [7] * 1500), (2, 5, 7)),
        ([lazy_numbers([5] * 1500)], (1, 5, 5)),
        ("3", (None, None, None)),
        (3, (None, None, None)),
        ({"version": "3"}, (None, None, None)),
        (["3", True], (None, None, None)),
        (["3", 0.5], (None, None, None)),
        (["3", math.nan], (None, None, None)),
        (["3", 2**63], (None, None, None)),
        (["3", 10**5000], (None, None, None)),
        (["3", "v" * 201], (None, None, None)),
        (["3", b"4"], (None, None, None)),
        ([[["3"]]], (None, None, None)),
        ([{"spans": "3"}], (None, None, None)),
        ([[span([1])]], (None, None, None)),
        (itself(), (None, None, None)),
        (["3"] * (2**16 + 1), (None, None, None)),
        ([[span("3")] * 1000] * 1000, (None, None, None)),
        ([lazy_numbers([True] * 3000)], (None, None, None)),
        ([long_text("3" * 5000)], (None, None, None)),
    ],
    ids=shown,
)
def test_versions_are_counted_and_the_numeric_ones_ordered(value: object, expected: object) -> None:
    assert versions_of(value) == expected


@pytest.mark.parametrize("absent", [None, [], [[]], ()], ids=shown)
def test_legacy_versions_count_where_there_are_no_others(absent: object) -> None:
    assert versions_of(absent, ["3", "default"]) == (2, 3, 3)


@pytest.mark.parametrize("value", [["5"], [[span("5")]]], ids=shown)
def test_legacy_versions_do_not_count_beside_others(value: object) -> None:
    assert versions_of(value, ["3"]) == (1, 5, 5)


def test_legacy_versions_do_not_stand_for_what_is_malformed() -> None:
    assert versions_of([True], ["3"]) == (None, None, None)


# --- numbers ----------------------------------------------------------------------------------------------------------

NO_COUNTS: list[Any] = [None, True, -1, 0.5, 2**40, 10**400, math.nan, math.inf, "7", [7], itself()]
NO_SECONDS: list[Any] = [None, False, -1, -1e-9, 10**400, math.nan, math.inf, "1", [1.0], {}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (7, 7), (7.0, 7), (-0.0, 0), (2**40 - 1, 2**40 - 1), *((value, None) for value in NO_COUNTS)],
    ids=shown,
)
def test_counts_are_whole_numbers(value: object, expected: int | None) -> None:
    assert (type(count(value)), count(value)) == (type(expected), expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0.0), (1.5, 1.5), (2**60, 2.0**60), (-0.0, 0.0), *((value, None) for value in NO_SECONDS)],
    ids=shown,
)
def test_seconds_are_finite_and_not_negative(value: object, expected: float | None) -> None:
    assert repr(seconds(value)) == repr(expected)


def test_an_array_of_one_element_is_that_number() -> None:
    numpy = pytest.importorskip("numpy")

    read = [read_pickle(pickle.dumps(made(3), protocol=2)).value for made in (numpy.int64, numpy.float32)]
    read += [read_pickle(pickle.dumps(numpy.array([3]), protocol=2)).value]

    assert [(count(value), seconds(value)) for value in read] == [(3, 3.0)] * 3
    assert count(read_pickle(pickle.dumps(numpy.bool_(True), protocol=2)).value) is None
    assert count(ArrayValue()) is None


def test_the_newer_names_of_a_count_win() -> None:
    older = {"spec_accept_token_num": 1, "spec_draft_token_num": 2, "spec_verify_ct": 3, "completion_token_num": 4}
    newer = {"spec_num_correct_drafts": 5, "spec_num_proposed_drafts": 6, "spec_verify_ct": 7, "completion_tokens": 8}

    assert list(counts(older, SPECULATION).values()) == [1, 2, 3, 4]
    assert list(counts(newer, SPECULATION).values()) == [5, 6, 7, 8]
    assert list(counts(older | newer, SPECULATION).values()) == [5, 6, 7, 8]
    mixed = older | {"completion_tokens": None, "spec_num_correct_drafts": -1}
    assert list(counts(mixed, SPECULATION).values()) == [None, 2, 3, 4]
    assert counts(unbuilt(cached_tokens=3, total_prompt_tokens=9), PREFIX_CACHE) == {
        "cached_tokens": 3,
        "prompt_tokens": 9,
    }


# --- conversations ----------------------------------------------------------------------------------------------------

TOOL, USER = {"role": "tool", "content": "42"}, {"role": "user", "content": "6 times 7?"}


@pytest.mark.parametrize(
    ("metadata", "prompt", "expected"),
    [
        (None, None, None),
        (None, "text", None),
        ({}, [], None),
        ({}, [1, 2], None),
        ({}, lazy_numbers([1] * 3000), None),
        ({}, ["text"], None),
        ({}, [USER], 0),
        ({}, [USER, TOOL, TOOL], 2),
        ({}, (USER, unbuilt(**TOOL)), 1),
        ({}, [{}, None, {"role": ["tool"]}, {"role": lazy_numbers([1] * 3000)}], 0),
        ({"messages": []}, [TOOL], 0),
        ({"messages": [TOOL, USER, 5, "tool"]}, "text", 1),
        ({"messages": lazy_numbers([1] * 3000)}, [TOOL], 0),
        ({"messages": None}, [TOOL], 1),
        ({"messages": "tool"}, [TOOL], 1),
        ({"messages": itself()}, None, 0),
        ([TOOL], TOOL, None),
    ],
    ids=shown,
)
def test_tool_messages_are_counted(metadata: object, prompt: object, expected: int | None) -> None:
    assert tool_calls(metadata, prompt) == expected


# --- repetition -------------------------------------------------------------------------------------------------------


def rule(text: str) -> bool:
    """The definition, without a shortcut."""
    raw = text[-10_000:].encode("utf-8", "surrogatepass")
    return len(text) > 10_000 and len(raw) / len(zlib.compress(raw, 9)) > 10


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Texts of a period, of any length and alphabet, with faults in it: on either side of the bound."""
    alphabet = draw(
        st.sampled_from(["ab", "abcd", "01 \n", "etaoin shrdlu", "中文字符集", "é", "a😀", "\ud800x", "aé中😀"])
    )
    order = random.Random(draw(st.integers(0, 2**32)))
    period = draw(st.one_of(st.integers(1, 60), st.integers(1, 1500), st.integers(500, 12_000)))
    faults = draw(st.one_of(st.just(0), st.integers(0, 400)))
    length = draw(st.one_of(st.just(10_001), st.integers(9_990, 21_000)))
    block = order.choices(alphabet, k=period)
    found = list(itertools.islice(itertools.cycle(block), length))
    for _ in range(faults):
        found[order.randrange(length)] = order.choice(alphabet)
    start = draw(st.integers(0, length))
    if draw(st.booleans()):
        found[start : start + 4000] = order.choices(alphabet, k=len(found[start : start + 4000]))
    return "".join(found)


@MORE_EXAMPLES
@given(text=texts())
@example(text="a" * 10_000)
@example(text="a" * 10_001)
@example(text="\ud800" * 10_001)
def test_the_shortcut_changes_nothing(text: str) -> None:
    assert is_repetitive(text) == rule(text)
    assert is_repetitive(long_text(text)) == rule(text)
    assert len(text) <= 10_000 or compresses_tenfold(text[-10_000:]) == rule(text)


def test_texts_of_both_kinds_are_drawn() -> None:
    order = random.Random(1)
    periods = ["".join(order.choices("etaoin shrdlu", k=period)) for period in (500, 3000)]

    assert [rule((period * 30)[:15_000]) for period in periods] == [True, False]


@pytest.mark.parametrize("value", [None, 5, b"a" * 20_000, ["a"] * 20_000, itself()], ids=shown)
def test_what_is_no_text_is_not_judged(value: object) -> None:
    assert is_repetitive(value) is None
    assert is_repetitive(LongBytes(BufferSource(b"a" * 20_000), 0, 20_000)) is None


def test_an_empty_response_is_not_repetitive() -> None:
    assert is_repetitive("") is False


@pytest.mark.parametrize(
    ("text", "bytes_read", "expected"),
    [
        ("a" * 10_000, 0, False),
        ("é" * 10_000, 20_000, False),
        ("a" * 10_001, 10_001, True),
        ("😀" * 10_000, 40_000, False),
        ("😀" * 10_001, 40_000, True),
        ("x" + "é" * 100_000 + "a", 40_000, True),
        ("😀" * 50_000 + "é", 40_000, True),
        ("a" * 10**6, 40_000, True),
    ],
    ids=["short", "two bytes", "long", "four bytes", "longer", "half a character", "part of one", "very long"],
)
def test_only_the_end_of_a_long_text_is_read(text: str, bytes_read: int, expected: bool) -> None:
    source = Counting(text)

    found = is_repetitive(long_text(text, source))

    assert (found, source.bytes_read) == (expected, bytes_read)
    assert found == rule(text)


@pytest.mark.parametrize("raw", [b"\xff" * 20_000, b"\x80" * 50_000, b"a" * 49_999 + b"\xc3"])
def test_a_text_that_is_not_utf8_is_not_judged(raw: bytes) -> None:
    assert is_repetitive(LongText(BufferSource(raw), 0, len(raw))) is None


def test_a_file_that_cannot_be_read_any_more_tells_nothing() -> None:
    assert is_repetitive(LongText(Broken(), 0, 20_000)) is None


@given(text=st.text(), size=st.integers(0, 60))
def test_the_tail_of_a_text_is_its_last_whole_characters(text: str, size: int) -> None:
    found = long_text(text).tail(size)

    assert text.endswith(found)
    before = text[len(text) - len(found) - 1 : len(text) - len(found)]
    assert len(found.encode()) <= size
    assert not before or len((before + found).encode()) > size


# --- anything at all --------------------------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**40, 2**63, -(2**70), 10**4000, math.nan, math.inf, -math.inf, -0.0, 1e300]),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from(["tool", "3", "\ud800", "9" * 5000, "default"]),
    st.builds(itself),
    st.builds(lambda: GlobalName("a", "b")),
    st.builds(ArrayValue),
    st.builds(lambda: LongText(Broken(), 0, 30_000)),
    st.builds(lambda: LongBytes(Broken(), 0, 30_000)),
    st.builds(lambda: long_text("ab" * 15_000)),
    st.builds(lambda: LongText(BufferSource(b"\xff" * 50_000), 0, 50_000)),
    st.sampled_from([lazy_numbers(numbers) for numbers in ([1] * 2000, [0.5] * 2000, [True] * 2000, [2**63] * 2000)]),
)
NAMES = [
    "spans",
    "version",
    "role",
    "messages",
    *PREFIX_CACHE["cached_tokens"],
    *itertools.chain(*SPECULATION.values()),
]
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=4).map(lambda state: unbuilt(**state)),
    ),
    max_leaves=12,
)


@MORE_EXAMPLES
@given(fields=st.fixed_dictionaries(dict.fromkeys(RAW_FIELDS, JUNK)), messages=JUNK)
def test_extras_never_refuse_a_sample(fields: dict[str, Any], messages: Any) -> None:
    good = {"reward": 1.0, "response_length": 1, "metadata": {"messages": messages}}

    checked, findings = check_records([good | fields])

    assert not findings
    records = [record for record in checked if record is not None]
    place = {"run": "run", "split": "train", "step": 0, "row": [0]}
    (row,) = canonical_frame({**canonical_columns(records), **place}).rows(named=True)
    for name, values in extras.columns(records).items():
        assert row[name] == values[0]
        assert row[name] is None or row[name] >= 0
        assert name == "non_generation_time" or row[name] is None or row[name] < 2**40
