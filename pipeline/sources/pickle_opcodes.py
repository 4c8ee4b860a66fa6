"""The opcodes of pickle protocols 0 to 5, each as a function on the machine. None imports or calls anything."""

from __future__ import annotations

import codecs
import math
import re
import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from pipeline.sources.inert import GlobalName, LongBytes, decode_text
from pipeline.sources.pickle_callables import build, construct, find_persistent, is_known
from pipeline.sources.pickle_machine import CONTAINER_COST, ENTRY_COST, SET_COST

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.sources.pickle_machine import PickleMachine

Opcode: TypeAlias = "Callable[[PickleMachine], None]"

_HIGHEST_PROTOCOL: Final = 5
_DECIMAL: Final = re.compile(rb"-?(?:0|[1-9][0-9]{0,2399})")
_FLOAT: Final = re.compile(rb"[-+0-9.eEinfaN]{1,400}")
_unpack_float = struct.Struct(">d").unpack_from
_unpack_int = struct.Struct("<i").unpack_from


class Finished(Exception):
    """Raised by STOP to leave the loop."""


def _unknown(machine: PickleMachine) -> None:
    machine.pos -= 1
    machine.fail(f"unknown opcode 0x{machine.window[machine.pos]:02x}")


OPCODES: Final[list[Opcode]] = [_unknown] * 256


def _opcode(code: bytes) -> Callable[[Opcode], Opcode]:
    def register(function: Opcode) -> Opcode:
        OPCODES[code[0]] = function
        return function

    return register


# --- framing --------------------------------------------------------------------------------------------------------


@_opcode(b"\x80")
def _proto(machine: PickleMachine) -> None:
    protocol = machine.unsigned(1)
    if protocol > _HIGHEST_PROTOCOL:
        machine.fail(f"pickle protocol {protocol} is not known")


@_opcode(b"\x95")
def _frame(machine: PickleMachine) -> None:
    machine.skip_frame_header()


@_opcode(b".")
def _stop(_machine: PickleMachine) -> None:
    raise Finished


# --- constants and numbers ------------------------------------------------------------------------------------------


@_opcode(b"N")
def _none(machine: PickleMachine) -> None:
    machine.stack.append(None)


@_opcode(b"\x88")
def _true(machine: PickleMachine) -> None:
    machine.stack.append(True)


@_opcode(b"\x89")
def _false(machine: PickleMachine) -> None:
    machine.stack.append(False)


@_opcode(b"K")
def _int_1(machine: PickleMachine) -> None:
    machine.stack.append(machine.window[machine.pos])
    machine.pos += 1


@_opcode(b"M")
def _int_2(machine: PickleMachine) -> None:
    machine.stack.append(machine.unsigned(2))


@_opcode(b"J")
def _int_4(machine: PickleMachine) -> None:
    machine.stack.append(_unpack_int(machine.window, machine.pos)[0])
    machine.pos += 4


@_opcode(b"\x8a")
def _long_1(machine: PickleMachine) -> None:
    machine.push_int(machine.unsigned(1))


@_opcode(b"\x8b")
def _long_4(machine: PickleMachine) -> None:
    machine.push_int(machine.unsigned(4))


@_opcode(b"G")
def _float_8(machine: PickleMachine) -> None:
    machine.stack.append(_unpack_float(machine.window, machine.pos)[0])
    machine.pos += 8


@_opcode(b"I")
def _int_line(machine: PickleMachine) -> None:
    line = machine.line()
    if line in (b"00", b"01"):
        machine.stack.append(line == b"01")
    else:
        machine.stack.append(_decimal(machine, line))


@_opcode(b"L")
def _long_line(machine: PickleMachine) -> None:
    machine.stack.append(_decimal(machine, machine.line().removesuffix(b"L")))


def _decimal(machine: PickleMachine, line: bytes) -> int:
    if not _DECIMAL.fullmatch(line):
        machine.fail("an integer that is not spelled in decimal, or too long")
    return int(line)


@_opcode(b"F")
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


@_opcode(b"X")
def _text_4(machine: PickleMachine) -> None:
    pos = machine.pos
    machine.pos = pos + 4
    machine.push_text(int.from_bytes(machine.window[pos : pos + 4], "little"))


@_opcode(b"\x8c")
def _text_1(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(1))


@_opcode(b"\x8d")
def _text_8(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(8))


