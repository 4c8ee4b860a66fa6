"""Reads pickle streams without unpickling them.

The stream is a program for a stack machine. This reader walks that program and never imports, calls or builds
anything it names: plain values come out plain, arrays and long texts as values that read the file when asked, and
everything else as a `Placeholder` that holds the name, the arguments and the attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final

from pipeline.sources.arrays import ArrayValue, Storage
from pipeline.sources.byte_source import BufferSource
from pipeline.sources.inert import (
    DEFAULT_LIMITS,
    GlobalName,
    LatinBytes,
    Limits,
    LongBytes,
    LongText,
    PickleError,
    Placeholder,
)
from pipeline.sources.number_list import NumberList
from pipeline.sources.pickle_machine import PickleMachine
from pipeline.sources.pickle_scalars import SCALAR_OPCODES, Finished, Opcode
from pipeline.sources.pickle_structures import STRUCTURE_OPCODES

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from pipeline.sources.byte_source import ByteSource

_SETTLE_EVERY: Final = 16_384


@dataclass(frozen=True, slots=True)
class Unpickled:
    """What one stream holds.

    Attributes:
        value: the value itself.
        seen_classes: classes and functions the stream names that this reader does not know, as `module.name` (at most
            1,000 of them, each cut to 200 characters).
        end: position of the byte after the stream.
    """

    value: object
    seen_classes: frozenset[str]
    end: int


def read_pickle(buffer: bytes | bytearray | memoryview | mmap.mmap, limits: Limits = DEFAULT_LIMITS) -> Unpickled:
    """Read the pickle at the start of `buffer`; lazy values keep referring to `buffer`.

    Raises:
        PickleError: the stream is malformed, or asks for more than `limits` allow.
    """
    return read_pickle_from(BufferSource(buffer), limits)


def read_pickle_from(
    source: ByteSource,
    limits: Limits = DEFAULT_LIMITS,
    *,
    start: int = 0,
    find_storage: Callable[[str, str, int], Storage | None] | None = None,
) -> Unpickled:
    """Read the pickle that begins at byte `start` of `source`.

    Args:
        source: the bytes; lazy values keep referring to it.
        limits: when to refuse the stream.
        start: position of its first byte.
        find_storage: gives the torch storage for a key, element name and number of elements; None if it has none.

    Raises:
        PickleError: the stream is malformed, or asks for more than `limits` allow.
    """
    machine = PickleMachine(source, limits, find_storage or _no_storage, start)
    _run(machine)
    if not machine.stack:
        machine.fail("the stream stops without a value")
    return Unpickled(machine.stack[-1], frozenset(machine.seen), machine.base + machine.pos)


def _no_storage(_key: str, _element: str, _count: int) -> Storage | None:
    return None


def _unknown(machine: PickleMachine) -> None:
    machine.pos -= 1
    machine.fail(f"unknown opcode 0x{machine.window[machine.pos]:02x}")


def _table() -> list[Opcode]:
    table: list[Opcode] = [_unknown] * 256
    for code, function in (SCALAR_OPCODES | STRUCTURE_OPCODES).items():
        table[code[0]] = function
    return table


_OPCODES: Final = _table()


def _run(machine: PickleMachine) -> None:
    try:
        while True:
            machine.settle(_SETTLE_EVERY)
            for _ in repeat(None, _SETTLE_EVERY):
                if machine.pos >= machine.soft:
                    machine.refill()
                code = machine.window[machine.pos]
                machine.pos += 1
                _OPCODES[code](machine)
    except Finished:
        return
    except IndexError:
        machine.fail("stack underflow")


__all__ = [
    "DEFAULT_LIMITS",
    "ArrayValue",
    "GlobalName",
    "LatinBytes",
    "Limits",
    "LongBytes",
    "LongText",
    "NumberList",
    "PickleError",
    "Placeholder",
    "Storage",
    "Unpickled",
    "read_pickle",
    "read_pickle_from",
]
