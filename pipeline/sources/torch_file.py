"""Files written by `torch.save`, read without torch and without unpickling.

Three layouts are read: the zip archive of torch 1.6 and later, the older one of several pickles in a row, and a bare
pickle. Only the description of the payload is read; texts, numbers and arrays stay in the file until asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from pipeline.sources.arrays import Element, Storage, torch_element
from pipeline.sources.byte_source import BufferSource, OpenFile, SliceSource
from pipeline.sources.inert import DEFAULT_LIMITS, PickleError
from pipeline.sources.pickled import Unpickled, read_pickle_from
from pipeline.sources.zip_directory import STORED, Member, ZipError, check_crc, open_member, read_directory

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.sources.byte_source import ByteSource
    from pipeline.sources.inert import Limits

_LEGACY_MAGIC: Final = 0x1950A86A20F9469CFC6C
_LEGACY_VERSION: Final = 1001
_MAX_FLAG: Final = 16


class TorchFileError(ValueError):
    """A file that is no torch or pickle file, or a damaged one.

    Attributes:
        reason: what is wrong, in a few words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TorchPayload:
    """The content of a torch file. Its lazy values read the file, so use them before `close`, or inside `with`.

    After `close` a lazy value raises `PickleError`. One payload must not be read by two threads at once.

    Attributes:
        payload: what was saved.
        unknown_classes: classes and functions the file names that this reader does not know, as `module.name`.
    """

    __slots__ = ("_file", "payload", "unknown_classes")

    def __init__(self, payload: object, unknown_classes: frozenset[str], file: OpenFile) -> None:
        self.payload = payload
        self.unknown_classes = unknown_classes
        self._file = file

    def close(self) -> None:
        """Close the file. May be called again."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return the payload itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def read_torch_file(path: Path, limits: Limits = DEFAULT_LIMITS, *, checksum: bool = False) -> TorchPayload:
    """Open a file written by `torch.save` (or a bare pickle) and read its payload.

    Args:
        path: the file; it is opened for reading only and never mapped into memory.
        limits: when to refuse the file.
        checksum: also read the whole pickle once to compare its CRC-32 (zip layout only).

    Raises:
        TorchFileError: the file is empty, truncated, damaged, of another kind, or beyond `limits`.
        OSError: the file cannot be opened or read.
    """
    file = OpenFile(path)
    try:
        found = _read(file, limits, checksum=checksum)
    except PickleError as error:
        file.close()
        raise TorchFileError(f"the pickle in it cannot be read: {error}") from error
    except ZipError as error:
        file.close()
        raise TorchFileError(str(error)) from error
    except BaseException:
        file.close()
        raise
    return TorchPayload(found.value, found.seen_classes, file)


def _read(file: OpenFile, limits: Limits, *, checksum: bool) -> Unpickled:
    if not file.size:
        raise TorchFileError("empty file")
    head = file.read(0, min(4, file.size))
    if head[:2] == b"PK":
        return _read_zip(file, limits, checksum=checksum)
    if head[:1] == b"\x80":
        return _read_pickles(file, limits)
    raise TorchFileError("not a zip archive or pickle")


# --- the zip layout -------------------------------------------------------------------------------------------------


class _Archive:
    """The members of one archive: finds torch storages by their key."""

    def __init__(self, source: ByteSource, limits: Limits) -> None:
        self.source = source
        self.limits = limits
        self.members = read_directory(source, limits)
        self.prefix = self._find_prefix()
        self.big = self._flag("byteorder") == b"big"

    def _find_prefix(self) -> str:
        found = [name for name in self.members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(found) != 1:
            raise ZipError("the archive holds no data.pkl" if not found else "the archive holds several data.pkl")
        return found[0].removesuffix("data.pkl")

    def _flag(self, name: str) -> bytes:
        member = self.members.get(self.prefix + name)
        if member is None or member.size > _MAX_FLAG:
            return b""
        content = open_member(self.source, member, self.limits)
        return content.read(0, content.size)

    def find_storage(self, key: str, element: str, count: int) -> Storage | None:
        member = self.members.get(f"{self.prefix}data/{key}")
        if member is None:
            return None
        kind = _element(element)
        if kind.width * count > member.size:
            raise PickleError(f"the storage {key[:40]} is smaller than it says", 0)
        return Storage(kind, count, _MemberData(self, member), self.big)


class _MemberData:
    """The bytes of one storage, found in the archive when first asked for."""

    __slots__ = ("_archive", "_content", "_member")

    def __init__(self, archive: _Archive, member: Member) -> None:
        self._archive = archive
        self._member = member
        self._content: ByteSource | None = None

    def may_hold(self, size: int) -> bool:
        """Whether there are `size` bytes."""
        return size <= self._member.size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)`; raise `PickleError` if the member is damaged."""
        content = self._content or self._open()
        return content.read(start, end)

    def _open(self) -> ByteSource:
        try:
            content = open_member(self._archive.source, self._member, self._archive.limits)
        except ZipError as error:
            raise PickleError(str(error), 0) from error
        if self._member.method == STORED:
            self._content = content
        return content


