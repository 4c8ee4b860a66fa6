"""The state of the pickle virtual machine: a window on the stream, the stack, the memo and the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, cast

from pipeline.sources.inert import LongBytes, LongText, PickleError, Placeholder
from pipeline.sources.number_list import (
    APPENDS,
    MARK,
    NUMBER_OPCODES,
    Number,
    NumberList,
    Part,
    scan_batches,
    scan_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipeline.sources.arrays import Storage
    from pipeline.sources.byte_source import ByteSource
    from pipeline.sources.inert import Limits

WINDOW: Final = 256 << 10
PAD: Final = 16
"""At least so many bytes lie in the window after any opcode; longer than any opcode with fixed arguments."""
CONTAINER_COST: Final = 80
ENTRY_COST: Final = 100
SET_COST: Final = 240
OBJECT_COST: Final = 300
_OPERATION_COST: Final = 40
_BINPUT: Final = 0x71
_MEMO: Final = {_BINPUT: 2, 0x72: 5, 0x94: 1}
_FRAME: Final = 0x95
# Integers below this have different hashes; above it they can be chosen to collide.
_SAFE_INT: Final = (1 << 61) - 1


class PickleMachine:
    """What the opcodes work on. `window` holds the stream from byte `base` on, `pos` is the next byte in it."""

    def __init__(
        self,
        source: ByteSource,
        limits: Limits,
        find_storage: Callable[[str, str, int], Storage | None],
        start: int = 0,
    ) -> None:
        self.source = source
        self.limits = limits
        self.find_storage = find_storage
        self.stack: list[object] = []
        self.below: list[list[object]] = []
        self.memo: dict[int, object] = {}
        self.seen: set[str] = set()
        self.window_size = WINDOW
        self._spare = limits.max_bytes
        self._operations = limits.max_operations
        self._memo_paid = 0
        self._odd_keys = 0
        self.load(start)

    def fail(self, reason: str) -> NoReturn:
        """Raise `PickleError` at the present position."""
        raise PickleError(reason, self.base + min(self.pos, self.end))

    # --- the window -------------------------------------------------------------------------------------------------

    def load(self, start: int, need: int = 0) -> None:
        """Move the window so that it begins at byte `start` and holds `need` bytes, or all there are."""
        stop = min(start + max(self.window_size, need + PAD), self.source.size)
        if start > stop:
            raise PickleError("the stream is cut short", self.source.size)
        raw = self.source.read(start, stop)
        self.base = start
        self.pos = 0
        self.end = len(raw)
        self.at_end = stop == self.source.size
        # Arguments read from the padding are zeros; the next opcode would then stand beyond `soft`, which is refused.
        self.window = raw + bytes(PAD) if self.at_end else raw
        self.soft = self.end if self.at_end else self.end - PAD

    def refill(self) -> None:
        """Move the window up to the present position."""
        if self.at_end:
            self.fail("the stream is cut short")
        self.load(self.base + self.pos)

    def skip(self, size: int) -> int:
        """Step over `size` bytes, which must be there; return the byte position of the first."""
        start = self.base + self.pos
        self._require(size)
        if self.pos + size <= self.end:
            self.pos += size
        else:
            self.load(start + size)
        return start

    def _require(self, size: int) -> None:
        if size < 0 or self.base + self.pos + size > self.source.size:
            self.fail(f"{size} bytes claimed beyond the end of the stream")

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes and step over them."""
        if self.pos + size > self.end:
            self._require(size)
            self.load(self.base + self.pos, size)
        start = self.pos
        self.pos = start + size
        return self.window[start : self.pos]

    def unsigned(self, size: int) -> int:
        """Return the next `size` bytes (at most 8) as a little-endian number and step over them."""
        start = self.pos
        self.pos = start + size
        return int.from_bytes(self.window[start : self.pos], "little")

    def skip_frame_header(self) -> None:
        """Step over the length of a frame, which must end within the stream."""
        size = self.unsigned(8)
        if self.base + self.pos + size > self.source.size:
            self.fail(f"a frame of {size} bytes beyond the end of the stream")

    def line(self) -> bytes:
        """Return the bytes up to the next newline and step over both."""
        found = self.window.find(b"\n", self.pos, self.end)
        size = WINDOW
        while found < 0:
            if self.at_end:
                self.fail("a line without an end")
            if size > self.limits.max_line:
                self.fail("a line beyond the limit")
            size *= 2
            self.load(self.base + self.pos, size)
            found = self.window.find(b"\n", self.pos, self.end)
        raw = self.window[self.pos : found]
        self.charge(len(raw))
        self.pos = found + 1
        return raw

    # --- the budget -------------------------------------------------------------------------------------------------

    def charge(self, cost: int) -> None:
        """Take `cost` bytes from the budget; raise `PickleError` when it is spent."""
        self._spare -= cost
        if self._spare < 0:
            self.fail(f"the stream needs more than {self.limits.max_bytes >> 20} MiB of memory")

    def settle(self, operations: int) -> None:
        """Charge `operations` opcodes about to be executed, and the memo entries made since the last time."""
        self._operations -= operations
        if self._operations < 0:
            self.fail(f"the stream has more than {self.limits.max_operations} operations")
        memo = len(self.memo)
        self.charge(operations * _OPERATION_COST + (memo - self._memo_paid) * ENTRY_COST)
        self._memo_paid = memo

    # --- the stack and the memo -------------------------------------------------------------------------------------

    def pop_mark(self) -> list[object]:
        """Return what lies above the topmost mark, and remove both."""
        if not self.below:
            self.fail("no mark on the stack")
        values = self.stack
        self.stack = self.below.pop()
        return values

    def put(self, index: int) -> None:
        """Remember the top of the stack under `index`."""
        value = self.stack[-1]
        self.memo[index] = value
        if type(value) is NumberList:
            value.memo_keys.append(index)

    def get(self, index: int) -> None:
        """Push what is remembered under `index`."""
        if index not in self.memo:
            self.fail(f"nothing is remembered under {index}")
        value = self.memo[index]
        self.stack.append(self._shared(value) if type(value) is NumberList else value)

    def duplicate(self) -> None:
        """Push the top of the stack once more."""
        if type(self.stack[-1]) is NumberList:
            self.stack[-1] = self._ordinary(self.stack[-1])
        self.stack.append(self.stack[-1])

    def _shared(self, numbers: NumberList) -> object:
        # A list that may still grow becomes an ordinary one before anything else can hold it: a later element that is
        # no number could not turn it into an ordinary list everywhere.
        depth = numbers.depth
        holder = self.below[depth] if depth < len(self.below) else self.stack
        if holder and holder[-1] is numbers:
            holder[-1] = self._ordinary(numbers)
            return holder[-1]
        numbers.sealed = True
        return numbers

    def _ordinary(self, numbers: NumberList) -> list[Number]:
        if numbers.sealed:
            self.fail("a list of numbers grows after it was used")
        self.charge(numbers.stored_bytes * 20)
        values = numbers.to_list()
        for key in numbers.memo_keys:
            if self.memo.get(key) is numbers:
                self.memo[key] = values
        return values

    # --- values -----------------------------------------------------------------------------------------------------

    def push_text(self, size: int) -> None:
        """Push the text in the next `size` bytes, and remember it if the stream says so right after."""
        if size > self.limits.long_text:
            self.charge(OBJECT_COST)
            self.stack.append(LongText(self.source, self.skip(size), size))
            return
        start = self.pos
        stop = start + size
        if stop > self.end:
            self._require(size)
            self.load(self.base + start, size)
            start, stop = 0, size
        try:
            value = str(self.window[start:stop], "utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self.fail("text that is not UTF-8")
        self.pos = stop
        self.charge(ENTRY_COST + (size if value.isascii() else 4 * size))
        self.stack.append(value)
        if stop < self.soft and self.window[stop] == _BINPUT:
            self.memo[self.window[stop + 1]] = value
            self.pos = stop + 2

    def push_bytes(self, size: int) -> None:
        """Push the next `size` bytes."""
        self.charge(OBJECT_COST)
        if size > self.limits.long_text:
            self.stack.append(LongBytes(self.source, self.skip(size), size))
        else:
            self.stack.append(self.take(size))

    def push_int(self, size: int) -> None:
        """Push the next `size` bytes as a signed little-endian integer."""
        if not 0 <= size <= self.limits.max_int_bytes:
            self.fail(f"an integer of {size} bytes")
        self.charge(size)
        self.stack.append(int.from_bytes(self.take(size), "little", signed=True))

    def key(self, value: object) -> object:
        """Return `value` as a dictionary key or set member.

        Text, bytes, None, bool, numbers and flat tuples of them stay what they are. Anything else, whose hash could
        run foreign code, recurse or not exist, becomes a text like `<list key 3>`, numbered so that none collide.
        """
        kind = type(value)
        if kind is str or value is None or kind is bool or kind is bytes:
            return value
        if kind is int and -_SAFE_INT < cast("int", value) < _SAFE_INT:
            return value
        if kind is LongText:
            return self._long_key(cast("LongText", value))
        self._odd_keys += 1
        if self._odd_keys > self.limits.max_odd_keys:
            self.fail("too many dictionary keys that are neither text nor small integers")
        if kind is int or kind is float or (kind is tuple and _is_flat(cast("tuple[object, ...]", value))):
            return value
        return f"<{kind.__name__} key {self._odd_keys}>"

    def _long_key(self, value: LongText) -> str:
        self.charge(4 * value.utf8_size)
        return value.text()

    def set_items(self, target: object, values: list[object]) -> None:
        """Set the key-value pairs in `values` on `target`."""
        if len(values) % 2:
            self.fail("a key without a value")
        if isinstance(target, Placeholder):
            target = target.entries
        if type(target) is not dict:
            self.fail(f"{type(target).__name__} takes no keys")
        self.charge(len(values) * ENTRY_COST)
        keys = values[::2]
        if set(map(type, keys)) != {str}:
            keys = [self.key(key) for key in keys]
        target.update(zip(keys, values[1::2], strict=True))

    def extend(self, values: list[object]) -> None:
        """Append `values` to the list on top of the stack."""
        target = self.stack[-1]
        if type(target) is NumberList and not all(isinstance(value, int | float) for value in values):
            target = self.stack[-1] = self._ordinary(target)
        if type(target) is NumberList:
            target.add_values(cast("list[Number]", values))
        elif type(target) is list:
            target += values
        elif isinstance(target, Placeholder):
            target.items += values
        else:
            self.fail(f"{type(target).__name__} takes no elements")

    def add(self, values: list[object]) -> None:
        """Add `values` to the set on top of the stack."""
        target = self.stack[-1]
        if type(target) is set:
            self.charge(len(values) * ENTRY_COST)
            target.update([self.key(value) for value in values])
        elif isinstance(target, Placeholder):
            target.items += values
        else:
            self.fail(f"{type(target).__name__} takes no members")

    # --- lists of numbers -------------------------------------------------------------------------------------------

    def push_list(self) -> None:
        """Push an empty list, or the list of numbers that follows, with all its batches."""
        self.charge(CONTAINER_COST)
        window, pos = self.window, self.pos
        mark = pos + _MEMO.get(window[pos], 0)
        if window[mark] != MARK or window[mark + 1] not in NUMBER_OPCODES:
            self.stack.append([])
            return
        self.charge(OBJECT_COST)
        numbers = NumberList(self.source, len(self.below))
        before = self.base + pos
        self.pos = mark
        if not self._read_batch(numbers, at_least=64):
            self._return_to(before)
            self.stack.append([])
            return
        self.stack.append(numbers)
        self._put_ahead(window, pos)
        while self._numbers_follow() and (self._read_alike(numbers) or self._read_batch(numbers, at_least=1)):
            pass

    def _numbers_follow(self) -> bool:
        if self.pos >= self.soft and not self.at_end:
            self.load(self.base + self.pos)
        window, pos = self.window, self.pos
        return pos < self.soft and window[pos] == MARK and window[pos + 1] in NUMBER_OPCODES

    def _put_ahead(self, window: bytes, pos: int) -> None:
        width = _MEMO.get(window[pos], 0)
        if width:
            self.put(int.from_bytes(window[pos + 1 : pos + width], "little") if width > 1 else len(self.memo))

    def _return_to(self, start: int) -> None:
        if start >= self.base:
            self.pos = start - self.base
        else:
            self.load(start)

    def _read_batch(self, numbers: NumberList, at_least: int) -> bool:
        mark = self.base + self.pos
        self.pos += 1
        parts = self._read_parts()
        if not parts or self.window[self.pos] != APPENDS or parts[-1][3] - mark <= at_least:
            self._return_to(mark)
            return False
        self.charge(OBJECT_COST)
        numbers.add_parts(parts)
        self.pos += 1
        return True

    def _read_alike(self, numbers: NumberList) -> bool:
        """Take the batches in the window that are of the kind of the last one; that is nearly all of a list."""
        kind = numbers.last_kind
        count, found, stop = scan_batches(self.window, self.pos, self.end, kind)
        self.charge(2 * OBJECT_COST * len(found))
        numbers.add_parts([(kind, count, self.base + first, self.base + after) for first, after in found])
        self.pos = stop
        return bool(found)

    def _read_parts(self) -> list[Part]:
        parts: list[Part] = []
        while self.pos < self.soft or not self.at_end:
            if self.pos >= self.soft:
                self.load(self.base + self.pos)
            kind, count, stop = scan_numbers(self.window, self.pos, self.end)
            if stop > self.pos:
                self.charge(OBJECT_COST)
                parts.append((kind, count, self.base + self.pos, self.base + stop))
                self.pos = stop
            elif self.window[self.pos] == _FRAME:
                self.charge(OBJECT_COST)
                self.pos += 1
                self.skip_frame_header()
            else:
                break
        return parts


def _is_flat(values: tuple[object, ...]) -> bool:
    return all(value is None or type(value) in {str, bytes, bool, int, float} for value in values)
