"""Long lists of numbers that stay in the file.

A pickled list of numbers is `( n n n ... e` once per thousand numbers. Each number is an opcode with a fixed-size
argument, so a whole stretch can be told apart from other things without making one Python object per number.
"""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from pipeline.sources.inert import PickleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.sources.byte_source import ByteSource

Number: TypeAlias = int | float
Part: TypeAlias = tuple[int, int, int, int]
"""Kind (an opcode, `BOOLS`, `INTS` or `MIXED`), count (-1: not counted yet), first byte, end byte."""

BININT1: Final = 0x4B
BININT2: Final = 0x4D
BININT: Final = 0x4A
BINFLOAT: Final = 0x47
NEWTRUE: Final = 0x88
NEWFALSE: Final = 0x89
LONG1: Final = 0x8A
MARK: Final = 0x28
APPENDS: Final = 0x65
BOOLS: Final = 1
INTS: Final = 2
MIXED: Final = 3

NUMBER_OPCODES: Final = frozenset({BININT1, BININT2, BININT, BINFLOAT, NEWTRUE, NEWFALSE, LONG1})
BATCH: Final = 1000
_SHORT_RUN: Final = 64
_AT_ONCE: Final = 2**16
"""Bytes of a list that are read in one go at most, however long it is."""
_GAP: Final = 16
"""Bytes between two batches that are read with them: their opcodes, and the header of a frame."""
_WIDTHS: Final = {BININT1: 2, BININT2: 3, BININT: 5, BINFLOAT: 9}
_COLUMNS: Final = {code: bytes([code]) * BATCH for code in _WIDTHS}
_BOOL_BYTES: Final = b"\x88\x89"
_LONGS: Final = rb"\x00|" + b"|".join(b"\\x%02x" % size + b"." * size for size in range(1, 10))
_INT: Final = rb"J....|M..|K."
_INT_RUN: Final = re.compile(rb"(?s:(?:%b)*+)" % _INT)
_NUMBER_RUN: Final = re.compile(rb"(?s:(?:%b|G........|[\x88\x89]|\x8a(?:%b))*+)" % (_INT, _LONGS))
_NUMBERS: Final = re.compile(rb"(?s)%b|G........|[\x88\x89]|\x8a(?:%b)" % (_INT, _LONGS))


def scan_numbers(window: bytes, start: int, end: int) -> tuple[int, int, int]:
    """Find the numbers that begin at `window[start]` and lie wholly before `end`.

    Returns:
        Kind, count (-1 if not counted) and the position after the last of them; a position equal to `start` means
        that no whole number stands there. Not always the longest run: call again at the position returned.
    """
    code = window[start]
    if code not in NUMBER_OPCODES:
        return MIXED, -1, start
    if code in _WIDTHS:
        found = _uniform(window, start, end, code)
        if found is not None:
            return found
    elif code in _BOOL_BYTES:
        run = window[start : min(start + BATCH, end)]
        count = len(run) - len(run.lstrip(_BOOL_BYTES))
        if count >= _SHORT_RUN or window[start + count : start + count + 1] == b"e":
            return BOOLS, count, start + count
    return _mixed(window, start, end)


def scan_batches(window: bytes, start: int, end: int, kind: int) -> tuple[int, list[tuple[int, int]], int]:
    """Find the batches of numbers, all of one kind, that begin at `window[start]` and lie wholly before `end`.

    Returns:
        How many numbers each batch has (-1 if not counted), the first and end position of the numbers of each, and the
        position after the last batch. Batches of numbers of one width are full ones.
    """
    count = -1
    found: list[tuple[int, int]] = []
    width = _WIDTHS.get(kind)
    if width is not None:
        count, column, size = BATCH, _COLUMNS[kind], width * BATCH + 2
        while (
            start + size <= end
            and window[start] == MARK
            and window[start + size - 1] == APPENDS
            and window[start + 1 : start + size - 1 : width] == column
        ):
            found.append((start + 1, start + size - 1))
            start += size
    elif kind == INTS:
        while start < end and window[start] == MARK:
            match = _INT_RUN.match(window, start + 1, end)
            after = start if match is None else match.end()
            if not start + 1 < after < end or window[after] != APPENDS:
                break
            found.append((start + 1, after))
            start = after + 1
    return count, found, start


