"""The pickle reader agrees with the standard one on plain values, and only names what it does not build."""

from __future__ import annotations

import collections
import datetime as dt
import math
import pathlib
import pickle
import struct
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.sources import pickle_machine
from pipeline.sources.inert import Limits
from pipeline.sources.pickled import (
    ArrayValue,
    LatinBytes,
    LongBytes,
    LongText,
    NumberList,
    PickleError,
    Placeholder,
    read_pickle,
)
from tests.sources.inert_values import plain, touch

if TYPE_CHECKING:
    from collections.abc import Callable

PROTOCOLS = range(6)
PICKLERS = (pickle.dumps, pickle._dumps)  # type: ignore[attr-defined] # noqa: SLF001 -- the one in Python
WINDOWS = (64, 500, 4096, pickle_machine.WINDOW)

numbers = st.one_of(
    st.booleans(),
    st.integers(0, 1),
    st.integers(0, 255),
    st.integers(0, 200_000),
    st.integers(-(2**31), 2**31),
    st.integers(-(2**71), 2**71 - 1),
    st.floats(allow_nan=False),
)
scalars = st.one_of(st.none(), numbers, st.text(max_size=20), st.binary(max_size=20), st.integers(-(2**900), 2**900))
keys = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=9), st.binary(max_size=9)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(st.one_of(keys, st.tuples(keys, keys)), inner, max_size=5),
        st.sets(keys, max_size=5),
        st.frozensets(keys, max_size=5),
    ),
    max_leaves=25,
)


@st.composite
def number_lists(draw: st.DrawFn) -> list[Any]:
    kind = draw(
        st.sampled_from(
            [st.integers(0, 1), st.integers(0, 200_000), st.floats(allow_nan=False), st.booleans(), numbers]
        )
    )
    pattern = draw(st.lists(kind, min_size=1, max_size=12))
    length = draw(st.sampled_from([0, 1, 31, 64, 999, 1000, 1001, 2001]))
    found: list[Any] = (pattern * (length // len(pattern) + 1))[:length]
    for stranger in draw(st.lists(st.sampled_from([None, "text", (), [1]]), max_size=1)):
        found.insert(draw(st.integers(0, len(found))), stranger)
    return found


def same(found: object, expected: object) -> bool:
    return repr(found) == repr(expected)


@given(values, st.sampled_from(PROTOCOLS), st.sampled_from(PICKLERS), st.sampled_from(WINDOWS))
@settings(max_examples=300, deadline=None)
def test_plain_values(value: object, protocol: int, dumps: Callable[[object, int], bytes], window: int) -> None:
    stream = dumps(value, protocol)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickle_machine, "WINDOW", window)
        found = read_pickle(stream)

    assert plain(found.value) == value
    assert type(plain(found.value)) is type(value)
    assert found.end == len(stream)
    assert not found.seen_classes


@given(number_lists(), st.sampled_from(PROTOCOLS), st.sampled_from(PICKLERS), st.sampled_from(WINDOWS))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_number_lists(value: list[Any], protocol: int, dumps: Callable[[object, int], bytes], window: int) -> None:
    stream = dumps({"one": value, "same": value, "after": "text"}, protocol)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickle_machine, "WINDOW", window)
        found: Any = read_pickle(stream).value

    assert same(plain(found), {"one": value, "same": value, "after": "text"})
    assert found["one"] is found["same"]
    assert len(found["one"]) == len(value)


@given(
    st.lists(st.one_of(numbers.filter(lambda number: abs(number) < 1e250)), min_size=1, max_size=12),
    st.integers(70, 200),
)
@settings(max_examples=100, deadline=None)
def test_totals(pattern: list[int | float], times: int) -> None:
    value = pattern * times

    found: Any = read_pickle(pickle.dumps(value, 2)).value

    assert isinstance(found, NumberList)
    assert found.ones() == (sum(value) if all(number in {0, 1} for number in value) else None)
    if all(isinstance(number, int) for number in value):
        assert found.total() == sum(value)
        assert type(found.total()) is int
    else:
        assert found.total() == float(sum(map(Fraction, value)))