def _element(name: str) -> Element:
    known = torch_element(name)
    return known if known.width else Element(name, "", 0)


def _read_zip(file: OpenFile, limits: Limits, *, checksum: bool) -> Unpickled:
    archive = _Archive(file, limits)
    member = archive.members[archive.prefix + "data.pkl"]
    if checksum:
        check_crc(file, member, limits)
    content = open_member(file, member, limits)
    return read_pickle_from(content, limits, find_storage=archive.find_storage)


# --- pickles in a row -----------------------------------------------------------------------------------------------


class _Trailing:
    """Storages of the older layout: they follow the pickles, in the order of the list of keys."""

    def __init__(self) -> None:
        self.asked: dict[str, tuple[Element, int, _LateData]] = {}

    def find_storage(self, key: str, element: str, count: int) -> Storage:
        kind, size, data = self.asked.setdefault(key, (_element(element), count, _LateData()))
        return Storage(kind, size, data, big=False)

    def place(self, source: ByteSource, keys: object, start: int) -> None:
        """Give every storage its bytes; each begins with its number of elements (8 bytes)."""
        for key in keys if isinstance(keys, list) else []:
            if key not in self.asked:
                raise PickleError("a storage nothing refers to", start)
            kind, count, data = self.asked[key]
            if not kind.width or int.from_bytes(source.read(start, start + 8), "little") != count:
                raise PickleError("a storage of another size than it says", start)
            start += 8
            if start + count * kind.width > source.size:
                raise PickleError("the stream is cut short", source.size)
            data.content = SliceSource(source, start, count * kind.width)
            start += count * kind.width


class _LateData:
    """Bytes whose place is known only after the payload was read."""

    __slots__ = ("content",)

    def __init__(self) -> None:
        self.content: ByteSource = BufferSource(b"")

    def may_hold(self, size: int) -> bool:
        """Whether there are `size` bytes."""
        return size <= self.content.size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)`; raise `PickleError` if they are not all there."""
        return self.content.read(start, end)


def _read_pickles(source: ByteSource, limits: Limits) -> Unpickled:
    first = read_pickle_from(source, limits)
    if first.value != _LEGACY_MAGIC:
        return first
    version = read_pickle_from(source, limits, start=first.end)
    if version.value != _LEGACY_VERSION:
        raise TorchFileError("a torch file of a version that is not known")
    about = read_pickle_from(source, limits, start=version.end)
    trailing = _Trailing()
    payload = read_pickle_from(source, limits, start=about.end, find_storage=trailing.find_storage)
    keys = read_pickle_from(source, limits, start=payload.end)
    trailing.place(source, keys.value, keys.end)
    return payload
