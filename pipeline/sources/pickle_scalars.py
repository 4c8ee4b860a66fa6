"""The opcodes of pickle protocols 0 to 5 that frame the stream or push a number, a text or bytes."""

from __future__ import annotations

import codecs
import math
import re
import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from pipeline.sources.inert import LongBytes, decode_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.sources.pickle_machine import PickleMachine

Opcode: TypeAlias = "Callable[[PickleMachine], None]"

_HIGHEST_PROTOCOL: Final = 5
_DECIMAL: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,2399})")
_FLOAT: Final = re.compile(rb"[-+0-9.eEinfaN]{1,400}")
_QUOTED: Final = re.compile(rb"'.*'|\".*\"", re.DOTALL)
_unpack_float = struct.Struct(">d").unpack_from
_unpack_int = struct.Struct("<i").unpack_from


class Finished(Exception):  # noqa: N818 -- it ends a stream that is well
    """Raised by STOP to leave the loop."""


# --- framing --------------------------------------------------------------------------------------------------------


def _proto(machine: PickleMachine) -> None:
    protocol = machine.unsigned(1)
    if protocol > _HIGHEST_PROTOCOL:
        machine.fail(f"pickle protocol {protocol} is not known")


def _frame(machine: PickleMachine) -> None:
    machine.skip_frame_header()


def _stop(_machine: PickleMachine) -> None:
    raise Finished


# --- constants and numbers ------------------------------------------------------------------------------------------


def _none(machine: PickleMachine) -> None:
    machine.stack.append(None)


def _true(machine: PickleMachine) -> None:
    machine.stack.append(True)


def _false(machine: PickleMachine) -> None:
    machine.stack.append(False)


def _int_1(machine: PickleMachine) -> None:
    machine.stack.append(machine.window[machine.pos])
    machine.pos += 1


def _int_2(machine: PickleMachine) -> None:
    machine.stack.append(machine.unsigned(2))


def _int_4(machine: PickleMachine) -> None:
    machine.stack.append(_unpack_int(machine.window, machine.pos)[0])
    machine.pos += 4


def _long_1(machine: PickleMachine) -> None:
    machine.push_int(machine.unsigned(1))


def _long_4(machine: PickleMachine) -> None:
    machine.push_int(machine.unsigned(4))


def _float_8(machine: PickleMachine) -> None:
    machine.stack.append(_unpack_float(machine.window, machine.pos)[0])
    machine.pos += 8


def _int_line(machine: PickleMachine) -> None:
    line = machine.line()
    if line in (b"00", b"01"):
        machine.stack.append(line == b"01")
    else:
        machine.stack.append(decimal_line(machine, line))


def _long_line(machine: PickleMachine) -> None:
    machine.stack.append(decimal_line(machine, machine.line().removesuffix(b"L")))


def decimal_line(machine: PickleMachine, line: bytes) -> int:
    """Return the integer spelled in `line`; refuse other spellings than plain decimal, and very long ones."""
    if not _DECIMAL.fullmatch(line):
        machine.fail("an integer that is not spelled in decimal, or too long")
    return int(line)


def _float_line(machine: PickleMachine) -> None:
    line = machine.line()
    try:
        value = float(line) if _FLOAT.fullmatch(line) else None
    except ValueError:
        value = None
    if value is None or (math.isinf(value) and b"i" not in line):
        machine.fail("a float that cannot be read")
    machine.stack.append(value)


# --- text and bytes -------------------------------------------------------------------------------------------------


def _text_4(machine: PickleMachine) -> None:
    pos = machine.pos
    machine.pos = pos + 4
    machine.push_text(int.from_bytes(machine.window[pos : pos + 4], "little"))


def _text_1(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(1))


def _text_8(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(8))


# Python 2 spells text with the opcodes of byte strings; it is read as UTF-8, of which ASCII is a part.
def _string_4(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(4))


def _string_1(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(1))


def _string_line(machine: PickleMachine) -> None:
    line = machine.line().rstrip()
    if not _QUOTED.fullmatch(line):
        machine.fail("a quoted text without quotes")
    try:
        raw, _ = codecs.escape_decode(line[1:-1])
    except ValueError:
        machine.fail("a quoted text with a wrong escape")
    machine.stack.append(decode_text(raw, machine.base + machine.pos))


def _text_line(machine: PickleMachine) -> None:
    line = machine.line()
    machine.charge(4 * len(line))
    try:
        machine.stack.append(line.decode("raw-unicode-escape"))
    except UnicodeDecodeError:
        machine.fail("a text with a wrong escape")


def _bytes_1(machine: PickleMachine) -> None:
    machine.push_bytes(machine.unsigned(1))


def _bytes_4(machine: PickleMachine) -> None:
    machine.push_bytes(machine.unsigned(4))


def _bytes_8(machine: PickleMachine) -> None:
    machine.push_bytes(machine.unsigned(8))


def _next_buffer(machine: PickleMachine) -> None:
    machine.fail("the stream wants a buffer from outside")


def _readonly_buffer(machine: PickleMachine) -> None:
    if not isinstance(machine.stack[-1], bytes | LongBytes):
        machine.fail("a buffer that is not bytes")


SCALAR_OPCODES: Final[dict[bytes, Opcode]] = {
    b"\x80": _proto,
    b"\x95": _frame,
    b".": _stop,
    b"N": _none,
    b"\x88": _true,
    b"\x89": _false,
    b"K": _int_1,
    b"M": _int_2,
    b"J": _int_4,
    b"\x8a": _long_1,
    b"\x8b": _long_4,
    b"G": _float_8,
    b"I": _int_line,
    b"L": _long_line,
    b"F": _float_line,
    b"X": _text_4,
    b"\x8c": _text_1,
    b"\x8d": _text_8,
    b"T": _string_4,
    b"U": _string_1,
    b"S": _string_line,
    b"V": _text_line,
    b"C": _bytes_1,
    b"B": _bytes_4,
    b"\x8e": _bytes_8,
    b"\x96": _bytes_8,
    b"\x97": _next_buffer,
    b"\x98": _readonly_buffer,
}
"""Opcode byte to function."""