# Python 2 spells text with the opcodes of byte strings; it is read as UTF-8, of which ASCII is a part.
@_opcode(b"T")
def _string_4(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(4))


@_opcode(b"U")
def _string_1(machine: PickleMachine) -> None:
    machine.push_text(machine.unsigned(1))


@_opcode(b"S")
def _string_line(machine: PickleMachine) -> None:
    line = machine.line().rstrip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        machine.fail("a quoted text without quotes")
    try:
        raw, _ = codecs.escape_decode(line[1:-1])  # type: ignore[attr-defined]
    except ValueError:
        machine.fail("a quoted text with a wrong escape")
    machine.stack.append(decode_text(raw, machine.base + machine.pos))


@_opcode(b"V")
def _text_line(machine: PickleMachine) -> None:
    line = machine.line()
    machine.charge(4 * len(line))
    try:
        machine.stack.append(line.decode("raw-unicode-escape"))
    except UnicodeDecodeError:
        machine.fail("a text with a wrong escape")


@_opcode(b"C")
def _bytes_1(machine: PickleMachine) -> None:
    machine.push_bytes(machine.unsigned(1))


@_opcode(b"B")
def _bytes_4(machine: PickleMachine) -> None:
    machine.push_bytes(machine.unsigned(4))


@_opcode(b"\x8e")
@_opcode(b"\x96")
def _bytes_8(machine: PickleMachine) -> None:
    machine.push_bytes(machine.unsigned(8))


@_opcode(b"\x97")
def _next_buffer(machine: PickleMachine) -> None:
    machine.fail("the stream wants a buffer from outside")


@_opcode(b"\x98")
def _readonly_buffer(machine: PickleMachine) -> None:
    if not isinstance(machine.stack[-1], bytes | LongBytes):
        machine.fail("a buffer that is not bytes")


# --- containers -----------------------------------------------------------------------------------------------------


@_opcode(b"(")
def _mark(machine: PickleMachine) -> None:
    machine.charge(CONTAINER_COST)
    machine.below.append(machine.stack)
    machine.stack = []


