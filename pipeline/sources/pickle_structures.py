"""The opcodes of pickle protocols 0 to 5 that make containers, use the memo, or name, call and fill objects.

None of them imports or calls what the stream names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.sources.inert import GlobalName, decode_text
from pipeline.sources.pickle_callables import build, construct, find_persistent, is_known
from pipeline.sources.pickle_machine import CONTAINER_COST, ENTRY_COST, OBJECT_COST, SET_COST
from pipeline.sources.pickle_scalars import decimal_line

if TYPE_CHECKING:
    from pipeline.sources.pickle_machine import PickleMachine
    from pipeline.sources.pickle_scalars import Opcode

_MAX_NAMES: Final = 1000
_MAX_NAME: Final = 200


# --- containers -----------------------------------------------------------------------------------------------------


def _mark(machine: PickleMachine) -> None:
    machine.charge(CONTAINER_COST)
    machine.below.append(machine.stack)
    machine.stack = []


def _pop(machine: PickleMachine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


def _pop_mark(machine: PickleMachine) -> None:
    machine.pop_mark()


def _duplicate(machine: PickleMachine) -> None:
    machine.duplicate()


def _empty_list(machine: PickleMachine) -> None:
    machine.push_list()


def _list(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.stack.append(values)


def _append(machine: PickleMachine) -> None:
    value = machine.stack.pop()
    target = machine.stack[-1]
    if type(target) is list:
        target.append(value)
    else:
        machine.extend([value])


def _appends(machine: PickleMachine) -> None:
    machine.extend(machine.pop_mark())


def _empty_dict(machine: PickleMachine) -> None:
    machine.charge(CONTAINER_COST)
    machine.stack.append({})


def _dict(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(CONTAINER_COST)
    machine.stack.append({})
    machine.set_items(machine.stack[-1], values)


def _set_item(machine: PickleMachine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    machine.set_items(machine.stack[-1], [key, value])


def _set_items(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    target = machine.stack[-1]
    if values:
        machine.set_items(target, values)


def _empty_set(machine: PickleMachine) -> None:
    machine.charge(SET_COST)
    machine.stack.append(set())


def _add_items(machine: PickleMachine) -> None:
    machine.add(machine.pop_mark())


def _frozenset(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(SET_COST + len(values) * ENTRY_COST)
    machine.stack.append(frozenset([machine.key(value) for value in values]))


def _tuple(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(CONTAINER_COST + 8 * len(values))
    machine.stack.append(tuple(values))


def _empty_tuple(machine: PickleMachine) -> None:
    machine.stack.append(())


def _tuple_1(machine: PickleMachine) -> None:
    _push_tuple(machine, 1)


def _tuple_2(machine: PickleMachine) -> None:
    _push_tuple(machine, 2)


def _tuple_3(machine: PickleMachine) -> None:
    _push_tuple(machine, 3)


def _push_tuple(machine: PickleMachine, size: int) -> None:
    stack = machine.stack
    if len(stack) < size:
        machine.fail("stack underflow")
    machine.charge(CONTAINER_COST)
    stack[-size:] = [tuple(stack[-size:])]


# --- the memo -------------------------------------------------------------------------------------------------------


def _put_1(machine: PickleMachine) -> None:
    machine.put(machine.window[machine.pos])
    machine.pos += 1


def _put_4(machine: PickleMachine) -> None:
    machine.put(machine.unsigned(4))


def _put_line(machine: PickleMachine) -> None:
    machine.put(_index(machine))


def _memoize(machine: PickleMachine) -> None:
    machine.put(len(machine.memo))


def _get_1(machine: PickleMachine) -> None:
    machine.get(machine.window[machine.pos])
    machine.pos += 1


def _get_4(machine: PickleMachine) -> None:
    machine.get(machine.unsigned(4))


def _get_line(machine: PickleMachine) -> None:
    machine.get(_index(machine))


def _index(machine: PickleMachine) -> int:
    index = decimal_line(machine, machine.line())
    if index < 0:
        machine.fail("a negative memo index")
    return index


# --- names, calls and objects ---------------------------------------------------------------------------------------


def _push_global(machine: PickleMachine, module: str, name: str) -> None:
    machine.charge(OBJECT_COST + len(module) + len(name))
    if len(machine.seen) < _MAX_NAMES and not is_known(module, name):
        machine.seen.add(f"{module}.{name}"[:_MAX_NAME])
    machine.stack.append(GlobalName(module, name))


def _name_line(machine: PickleMachine) -> str:
    return decode_text(machine.line(), machine.base + machine.pos)


def _global(machine: PickleMachine) -> None:
    module = _name_line(machine)
    _push_global(machine, module, _name_line(machine))


def _stack_global(machine: PickleMachine) -> None:
    name = machine.stack.pop()
    module = machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        machine.fail("a class named by something that is not text")
    _push_global(machine, module, name)


def _call(machine: PickleMachine) -> None:
    args = machine.stack.pop()
    machine.stack[-1] = construct(machine, machine.stack[-1], args)


def _new_object_ex(machine: PickleMachine) -> None:
    keywords = machine.stack.pop()
    args = machine.stack.pop()
    if type(keywords) is not dict or type(args) is not tuple:
        machine.fail("the arguments of a call are not a tuple and a dictionary")
    machine.stack[-1] = construct(machine, machine.stack[-1], (*args, keywords) if keywords else args)
    machine.charge(8 * len(args))


def _instance(machine: PickleMachine) -> None:
    module = _name_line(machine)
    _push_global_below(machine, module, _name_line(machine))


def _push_global_below(machine: PickleMachine, module: str, name: str) -> None:
    args = tuple(machine.pop_mark())
    _push_global(machine, module, name)
    machine.charge(8 * len(args))
    machine.stack[-1] = construct(machine, machine.stack[-1], args)


def _object(machine: PickleMachine) -> None:
    values = machine.pop_mark()
    machine.charge(8 * len(values))
    machine.stack.append(construct(machine, values[0], tuple(values[1:])))


def _build(machine: PickleMachine) -> None:
    state = machine.stack.pop()
    build(machine, machine.stack[-1], state)


def _persistent_line(machine: PickleMachine) -> None:
    machine.stack.append(find_persistent(machine, _name_line(machine)))


def _persistent(machine: PickleMachine) -> None:
    machine.stack[-1] = find_persistent(machine, machine.stack[-1])


def _extension(machine: PickleMachine) -> None:
    machine.fail("codes of the extension registry are not supported")


STRUCTURE_OPCODES: Final[dict[bytes, Opcode]] = {
    b"(": _mark,
    b"0": _pop,
    b"1": _pop_mark,
    b"2": _duplicate,
    b"]": _empty_list,
    b"l": _list,
    b"a": _append,
    b"e": _appends,
    b"}": _empty_dict,
    b"d": _dict,
    b"s": _set_item,
    b"u": _set_items,
    b"\x8f": _empty_set,
    b"\x90": _add_items,
    b"\x91": _frozenset,
    b"t": _tuple,
    b")": _empty_tuple,
    b"\x85": _tuple_1,
    b"\x86": _tuple_2,
    b"\x87": _tuple_3,
    b"q": _put_1,
    b"r": _put_4,
    b"p": _put_line,
    b"\x94": _memoize,
    b"h": _get_1,
    b"j": _get_4,
    b"g": _get_line,
    b"c": _global,
    b"\x93": _stack_global,
    b"R": _call,
    b"\x81": _call,
    b"\x92": _new_object_ex,
    b"i": _instance,
    b"o": _object,
    b"b": _build,
    b"P": _persistent_line,
    b"Q": _persistent,
    b"\x82": _extension,
    b"\x83": _extension,
    b"\x84": _extension,
}
"""Opcode byte to function."""
