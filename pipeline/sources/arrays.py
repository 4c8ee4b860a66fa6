"""Numpy arrays and torch tensors found in a stream, without numpy or torch.

Only the description of an array is read; its elements stay in the file until asked for.
"""

from __future__ import annotations

import math
import struct
import sys
from array import array
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pipeline.sources.inert import PickleError
from pipeline.sources.number_list import Number, float_total

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_ARRAY_BYTES: Final = 512 << 20
"""Bytes of elements one array may read at once."""
MAX_GATHERED: Final = 10_000_000
"""Elements read one by one from an array that is not contiguous."""


class RawData(Protocol):
    """Where the elements of an array lie."""

    def read(self, start: int, end: int) -> bytes:
        """Return exactly the bytes `[start, end)`, or raise `PickleError`."""
        ...

    def may_hold(self, size: int) -> bool:
        """Whether there can be `size` bytes, as far as is known without reading."""
        ...


class HeldBytes:
    """Elements that are already in memory."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def may_hold(self, size: int) -> bool:
        """Whether there are exactly `size` bytes."""
        return size == len(self._raw)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)`, or raise `PickleError` if they are not all there."""
        if not 0 <= start <= end <= len(self._raw):
            raise PickleError("fewer bytes than the array needs", 0)
        return self._raw[start:end]


class Element(NamedTuple):
    """One kind of element: name as numpy and torch spell it, format (a `struct` letter or "bf16"), bytes."""

    name: str
    code: str
    width: int


_NUMPY: Final = {
    "b1": Element("bool", "?", 1),
    "i1": Element("int8", "b", 1),
    "i2": Element("int16", "h", 2),
    "i4": Element("int32", "i", 4),
    "i8": Element("int64", "q", 8),
    "u1": Element("uint8", "B", 1),
    "u2": Element("uint16", "H", 2),
    "u4": Element("uint32", "I", 4),
    "u8": Element("uint64", "Q", 8),
    "f2": Element("float16", "e", 2),
    "f4": Element("float32", "f", 4),
    "f8": Element("float64", "d", 8),
}
_BY_NAME: Final = {element.name: element for element in _NUMPY.values()} | {"bfloat16": Element("bfloat16", "bf16", 2)}
_TORCH: Final = {
    "BoolStorage": "bool",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "ByteStorage": "uint8",
    "UntypedStorage": "uint8",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
}
_TORCH_ALIASES: Final = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32"}


def numpy_element(code: str) -> Element:
    """Return the element for a numpy code such as `i4` or `<i4`; one of width 0 if it is not a plain number."""
    return _NUMPY.get(code.lstrip("<>=|"), Element(code[:20], "", 0))


def torch_storage_element(storage_class: str) -> Element:
    """Return the element for a torch storage class such as `FloatStorage`; one of width 0 if it is not known."""
    name = _TORCH.get(storage_class)
    return _BY_NAME[name] if name else Element(storage_class[:40], "", 0)


def torch_element(name: str) -> Element:
    """Return the element for a torch dtype such as `uint16`; one of width 0 if it is not a plain number."""
    name = _TORCH_ALIASES.get(name, name)
    return _BY_NAME.get(name, Element(name[:40], "", 0))


class DType:
    """A numpy dtype: its element and whether its bytes come in big-endian order."""

    __slots__ = ("big", "element")

    def __init__(self, element: Element, *, big: bool = False) -> None:
        self.element = element
        self.big = big

    def __repr__(self) -> str:
        """Return a bounded description."""
        return f"<dtype {self.element.name}>"


class Storage(NamedTuple):
    """A torch storage: what its elements are, how many, and where (None: not in this archive)."""

    element: Element
    length: int
    data: RawData | None
    big: bool


def decode_elements(raw: bytes, element: Element, *, big: bool) -> Sequence[Number]:
    """Decode contiguous elements; raise `PickleError` for elements that are not plain numbers."""
    if element.code == "?":
        return [value != 0 for value in raw]
    if element.code == "bf16":
        return _decode_bfloat16(raw, big=big)
    if element.code == "e":
        return struct.unpack(f"{'>' if big else '<'}{len(raw) // 2}e", raw)
    if not element.code:
        raise PickleError(f"elements of type {element.name} are not plain numbers", 0)
    values = array(element.code, raw)
    if big != (sys.byteorder == "big") and element.width > 1:
        values.byteswap()
    return values