@_opcode(b"0")
def _pop(machine: PickleMachine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


@_opcode(b"1")
def _pop_mark(machine: PickleMachine) -> None:
    machine.pop_mark()


@_opcode(b"2")
def _duplicate(machine: PickleMachine) -> None:
    machine.duplicate()


@_opcode(b"]")
def _empty_list(machine: PickleMachine) -> None:
    machine.push_list()


@_opcode(b"l")
def _list(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.stack.append(values)


@_opcode(b"a")
def _append(machine: PickleMachine) -> None:
    value = machine.stack.pop()
    target = machine.stack[-1]
    if type(target) is list:
        target.append(value)
    else:
        machine.extend([value])


@_opcode(b"e")
def _appends(machine: PickleMachine) -> None:
    machine.extend(machine.pop_mark())


@_opcode(b"}")
def _empty_dict(machine: PickleMachine) -> None:
    machine.charge(CONTAINER_COST)
    machine.stack.append({})


@_opcode(b"d")
def _dict(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(CONTAINER_COST)
    machine.stack.append({})
    machine.set_items(machine.stack[-1], values)


@_opcode(b"s")
def _set_item(machine: PickleMachine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    machine.set_items(machine.stack[-1], [key, value])


@_opcode(b"u")
def _set_items(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    target = machine.stack[-1]
    if values:
        machine.set_items(target, values)


@_opcode(b"\x8f")
def _empty_set(machine: PickleMachine) -> None:
    machine.charge(SET_COST)
    machine.stack.append(set())


@_opcode(b"\x90")
def _add_items(machine: PickleMachine) -> None:
    machine.add(machine.pop_mark())


@_opcode(b"\x91")
def _frozenset(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(SET_COST + len(values) * ENTRY_COST)
    machine.stack.append(frozenset([machine.key(value) for value in values]))


@_opcode(b"t")
def _tuple(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(CONTAINER_COST + 8 * len(values))
    machine.stack.append(tuple(values))


@_opcode(b")")
def _empty_tuple(machine: PickleMachine) -> None:
    machine.stack.append(())


@_opcode(b"\x85")
def _tuple_1(machine: PickleMachine) -> None:
    _push_tuple(machine, 1)


@_opcode(b"\x86")
def _tuple_2(machine: PickleMachine) -> None:
    _push_tuple(machine, 2)


@_opcode(b"\x87")
def _tuple_3(machine: PickleMachine) -> None:
    _push_tuple(machine, 3)


def _push_tuple(machine: PickleMachine, size: int) -> None:
    stack = machine.stack
    if len(stack) < size:
        machine.fail("stack underflow")
    machine.charge(CONTAINER_COST)
    stack[-size:] = [tuple(stack[-size:])]


# --- the memo -------------------------------------------------------------------------------------------------------


@_opcode(b"q")
def _put_1(machine: PickleMachine) -> None:
    machine.put(machine.window[machine.pos])
    machine.pos += 1


@_opcode(b"r")
def _put_4(machine: PickleMachine) -> None:
    machine.put(machine.unsigned(4))


@_opcode(b"p")
def _put_line(machine: PickleMachine) -> None:
    machine.put(_index(machine))


@_opcode(b"\x94")
def _memoize(machine: PickleMachine) -> None:
    machine.put(len(machine.memo))


@_opcode(b"h")
def _get_1(machine: PickleMachine) -> None:
    machine.get(machine.window[machine.pos])
    machine.pos += 1


@_opcode(b"j")
def _get_4(machine: PickleMachine) -> None:
    machine.get(machine.unsigned(4))


@_opcode(b"g")
def _get_line(machine: PickleMachine) -> None:
    machine.get(_index(machine))


def _index(machine: PickleMachine) -> int:
    index = _decimal(machine, machine.line())
    if index < 0:
        machine.fail("a negative memo index")
    return index


# --- names, calls and objects ---------------------------------------------------------------------------------------


def _push_global(machine: PickleMachine, module: str, name: str) -> None:
    machine.charge(ENTRY_COST + len(module) + len(name))
    if not is_known(module, name):
        machine.charge(ENTRY_COST)
        machine.seen.add((module, name))
    machine.stack.append(GlobalName(module, name))


def _name_line(machine: PickleMachine) -> str:
    return decode_text(machine.line(), machine.base + machine.pos)


@_opcode(b"c")
def _global(machine: PickleMachine) -> None:
    module = _name_line(machine)
    _push_global(machine, module, _name_line(machine))


@_opcode(b"\x93")
def _stack_global(machine: PickleMachine) -> None:
    name = machine.stack.pop()
    module = machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        machine.fail("a class named by something that is not text")
    _push_global(machine, module, name)


@_opcode(b"R")
@_opcode(b"\x81")
def _call(machine: PickleMachine) -> None:
    args = machine.stack.pop()
    machine.stack[-1] = construct(machine, machine.stack[-1], args)


@_opcode(b"\x92")
def _new_object_ex(machine: PickleMachine) -> None:
    keywords = machine.stack.pop()
    args = machine.stack.pop()
    if type(keywords) is not dict or type(args) is not tuple:
        machine.fail("the arguments of a call are not a tuple and a dictionary")
    machine.stack[-1] = construct(machine, machine.stack[-1], (*args, keywords) if keywords else args)
    machine.charge(8 * len(args))


@_opcode(b"i")
def _instance(machine: PickleMachine) -> None:
    module = _name_line(machine)
    _push_global_below(machine, module, _name_line(machine))


def _push_global_below(machine: PickleMachine, module: str, name: str) -> None:
    args = tuple(machine.pop_mark())
    _push_global(machine, module, name)
    machine.charge(8 * len(args))
    machine.stack[-1] = construct(machine, machine.stack[-1], args)


@_opcode(b"o")
def _object(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(8 * len(values))
    machine.stack.append(construct(machine, values[0], tuple(values[1:])))


@_opcode(b"b")
def _build(machine: PickleMachine) -> None:
    state = machine.stack.pop()
    build(machine, machine.stack[-1], state)


@_opcode(b"P")
def _persistent_line(machine: PickleMachine) -> None:
    machine.stack.append(find_persistent(machine, _name_line(machine)))


@_opcode(b"Q")
def _persistent(machine: PickleMachine) -> None:
    machine.stack[-1] = find_persistent(machine, machine.stack[-1])


@_opcode(b"\x82")
@_opcode(b"\x83")
@_opcode(b"\x84")
def _extension(machine: PickleMachine) -> None:
    machine.fail("codes of the extension registry are not supported")