@pytest.mark.parametrize(
    "value",
    [
        [1] * 6001,
        [0, 1, 1] * 2000,
        [7, 200, 3] * 500,
        [300, 65_000] * 1000,
        [70_000, -5] * 800,
        [1, 300, 70_000] * 900,
        [True, False] * 700,
        [2**40, -(2**33)] * 300,
        [0.5, -1.25] * 800,
        [1, 0.5, True, 2**50] * 400,
        [0x4B] * 3000,
        [0x4B4B] * 3000,
        [0x654D4D4B] * 3000,
    ],
)
def test_runs_stay_in_the_file(value: list[Any]) -> None:
    found: Any = read_pickle(pickle.dumps({"run": value}, 2)).value["run"]  # type: ignore[index]

    assert isinstance(found, NumberList)
    assert found == value
    assert same(found.to_list(), value)
    assert found.total() == math.fsum(value)
    assert len(found) == len(value)
    assert list(found) == value
    assert found != value[1:]


@pytest.mark.parametrize("odd", [None, "x", [1], {}, (2,)])
@pytest.mark.parametrize("place", [0, 1, 500, 999, 1000, 1001, 2999, 3000])
def test_one_stranger_makes_an_ordinary_list(odd: object, place: int) -> None:
    value: list[object] = [0.5] * 3000
    value.insert(place, odd)

    found: Any = read_pickle(pickle.dumps({"list": value, "again": value}, 2)).value

    assert type(found["list"]) is list
    assert found["list"] is found["again"]
    assert plain(found["list"]) == value


def test_a_sum_of_both_infinities_is_nan() -> None:
    found: Any = read_pickle(pickle.dumps([math.inf, -math.inf, 1] * 50, 2)).value

    assert math.isnan(found.total())


def test_a_sum_beyond_floats_is_not_rounded_to_infinity() -> None:
    found: Any = read_pickle(pickle.dumps([1e308] * 100, 2)).value

    assert found.total() == math.inf


def test_list_in_itself() -> None:
    value: list[Any] = [1] * 2000
    value += [{"self": value}, (value,), value]

    found: Any = read_pickle(pickle.dumps(value, 2)).value

    assert type(found) is list
    assert found[2000]["self"] is found
    assert found[2001][0] is found
    assert found[2002] is found
    assert found[:2000] == value[:2000]


def test_numbers_that_hold_themselves_through_a_dict() -> None:
    value: list[Any] = [1] * 1000
    value.append({"self": value})

    found: Any = read_pickle(pickle.dumps(value, 2)).value

    assert found[1000]["self"] is found


def test_a_finished_list_shared_while_it_lies_on_the_stack() -> None:
    value = [5] * 3000

    found: Any = read_pickle(pickle.dumps({"tokens": value, "metadata": {"accumulated": value}}, 2)).value

    assert isinstance(found["tokens"], NumberList)
    assert found["metadata"]["accumulated"] is found["tokens"]


def test_a_list_that_grows_after_use_is_refused() -> None:
    stream = b"\x80\x02}q\x00X\x01\x00\x00\x00a]q\x01(" + b"K\x01" * 100 + b"esh\x01X\x01\x00\x00\x00ba."

    with pytest.raises(PickleError, match="grows after it was used"):
        read_pickle(stream)


def test_texts_and_bytes_stay_in_the_file() -> None:
    value = {"text": "é" * 5000, "bytes": bytes(range(256)) * 40, "short": "é"}

    two: Any = read_pickle(pickle.dumps(value, 2)).value
    five: Any = read_pickle(pickle.dumps(value, 5)).value

    assert isinstance(two["text"], LongText)
    assert isinstance(two["bytes"], LatinBytes)
    assert isinstance(five["bytes"], LongBytes)
    assert plain(two) == plain(five) == value


def test_wrong_utf_8_in_a_lazy_text_is_an_error_when_read() -> None:
    stream = b"\x80\x02X" + (9000).to_bytes(4, "little") + b"\xff" * 9000 + b"."

    found: Any = read_pickle(stream).value

    with pytest.raises(PickleError, match="not UTF-8"):
        found.text()


def test_lone_surrogates_pass() -> None:
    assert read_pickle(pickle.dumps("\ud800", 2)).value == "\ud800"


