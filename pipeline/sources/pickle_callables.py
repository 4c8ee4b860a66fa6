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
    for part in _state_parts(state):
        if target.state is None:
            target.state = part
            continue
        machine.charge((len(target.state) + len(part)) * ENTRY_COST)
        target.state = target.state | part


def _state_parts(state: object) -> list[dict[object, object]]:
    match state:
        case dict():
            return [state]
        case (dict() | None as attributes, dict() | None as slots):
            return [part for part in (attributes, slots) if part is not None]
        case _:
            return [{"__state__": state}]


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
    if pairs is None:
        return _UNKNOWN
    for pair in pairs:
        match pair:
            case (key, value):
                found[machine.key(key)] = value
            case _:
                return _UNKNOWN
    return found


def _make_defaultdict(machine: PickleMachine, args: Args) -> object:
    return _make_dict(machine, args[1:])


def _make_bytes(machine: PickleMachine, args: Args) -> object:
    match args:
        case ():
            return b""
        case (bytes() | LongBytes() | LatinBytes() as raw,):
            return raw
        case _:
            return _encode(machine, args)


def _encode(machine: PickleMachine, args: Args) -> object:
    match args:
        case (LongText() as text, "latin1" | "latin-1"):
            return LatinBytes(text)
        case (str() as text, "latin1" | "latin-1"):
            machine.charge(len(text))
            return _latin(machine, text)
        case _:
            return _UNKNOWN


def _latin(machine: PickleMachine, text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        machine.fail("text that should spell bytes has other characters")


def _reconstruct(machine: PickleMachine, args: Args) -> object:
    """Follow `copyreg._reconstructor(cls, base, state)`, which protocols 0 and 1 use for every class."""
    match args:
        case (GlobalName() as found, GlobalName(name="object"), _):
            return construct(machine, found, ())
        case (GlobalName() as found, _, state):
            return construct(machine, found, (state,))
        case _:
            return _UNKNOWN


def _new_object(machine: PickleMachine, args: Args) -> object:
    if not args or not isinstance(args[0], GlobalName) or args[0].module in {"copyreg", "copy_reg"}:
        return _UNKNOWN
    return construct(machine, args[0], args[1:])


# --- numpy ----------------------------------------------------------------------------------------------------------


def _dtype(_machine: PickleMachine, args: Args) -> object:
    if not args or type(args[0]) is not str:
        return _UNKNOWN
    return DType(numpy_element(args[0]), big=args[0].startswith(">"))


def _fill_dtype(machine: PickleMachine, target: DType, state: object) -> None:
    match state:
        case (_, str() as order, *_):
            target.big = order == ">"
        case _:
            machine.fail("a numpy dtype with a state of another shape")


def _blank_array(_machine: PickleMachine, _args: Args) -> object:
    return ArrayValue()


def _fill_array(machine: PickleMachine, target: ArrayValue, state: object) -> None:
    # The first is a version number.
    match state:
        case (_, shape, DType() as dtype, fortran, raw):
            _describe_numpy(machine, target, (shape, dtype, fortran is True, raw))
        case _:
            machine.fail("a numpy array with a state of another shape")


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
    match args:
        case (raw, DType() as dtype, shape, order):
            found = ArrayValue()
            _describe_numpy(machine, found, (shape, dtype, order == "F", raw))
            return found
        case _:
            return _UNKNOWN


def _scalar(machine: PickleMachine, args: Args) -> object:
    match args:
        case (DType() as dtype, bytes() as raw) if dtype.element.width:
            if len(raw) != dtype.element.width:
                machine.fail("a numpy scalar of the wrong size")
            return decode_elements(raw, dtype.element, big=dtype.big)[0]
        case _:
            return _UNKNOWN


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
    match found:
        case ("storage", GlobalName() as storage_class, str() as key, _, int() as length, *_) if _is_length(length):
            element = torch_storage_element(storage_class.name)
            storage = machine.find_storage(key, element.name, length)
            return storage or Storage(element, length, data=None, big=False)
        case _:
            return Placeholder("", "<persistent id>", (found,))


def _tensor(machine: PickleMachine, args: Args) -> object:
    match args:
        case (Storage() as storage, offset, size, stride, *_):
            return _describe_tensor(machine, storage, storage.element, (offset, size, stride))
        case _:
            return _UNKNOWN


def _tensor_v3(machine: PickleMachine, args: Args) -> object:
    match args:
        case (Storage() as storage, offset, size, stride, _, _, GlobalName() as dtype, *_):
            return _describe_tensor(machine, storage, torch_element(dtype.name), (offset, size, stride))
        case _:
            return _UNKNOWN


def _describe_tensor(machine: PickleMachine, storage: Storage, element: Element, layout: Args) -> object:
    offset, size, stride = layout
    shape = _lengths(machine, size)
    strides = _lengths(machine, stride)
    if not _is_length(offset) or len(strides) != len(shape):
        machine.fail("a tensor with an impossible layout")
    start = cast("int", offset)
    last = start + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    held = storage.length * storage.element.width
    if 0 not in shape and storage.element.width and element.width and (last + 1) * element.width > held:
        machine.fail("a tensor reaches beyond its storage")
    found = ArrayValue()
    found.describe((element, storage.big), shape, storage.data, strides=strides, offset=start)
    return found


def _parameter(_machine: PickleMachine, args: Args) -> object:
    return args[0] if args and isinstance(args[0], ArrayValue) else _UNKNOWN


_PYTHON: Final[dict[str, Constructor]] = {
    "list": _make_list,
    "tuple": _make_tuple,
    "set": _make_set,
    "frozenset": _make_frozenset,
    "dict": _make_dict,
    "bytes": _make_bytes,
    "bytearray": _make_bytes,
}
_NUMPY: Final[dict[str, Constructor]] = {
    "multiarray._reconstruct": _blank_array,
    "multiarray.scalar": _scalar,
    "numeric._frombuffer": _from_buffer,
}
_CONSTRUCTORS: Final[dict[str, Constructor]] = {
    **{f"{module}.{name}": made for module in ("builtins", "__builtin__") for name, made in _PYTHON.items()},
    **{f"{module}.{name}": made for module in ("numpy._core", "numpy.core") for name, made in _NUMPY.items()},
    "collections.OrderedDict": _make_dict,
    "collections.Counter": _make_dict,
    "collections.defaultdict": _make_defaultdict,
    "collections.deque": _make_list,
    "_codecs.encode": _encode,
    "copyreg._reconstructor": _reconstruct,
    "copy_reg._reconstructor": _reconstruct,
    "copyreg.__newobj__": _new_object,
    "copy_reg.__newobj__": _new_object,
    "numpy.dtype": _dtype,
    "torch.Size": _make_tuple,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": _parameter,
}
_KNOWN: Final = frozenset(_CONSTRUCTORS) | {
    "miles.utils.types.AdapterRef",
    "miles.utils.types.RewardSpec",
    "numpy.ndarray",
    "builtins.object",
    "__builtin__.object",
}
