"""What the few classes and functions that are known come out as. Everything else becomes a `Placeholder`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

from pipeline.sources.arrays import (
    ArrayValue,
    DType,
    Element,
    HeldBytes,
    RawData,
    Storage,
    decode_elements,
    numpy_element,
    torch_element,
    torch_storage_element,
)
from pipeline.sources.inert import GlobalName, LatinBytes, LongBytes, LongText, Placeholder
from pipeline.sources.number_list import NumberList
from pipeline.sources.pickle_machine import CONTAINER_COST, ENTRY_COST, OBJECT_COST, SET_COST

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.sources.pickle_machine import PickleMachine

Args: TypeAlias = tuple[object, ...]
Constructor: TypeAlias = "Callable[[PickleMachine, Args], object]"

_UNKNOWN: Final = object()
"""Returned by a constructor whose arguments are not the ones it knows."""
_MAX_AXES: Final = 64
_MAX_LENGTH: Final = 1 << 48


def construct(machine: PickleMachine, function: object, args: object) -> object:
    """Return what calling `function` with `args` comes out as; nothing is called."""
    if type(args) is not tuple:
        machine.fail("the arguments of a call are not a tuple")
    machine.charge(OBJECT_COST)
    if not isinstance(function, GlobalName):
        return Placeholder("", "<call>", (function, *args[:8]))
    constructor = _CONSTRUCTORS.get(function.qualified)
    if constructor is not None:
        value = constructor(machine, args)
        if value is not _UNKNOWN:
            return value
    return Placeholder(function.module, function.name, args)


def build(machine: PickleMachine, target: object, state: object) -> None:
    """Give `state` to `target`, as BUILD would."""
    if isinstance(target, Placeholder):
        _give_state(machine, target, state)
    elif isinstance(target, ArrayValue):
        _fill_array(machine, target, state)
    elif isinstance(target, DType):
        _fill_dtype(machine, target, state)
    elif type(target) not in {dict, list, set}:
        machine.fail(f"{type(target).__name__} takes no state")


def is_known(module: str, name: str) -> bool:
    """Whether the class or function is one this reader understands."""
    if module in {"torch", "torch.storage"} and (name.endswith("Storage") or torch_element(name).width):
        return True
    return f"{module}.{name}" in _KNOWN


def _give_state(machine: PickleMachine, target: Placeholder, state: object) -> None:
    parts = state if type(state) is tuple and len(state) == 2 else (state, None)
    if not all(part is None or type(part) is dict for part in parts):
        parts = ({"__state__": state}, None)
    for part in cast("tuple[dict[object, object] | None, ...]", parts):
        if part is None:
            continue
        if target.state is None:
            target.state = part
            continue
        machine.charge((len(target.state) + len(part)) * ENTRY_COST)
        target.state = target.state | part


# --- builtins and collections ---------------------------------------------------------------------------------------


def _values(machine: PickleMachine, value: object, cost: int) -> list[object] | None:
    if type(value) is NumberList:
        machine.charge(value.stored_bytes * 20)
        return cast("list[object]", value.to_list())
    if type(value) not in {list, tuple, set, frozenset}:
        return None
    found = list(cast("list[object]", value))
    machine.charge(CONTAINER_COST + len(found) * cost)
    return found


def _make_list(machine: PickleMachine, args: Args) -> object:
    if not args:
        return []
    found = _values(machine, args[0], 8)
    return _UNKNOWN if found is None else found


def _make_tuple(machine: PickleMachine, args: Args) -> object:
    found = _values(machine, args[0], 16) if args else []
    return _UNKNOWN if found is None else tuple(found)


def _make_set(machine: PickleMachine, args: Args) -> object:
    machine.charge(SET_COST)
    found = _values(machine, args[0], ENTRY_COST) if args else []
    return _UNKNOWN if found is None else {machine.key(value) for value in found}


def _make_frozenset(machine: PickleMachine, args: Args) -> object:
    found = _make_set(machine, args)
    return frozenset(found) if isinstance(found, set) else _UNKNOWN


def _make_dict(machine: PickleMachine, args: Args) -> object:
    found: dict[object, object] = {}
    if not args:
        return found
    if type(args[0]) is dict:
        machine.charge(len(args[0]) * ENTRY_COST)
        return dict(args[0])
    pairs = _values(machine, args[0], ENTRY_COST)
    if pairs is None or not all(type(pair) in {list, tuple} and len(cast("Args", pair)) == 2 for pair in pairs):
        return _UNKNOWN
    for key, value in cast("list[Args]", pairs):
        found[machine.key(key)] = value
    return found


def _make_defaultdict(machine: PickleMachine, args: Args) -> object:
    return _make_dict(machine, args[1:])


def _make_bytes(machine: PickleMachine, args: Args) -> object:
    if not args:
        return b""
    if len(args) == 1 and type(args[0]) in {bytes, LongBytes, LatinBytes}:
        return args[0]
    return _encode(machine, args) if len(args) == 2 else _UNKNOWN


def _encode(machine: PickleMachine, args: Args) -> object:
    if len(args) != 2 or args[1] not in ("latin1", "latin-1"):
        return _UNKNOWN
    if type(args[0]) is LongText:
        return LatinBytes(args[0])
    if type(args[0]) is not str:
        return _UNKNOWN
    machine.charge(len(args[0]))
    try:
        return args[0].encode("latin-1")
    except UnicodeEncodeError:
        machine.fail("text that should spell bytes has other characters")


def _reconstruct(machine: PickleMachine, args: Args) -> object:
    """Follow `copyreg._reconstructor(cls, base, state)`, which protocols 0 and 1 use for every class."""
    if len(args) != 3 or not isinstance(args[0], GlobalName):
        return _UNKNOWN
    if isinstance(args[1], GlobalName) and args[1].name == "object":
        return construct(machine, args[0], ())
    return construct(machine, args[0], (args[2],))


def _new_object(machine: PickleMachine, args: Args) -> object:
    if not args or not isinstance(args[0], GlobalName) or args[0].qualified in _PLUMBING:
        return _UNKNOWN
    return construct(machine, args[0], args[1:])


# --- numpy ----------------------------------------------------------------------------------------------------------


def _dtype(_machine: PickleMachine, args: Args) -> object:
    if not args or type(args[0]) is not str:
        return _UNKNOWN
    return DType(numpy_element(args[0]), args[0].startswith(">"))


def _fill_dtype(machine: PickleMachine, target: DType, state: object) -> None:
    if type(state) is not tuple or len(state) < 2 or type(state[1]) is not str:
        machine.fail("a numpy dtype with a state of another shape")
    target.big = state[1] == ">"


def _blank_array(_machine: PickleMachine, _args: Args) -> object:
    return ArrayValue()


def _fill_array(machine: PickleMachine, target: ArrayValue, state: object) -> None:
    # (version, shape, dtype, is_fortran, raw); version is missing in very old files.
    fields = state[-4:] if type(state) is tuple and len(state) in {4, 5} else ()
    if len(fields) != 4 or not isinstance(fields[1], DType):
        machine.fail("a numpy array with a state of another shape")
    shape, dtype, fortran, raw = fields
    _describe_numpy(machine, target, (shape, dtype, fortran is True, raw))


def _describe_numpy(machine: PickleMachine, target: ArrayValue, fields: tuple[object, DType, bool, object]) -> None:
    shape = _lengths(machine, fields[0])
    _, dtype, fortran, raw = fields
    data = _raw_data(raw)
    size = dtype.element.width
    for length in shape:
        size *= length
    if dtype.element.width and (data is None or not data.may_hold(size)):
        machine.fail("a numpy array whose bytes do not fit its shape")
    target.describe((dtype.element, dtype.big), shape, data, strides=_fortran_strides(shape) if fortran else None)


def _raw_data(raw: object) -> RawData | None:
    if type(raw) is bytes:
        return HeldBytes(raw)
    return raw if isinstance(raw, LongBytes | LatinBytes) else None


def _fortran_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for length in shape:
        strides.append(step)
        step *= max(length, 1)
    return tuple(strides)


def _from_buffer(machine: PickleMachine, args: Args) -> object:
    if len(args) != 4 or not isinstance(args[1], DType):
        return _UNKNOWN
    found = ArrayValue()
    _describe_numpy(machine, found, (args[2], args[1], args[3] == "F", args[0]))
    return found


def _scalar(machine: PickleMachine, args: Args) -> object:
    if len(args) != 2 or not isinstance(args[0], DType) or not args[0].element.width or type(args[1]) is not bytes:
        return _UNKNOWN
    if len(args[1]) != args[0].element.width:
        machine.fail("a numpy scalar of the wrong size")
    return decode_elements(args[1], args[0].element, args[0].big)[0]


def _lengths(machine: PickleMachine, shape: object) -> tuple[int, ...]:
    if type(shape) is not tuple or len(shape) > _MAX_AXES or not all(_is_length(length) for length in shape):
        machine.fail("an array with an impossible shape")
    return cast("tuple[int, ...]", shape)


def _is_length(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_LENGTH


# --- torch ----------------------------------------------------------------------------------------------------------


def find_persistent(machine: PickleMachine, found: object) -> object:
    """Return what the persistent id `found` stands for: a torch storage, else a placeholder."""
    machine.charge(OBJECT_COST)
    if type(found) is tuple and len(found) >= 5 and found[0] == "storage":
        _, storage_class, key, _, count = found[:5]
        if isinstance(storage_class, GlobalName) and type(key) is str and _is_length(count):
            element = torch_storage_element(storage_class.name)
            storage = machine.find_storage(key, element.name, cast("int", count))
            return storage or Storage(element, cast("int", count), None, False)
    return Placeholder("", "<persistent id>", (found,))


def _tensor(machine: PickleMachine, args: Args) -> object:
    if len(args) < 4 or not isinstance(args[0], Storage):
        return _UNKNOWN
    return _describe_tensor(machine, args, args[0].element)


def _tensor_v3(machine: PickleMachine, args: Args) -> object:
    if len(args) < 7 or not isinstance(args[0], Storage) or not isinstance(args[6], GlobalName):
        return _UNKNOWN
    return _describe_tensor(machine, args, torch_element(args[6].name))


def _describe_tensor(machine: PickleMachine, args: Args, element: Element) -> object:
    storage, offset, size, stride = cast("tuple[Storage, object, object, object]", args[:4])
    shape = _lengths(machine, size)
    strides = _lengths(machine, stride)
    if not _is_length(offset) or len(strides) != len(shape):
        machine.fail("a tensor with an impossible layout")
    start = cast("int", offset)
    last = start + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    held = storage.count * storage.element.width
    if 0 not in shape and storage.element.width and element.width and (last + 1) * element.width > held:
        machine.fail("a tensor reaches beyond its storage")
    found = ArrayValue()
    found.describe((element, storage.big), shape, storage.data, strides=strides, offset=start)
    return found


def _parameter(_machine: PickleMachine, args: Args) -> object:
    return args[0] if args and isinstance(args[0], ArrayValue) else _UNKNOWN


_CONSTRUCTORS: Final[dict[str, Constructor]] = {
    "collections.OrderedDict": _make_dict,
    "collections.Counter": _make_dict,
    "collections.defaultdict": _make_defaultdict,
    "collections.deque": _make_list,
    "_codecs.encode": _encode,
    "numpy.dtype": _dtype,
    "torch.Size": _make_tuple,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
}
for _module in ("builtins", "__builtin__"):
    _CONSTRUCTORS |= {
        f"{_module}.list": _make_list,
        f"{_module}.tuple": _make_tuple,
        f"{_module}.set": _make_set,
        f"{_module}.frozenset": _make_frozenset,
        f"{_module}.dict": _make_dict,
        f"{_module}.bytes": _make_bytes,
        f"{_module}.bytearray": _make_bytes,
    }
for _module in ("numpy.core", "numpy._core"):
    _CONSTRUCTORS |= {
        f"{_module}.multiarray._reconstruct": _blank_array,
        f"{_module}.multiarray.scalar": _scalar,
        f"{_module}.numeric._frombuffer": _from_buffer,
    }
_PLUMBING: Final = frozenset(
    {f"{module}.{name}" for module in ("copyreg", "copy_reg") for name in ("_reconstructor", "__newobj__")}
)
for _name in _PLUMBING:
    _CONSTRUCTORS[_name] = _reconstruct if _name.endswith("_reconstructor") else _new_object
_KNOWN: Final = frozenset(_CONSTRUCTORS) | {
    "miles.utils.types.AdapterRef",
    "miles.utils.types.RewardSpec",
    "numpy.ndarray",
    "builtins.object",
    "__builtin__.object",
}