def test_buffers_other_than_bytes() -> None:
    stream = pickle.dumps({"a": [1] * 100}, 2)

    assert (
        plain(read_pickle(memoryview(stream)).value) == plain(read_pickle(bytearray(stream)).value) == {"a": [1] * 100}
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_containers_of_the_library(protocol: int) -> None:
    value = {
        "ordered": collections.OrderedDict(b=1, a=2),
        "default": collections.defaultdict(list, {1: [2]}),
        "counter": collections.Counter("aab"),
        "deque": collections.deque([1, 2, 3], 5),
        "bytearray": bytearray(b"abc"),
    }

    found = read_pickle(pickle.dumps(value, protocol))

    assert found.value == {
        "ordered": {"b": 1, "a": 2},
        "default": {1: [2]},
        "counter": {"a": 2, "b": 1},
        "deque": [1, 2, 3],
        "bytearray": b"abc",
    }
    assert not found.seen_classes


class Custom:
    def __init__(self) -> None:
        self.name = "n"


class Slotted:
    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name = "n"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_are_placeholders(protocol: int) -> None:
    value = [Custom(), pathlib.PurePosixPath("/a/b"), dt.date(2026, 8, 1), 1j, range(3)]

    found = read_pickle(pickle.dumps(value, protocol))
    objects: Any = found.value

    assert all(isinstance(one, Placeholder) for one in objects)
    assert objects[0].state == {"name": "n"}
    assert objects[0].name == "Custom"
    assert objects[2].qualified == "datetime.date"
    assert {"datetime.date", "pathlib.PurePosixPath", f"{__name__}.Custom"} <= found.seen_classes


@pytest.mark.parametrize("protocol", range(2, 6))
def test_slots_are_state(protocol: int) -> None:
    found: Any = read_pickle(pickle.dumps(Slotted(), protocol)).value

    assert found.state == {"name": "n"}


def test_subclasses_keep_what_was_put_in() -> None:
    stream = b"\x80\x02cfoo\nMapping\n)\x81X\x01\x00\x00\x00aK\x01s."

    found: Any = read_pickle(stream).value

    assert found.entries == {"a": 1}


def test_adapter_is_known() -> None:
    stream = b"\x80\x02cmiles.utils.types\nAdapterRef\n)\x81}(X\x04\x00\x00\x00nameX\x01\x00\x00\x00a"
    stream += b"X\x04\x00\x00\x00slotK\x01ub."

    found: Any = read_pickle(stream)

    assert found.value.state == {"name": "a", "slot": 1}
    assert not found.seen_classes


def test_keys_that_cannot_be_keys_become_text() -> None:
    stream = b"}(]K\x01]K\x02cos\nsystem\nK\x03u."

    found = read_pickle(stream).value

    assert found == {"<list key 1>": 1, "<list key 2>": 2, "<GlobalName key 3>": 3}


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u1", "<i2", ">i2", "<u4", "<i4", ">i4", "<i8", "<u8", "<f2", ">f2", "<f4", ">f8"]
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numpy(dtype: str, protocol: int) -> None:
    array = (np.arange(70).reshape(5, 14) * 3 % 91).astype(dtype)
    value = [
        array,
        np.asfortranarray(array),
        array[::2, 1:],
        array[0, 0],
        array[:0],
        array[0:1, 0:1],
        array.reshape(-1),
    ]

    found = read_pickle(pickle.dumps(value, protocol))

    assert not found.seen_classes
    for one, expected in zip(found.value, value, strict=True):  # type: ignore[call-overload]
        if not isinstance(expected, np.ndarray):
            assert same(one, expected.item())
            continue
        assert isinstance(one, ArrayValue)
        assert (one.shape, one.dtype, one.size) == (expected.shape, expected.dtype.name, expected.size)
        assert same(one.to_list(), expected.flatten().tolist())
        assert one.total() == sum(expected.flatten().tolist())


def test_old_numpy_names() -> None:
    stream = pickle.dumps(np.arange(3000, dtype="i4"), 2).replace(b"numpy._core.", b"numpy.core.")

    found = read_pickle(stream)

    assert plain(found.value.to_list()) == list(range(3000))  # type: ignore[attr-defined]
    assert not found.seen_classes


def test_one_element() -> None:
    one: Any = read_pickle(pickle.dumps(np.array([[2.5]]), 2)).value
    two: Any = read_pickle(pickle.dumps(np.array([2.5, 1]), 2)).value

    assert one.item() == 2.5
    with pytest.raises(PickleError, match="2 elements"):
        two.item()


@pytest.mark.parametrize(
    "array", [np.array(["a", "b"]), np.array([1j]), np.array([{}]), np.array([("a", 1)], dtype="U1,i4")]
)
def test_elements_that_are_no_numbers(array: np.ndarray[Any, Any]) -> None:
    found: Any = read_pickle(pickle.dumps(array, 2)).value

    assert found.size == array.size
    with pytest.raises(PickleError, match="plain numbers"):
        found.total()


def test_bytes_that_do_not_fit_the_shape() -> None:
    stream = pickle.dumps(np.arange(4, dtype="i4"), 4).replace(b"K\x04\x85", b"K\x05\x85")

    with pytest.raises(PickleError, match="do not fit"):
        read_pickle(stream)


STREAMS = [
    dumps(
        {
            "numbers": [1, 300, 70_000, 0.5] * 30,
            "mask": [1, 0] * 50,
            "text": "text" * 2000,
            "mixed": [None, (1, 2, 3, 4), {"a": {1, 2}}, frozenset("a"), b"bytes", True, 2**70, -1.5],
            "odd": [Custom(), np.arange(6).reshape(2, 3), np.float32(1.5), collections.OrderedDict(a=1)],
        },
        protocol,
    )
    for protocol in PROTOCOLS
    for dumps in PICKLERS[: 1 if protocol == 5 else 2]
]


@pytest.mark.parametrize("stream", STREAMS)
def test_every_truncation_is_an_error(stream: bytes) -> None:
    for length in range(0, len(stream), 1 if len(stream) < 3000 else 7):
        with pytest.raises(PickleError):
            read_pickle(stream[:length])


@given(st.sampled_from(STREAMS), st.data())
@settings(max_examples=400, deadline=None)
def test_damage_gives_a_value_or_the_one_error(stream: bytes, data: st.DataObject) -> None:
    damaged = bytearray(stream)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))

    try:
        found = read_pickle(bytes(damaged), Limits(max_bytes=64 << 20))
    except PickleError:
        return
    touch(found.value)