def _uniform(window: bytes, start: int, end: int, code: int) -> tuple[int, int, int] | None:
    width = _WIDTHS[code]
    if window[start + width : start + width + 1] not in (_COLUMNS[code][:1], b"e"):
        return None
    stop = min(start + width * BATCH, end)
    # Opcodes of equal width stand in a column; the column alone proves the run, whatever the arguments hold.
    column = window[start:stop:width]
    if column == _COLUMNS[code] and stop == start + width * BATCH:
        return code, BATCH, stop
    count = len(column) - len(column.lstrip(_COLUMNS[code][:1]))
    count -= start + count * width > end
    after = start + count * width
    if count >= _SHORT_RUN or window[after : after + 1] == b"e":
        return code, count, after
    return None


def _mixed(window: bytes, start: int, end: int) -> tuple[int, int, int]:
    ints = _INT_RUN.match(window, start, end)
    after = start if ints is None else ints.end()
    if window[after : after + 1] == b"e" or after - start > _SHORT_RUN * 64:
        return INTS, -1, after
    numbers = _NUMBER_RUN.match(window, start, end)
    return MIXED, -1, start if numbers is None else numbers.end()


def _decode(kind: int, raw: bytes) -> list[Number]:
    if kind == BININT1:
        return list(raw[1::2])
    if kind == BOOLS:
        return [code == NEWTRUE for code in raw]
    if kind in _FORMATS:
        return [value for (value,) in struct.iter_unpack(_FORMATS[kind], raw)]
    return [_decode_one(match) for match in _NUMBERS.finditer(raw)]


_FORMATS: Final = {BININT2: "<xH", BININT: "<xi", BINFLOAT: ">xd"}


def _decode_one(match: re.Match[bytes]) -> Number:
    code = match[0][0]
    raw = match[0][1:]
    if code == BINFLOAT:
        return float(struct.unpack(">d", raw)[0])
    if code in _BOOL_BYTES:
        return code == NEWTRUE
    if code == LONG1:
        return int.from_bytes(raw[1:], "little", signed=True)
    return int.from_bytes(raw, "little", signed=code == BININT)


def _int_total(kind: int, raw: bytes) -> int:
    if kind == BININT1:
        values = raw[1::2]
        ones = values.count(1)
        return ones if ones + values.count(0) == len(values) else sum(values)
    if kind == BININT2:
        return sum(raw[1::3]) + (sum(raw[2::3]) << 8)
    return raw.count(NEWTRUE) if kind == BOOLS else int(sum(_decode(kind, raw)))