def _decode_bfloat16(raw: bytes, *, big: bool) -> Sequence[float]:
    # A bfloat16 is the upper half of a float32.
    wide = bytearray(2 * len(raw))
    wide[2::4], wide[3::4] = (raw[1::2], raw[0::2]) if big else (raw[0::2], raw[1::2])
    return struct.unpack(f"<{len(raw) // 2}f", wide)


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


class ArrayValue:
    """A numpy array or torch tensor whose elements stay in the file until asked for.

    Attributes:
        dtype: name of the element type, e.g. `int32`, `bfloat16`; a type this reader does not know under its own name.
        shape: lengths of the axes.
    """

    __slots__ = ("_big", "_data", "_element", "_offset", "_strides", "dtype", "shape")

    def __init__(self) -> None:
        self.dtype = "unknown"
        self.shape: tuple[int, ...] = (0,)
        self._element = Element("unknown", "", 0)
        self._strides: tuple[int, ...] = (1,)
        self._offset = 0
        self._big = False
        self._data: RawData | None = None

    def describe(
        self,
        kind: tuple[Element, bool],
        shape: tuple[int, ...],
        data: RawData | None,
        *,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        """Say what the array is: element and big-endian flag, shape, bytes, strides and offset in elements."""
        self._element, self._big = kind
        self.dtype = self._element.name
        self.shape = shape
        self._data = data
        self._strides = c_strides(shape) if strides is None else strides
        self._offset = offset

    @property
    def size(self) -> int:
        """Number of elements over all axes."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        """Return the number of elements over all axes, as many as iteration yields."""
        return self.size

    def __iter__(self) -> Iterator[Number]:
        """Yield all elements in row-major order; raise `PickleError` if they cannot be read."""
        return iter(self._elements())

    def to_list(self) -> list[Number]:
        """Return all elements in row-major order as one flat list; raise `PickleError` if they cannot be read."""
        return list(self._elements())

    def item(self) -> Number:
        """Return the element of an array of one; raise `PickleError` for any other size."""
        if self.size != 1:
            raise PickleError(f"an array of {self.size} elements is not one number", 0)
        return self._elements()[0]

    def total(self) -> Number:
        """Return the sum over all elements: an exact int for integers and bools, else a float rounded once."""
        values = self._elements()
        if self._element.code in {"bf16", "e", "f", "d"}:
            return float_total(list(values))
        return sum(values)

    def _elements(self) -> Sequence[Number]:
        if not self._element.width:
            raise PickleError(f"elements of type {self.dtype} are not plain numbers", 0)
        if not self.size:
            return []
        low, high = self._reach()
        width = self._element.width
        if low < 0 or (high - low) * width > MAX_ARRAY_BYTES:
            raise PickleError("an array beyond what is read at once", 0)
        if self._data is None:
            raise PickleError("the elements of the array are not in this file", 0)
        values = decode_elements(self._data.read(low * width, high * width), self._element, big=self._big)
        if self._strides == c_strides(self.shape):
            return values
        return self._gather(values, low)

    def _reach(self) -> tuple[int, int]:
        spans = [(length - 1) * stride for length, stride in zip(self.shape, self._strides, strict=True)]
        low = self._offset + sum(min(span, 0) for span in spans)
        return low, self._offset + sum(max(span, 0) for span in spans) + 1

    def _gather(self, values: Sequence[Number], low: int) -> list[Number]:
        if self.size > MAX_GATHERED:
            raise PickleError("an array beyond what is read at once", 0)
        axes = [
            range(0, length * stride, stride) if stride else (0,) * length
            for length, stride in zip(self.shape, self._strides, strict=True)
        ]
        start = self._offset - low
        return [values[start + sum(steps)] for steps in product(*axes)]

    def __repr__(self) -> str:
        """Return a bounded description that reads nothing."""
        return f"<array {self.dtype} of {len(self.shape)} axes>"