OPCODES = sorted(
    {code for name, code in vars(pickle).items() if name.isupper() and isinstance(code, bytes) and len(code) == 1}
)


@given(st.lists(st.one_of(st.sampled_from(OPCODES), st.binary(min_size=1, max_size=2)), max_size=60))
@settings(max_examples=500, deadline=None)
def test_random_programs_give_a_value_or_the_one_error(program: list[bytes]) -> None:
    try:
        found = read_pickle(b"".join(program) + b".", Limits(max_bytes=64 << 20))
    except PickleError:
        return
    touch(found.value)


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"", "cut short"),
        (b"\x80\x02", "cut short"),
        (b".", "without a value"),
        (b"\x80\x09N.", "protocol 9"),
        (b"\xff", "unknown opcode 0xff"),
        (b"0.", "no mark"),
        (b"a.", "underflow"),
        (b"NNa.", "takes no elements"),
        (b"K\x01t.", "no mark"),
        (b"h\x05.", "remembered under 5"),
        (b"}(Nu.", "without a value"),
        (b"X\x05\x00\x00\x00ab.", "beyond the end"),
        (b"X\x01\x00\x00\x00\xff.", "not UTF-8"),
        (b"\x8b\xff\xff\xff\xff.", "integer of"),
        (b"\x95" + struct.pack("<Q", 1 << 40) + b"N.", "frame"),
        (b"I0x10\n.", "decimal"),
        (b"I010\n.", "decimal"),
        (b"F1_0\n.", "float"),
        (b"F1e999\n.", "float"),
        (b"Sabc\n.", "without quotes"),
        (b"S'\\x1'\n.", "wrong escape"),
        (b"\x82\x01.", "extension"),
        (b"\x97.", "buffer"),
        (b"N\x98.", "buffer"),
        (b"(NNR.", "not a tuple"),
        (b"cos\nsystem\nN\x81.", "not a tuple"),
        (b"NN\x93.", "not text"),
        (b"c\xff\nx\n.", "not UTF-8"),
        (b"cos\nsystem", "without an end"),
        (b"p-1\n.", "negative"),
    ],
)
def test_reasons(stream: bytes, reason: str) -> None:
    with pytest.raises(PickleError, match=reason):
        read_pickle(stream)


def test_lines_of_protocol_0() -> None:
    assert read_pickle(b"(I01\nI00\nI1\nL5L\nF-1.5e3\nS'a\\n'\nV\\u00e9\nl.").value == [
        True,
        False,
        1,
        5,
        -1500.0,
        "a\n",
        "é",
    ]
