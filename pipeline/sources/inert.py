"""What a pickle stream comes out as when nothing it names is ever imported, called or built.

Every value here is passive: reading one has no effect beyond reading bytes. Representations are short and never
descend into other values, and equality is identity, so that values which contain themselves are harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.sources.byte_source import ByteSource

_SHOWN = 60
_CONTINUATION = bytes(range(0x80, 0xC0))


class PickleError(ValueError):
    """A stream that cannot be read, or a lazy value whose bytes turn out to be wrong.

    Attributes:
        reason: what is wrong, in a few words.
        offset: byte position in the stream near which reading stopped.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a file may ask for before it is refused.

    Attributes:
        max_bytes: estimated memory of everything materialised while reading, in bytes.
        max_operations: opcodes executed; a run of numbers that stays in the file counts as one.
        max_line: bytes of one newline-terminated argument (protocols 0 and 1).
        max_int_bytes: bytes of one integer; 1024 bytes are 2,466 decimal digits.
        max_odd_keys: dictionary keys and set members in one stream that are neither text nor bytes nor small integers,
            since their hashes can be made to collide.
        long_text: texts and bytes longer than this many bytes stay in the file.
        max_inflated: bytes one compressed archive member may inflate to.
        max_inflate_ratio: bytes out per byte in of a compressed archive member.
        max_members: members of one archive.
    """

    max_bytes: int = 512 << 20
    max_operations: int = 20_000_000
    max_line: int = 16 << 20
    max_int_bytes: int = 1024
    max_odd_keys: int = 10_000
    long_text: int = 4096
    max_inflated: int = 256 << 20
    max_inflate_ratio: int = 200
    max_members: int = 200_000


DEFAULT_LIMITS = Limits()


def shorten(text: str) -> str:
    """Return `text` cut to a length fit for messages."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class GlobalName:
    """A class or function the stream names; only its name exists here."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    @property
    def qualified(self) -> str:
        """`module.name` as the stream spells it."""
        return f"{self.module}.{self.name}"

    def __repr__(self) -> str:
        """Return a bounded description."""
        return f"<global {shorten(self.qualified)}>"


class Placeholder:
    """An object of a class that is not built.

    Attributes:
        module: module of the class or callable, as spelled in the stream.
        name: its qualified name.
        args: positional arguments it would have been called with.
        state: attributes given to it afterwards, None if none were; a state that is not a dictionary of attributes
            lies under the key `__state__`.
        items: values appended or added to it.
        entries: key-value pairs set on it.
    """

    __slots__ = ("args", "entries", "items", "module", "name", "state")

    def __init__(self, module: str, name: str, args: tuple[object, ...] = ()) -> None:
        self.module = module
        self.name = name
        self.args = args
        self.state: dict[object, object] | None = None
        self.items: list[object] = []
        self.entries: dict[object, object] = {}

    @property
    def qualified(self) -> str:
        """`module.name` as the stream spells it."""
        return f"{self.module}.{self.name}"

    def __repr__(self) -> str:
        """Return a bounded description."""
        return f"<placeholder {shorten(self.qualified)}>"


class LongText:
    """A text that stays in the file until it is asked for.

    Attributes:
        utf8_size: its size in UTF-8 bytes.
    """

    __slots__ = ("_source", "_start", "utf8_size")

    def __init__(self, source: ByteSource, start: int, size: int) -> None:
        self._source = source
        self._start = start
        self.utf8_size = size

    def utf8(self) -> bytes:
        """Read the bytes of the text, unchecked."""
        return self._source.read(self._start, self._start + self.utf8_size)

    def text(self) -> str:
        """Read and decode the text; raise `PickleError` if it is not UTF-8 (lone surrogates are let through)."""
        return decode_text(self.utf8(), self._start)

    def tail(self, size: int) -> str:
        """Read and decode the characters that lie wholly within the last `size` bytes; raises as `text` does."""
        start = max(0, self.utf8_size - size)
        raw = self._source.read(self._start + start, self._start + self.utf8_size)
        if start:
            # A character takes at most four bytes, of which all but the first say that they are not the first.
            raw = raw[:3].lstrip(_CONTINUATION) + raw[3:]
        return decode_text(raw, self._start + start)

    def __repr__(self) -> str:
        """Return a bounded description."""
        return f"<text of {self.utf8_size} bytes>"


class LongBytes:
    """Bytes that stay in the file until they are asked for."""

    __slots__ = ("_source", "_start", "size")

    def __init__(self, source: ByteSource, start: int, size: int) -> None:
        self._source = source
        self._start = start
        self.size = size

    def may_hold(self, size: int) -> bool:
        """Whether there can be `size` bytes, as far as is known without reading them."""
        return size == self.size

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes `[start, end)`; raise `PickleError` if they are not all there."""
        if not 0 <= start <= end <= self.size:
            raise PickleError("read beyond the end of the bytes", self._start)
        return self._source.read(self._start + start, self._start + end)

    def data(self) -> bytes:
        """Read all of them."""
        return self.read(0, self.size)

    def __repr__(self) -> str:
        """Return a bounded description."""
        return f"<{self.size} bytes>"


class LatinBytes:
    """Bytes that protocol 2 spells as a text of the characters U+0000 to U+00FF, still in the file."""

    __slots__ = ("_text",)

    def __init__(self, text: LongText) -> None:
        self._text = text

    def may_hold(self, size: int) -> bool:
        """Whether there can be `size` bytes: each takes one or two bytes of UTF-8."""
        return size <= self._text.utf8_size <= 2 * size

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes `[start, end)`; raise `PickleError` if they are not all there."""
        raw = self.data()
        if not 0 <= start <= end <= len(raw):
            raise PickleError("fewer bytes than the array needs", 0)
        return raw[start:end]

    def data(self) -> bytes:
        """Read all of them; raise `PickleError` if the text has other characters."""
        try:
            return self._text.text().encode("latin-1")
        except UnicodeEncodeError:
            raise PickleError("text that should spell bytes has other characters", 0) from None

    def __repr__(self) -> str:
        """Return a bounded description."""
        return f"<bytes spelled in {self._text.utf8_size} bytes of text>"


def decode_text(raw: bytes, offset: int) -> str:
    """Decode UTF-8 as the standard pickle reader does (lone surrogates pass); raise `PickleError` otherwise."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise PickleError("text that is not UTF-8", offset) from None