def float_total(values: list[float]) -> float:
    """Return the sum of `values`, rounded once (`math.fsum`); infinities of both signs give NaN."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return float(sum(values))


class NumberList:
    """A list of int, float and bool whose numbers stay in the file until asked for.

    It compares equal to a list, or to another `NumberList`, of the same numbers in the same order, and is unhashable.
    """

    __slots__ = ("_length", "_parts", "_source", "depth", "memo_keys", "sealed")

    def __init__(self, source: ByteSource, depth: int = 0) -> None:
        self._source = source
        self._parts: list[Part | list[Number]] = []
        self._length: int | None = None
        self.depth = depth
        self.memo_keys: list[int] = []
        self.sealed = False

    def add_parts(self, parts: list[Part]) -> None:
        """Append stretches of the file, which must hold nothing but number opcodes."""
        self._parts += parts
        self._length = None

    @property
    def last_kind(self) -> int:
        """Return the kind of the last stretch, `MIXED` where there is none."""
        last = self._parts[-1] if self._parts else None
        return last[0] if isinstance(last, tuple) else MIXED

    def add_values(self, values: list[Number]) -> None:
        """Append numbers that are already Python objects."""
        if self._parts and isinstance(self._parts[-1], list):
            self._parts[-1] += values
        else:
            self._parts.append(values)
        self._length = None

    @property
    def stored_bytes(self) -> int:
        """Upper bound of the number of elements: bytes of the file (or values) they take."""
        return sum(len(part) if isinstance(part, list) else part[3] - part[2] for part in self._parts)

    def __len__(self) -> int:
        """Return the number of elements, reading those stretches that were not counted when found."""
        if self._length is None:
            self._length = sum(self._count(part) for part in self._parts)
        return self._length

    def _count(self, part: Part | list[Number]) -> int:
        if isinstance(part, list):
            return len(part)
        return part[1] if part[1] >= 0 else len(_NUMBERS.findall(self._raw(part)))

    def _raw(self, part: Part) -> bytes:
        return self._source.read(part[2], part[3])

    def __iter__(self) -> Iterator[Number]:
        """Yield the numbers, decoding one stretch at a time."""
        for part in self._parts:
            yield from part if isinstance(part, list) else _decode(part[0], self._raw(part))

    def to_list(self) -> list[Number]:
        """Return the numbers as an ordinary list."""
        return list(self)

    def total(self) -> Number:
        """Return the sum: an exact int if no element is a float, else a float rounded once.

        Formula: sum over i of x_i, with True = 1 and False = 0; 0 for an empty list; infinities of both signs, or NaN,
        give NaN.
        """
        whole = 0
        floats: list[float] = []
        for part in self._parts:
            if not isinstance(part, list) and part[0] not in {BINFLOAT, MIXED}:
                whole += _int_total(part[0], self._raw(part))
                continue
            values = part if isinstance(part, list) else _decode(part[0], self._raw(part))
            floats += [value for value in values if isinstance(value, float)]
            whole += sum(value for value in values if isinstance(value, int))
        return _joined(whole, floats)

    def ones(self) -> int | None:
        """Return how many elements are 1 (or True, 1.0), null where not every element is 0 or 1; reads each once."""
        found = 0
        for some in self._small_parts():
            first = some[0][2]
            raw = self._source.read(first, some[-1][3])
            for _, _, start, end in some:
                values = raw[start - first + 1 : end - first : 2]
                ones = values.count(1)
                if ones + values.count(0) < len(values):
                    return None
                found += ones
        for part in self._parts:
            if not isinstance(part, list) and part[0] == BININT1:
                continue
            counted = self._ones(part)
            if counted is None:
                return None
            found += counted
        return found

    def _small_parts(self) -> Iterator[list[Part]]:
        """Yield the stretches of numbers below 256, some at a time that lie close together: they are read in one go."""
        some: list[Part] = []
        for part in self._parts:
            if isinstance(part, list) or part[0] != BININT1:
                continue
            if some and (part[3] - some[0][2] > _AT_ONCE or part[2] - some[-1][3] > _GAP):
                yield some
                some = []
            some.append(part)
        if some:
            yield some

    def _ones(self, part: Part | list[Number]) -> int | None:
        if not isinstance(part, list) and part[0] == BOOLS:
            return self._raw(part).count(NEWTRUE)
        numbers = part if isinstance(part, list) else _decode(part[0], self._raw(part))
        return int(sum(numbers)) if all(number in {0, 1} for number in numbers) else None

    def __eq__(self, other: object) -> bool:
        """Compare with a list or another `NumberList`, element by element."""
        if isinstance(other, NumberList):
            return len(self) == len(other) and self.to_list() == other.to_list()
        if isinstance(other, list):
            return len(self) == len(other) and self.to_list() == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return a bounded description that reads nothing."""
        return f"<numbers in {self.stored_bytes} bytes>"


def _joined(whole: int, floats: list[float]) -> Number:
    if not floats:
        return whole
    try:
        while whole:
            # A large integer is given in pieces, each exactly a float, so that only the sum is rounded.
            floats.append(float(whole))
            whole -= int(floats[-1])
    except OverflowError:
        raise PickleError("the sum is beyond the range of a float", 0) from None
    return float_total(floats)
