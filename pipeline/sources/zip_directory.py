"""The directory of a zip archive, read defensively: nothing it claims is believed before it is checked.

Layout: PKWARE APPNOTE 6.3.10, sections 4.3 and 4.4; zip64 included, several disks and encryption not.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from pipeline.sources.byte_source import BufferSource, SliceSource

if TYPE_CHECKING:
    from pipeline.sources.byte_source import ByteSource
    from pipeline.sources.inert import Limits

STORED: Final = 0
DEFLATED: Final = 8
_END: Final = struct.Struct("<4sHHHHIIH")
_LOCATOR_64: Final = struct.Struct("<4sIQI")
_END_64: Final = struct.Struct("<4sQHHIIQQQQ")
_ENTRY: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_FIELD: Final = struct.Struct("<HH")
_WIDE: Final = 8
_TAIL: Final = _END.size + 0xFFFF
_FULL_32: Final = 0xFFFFFFFF
_FULL_16: Final = 0xFFFF
_ENCRYPTED: Final = 0x2041
_MAX_DIRECTORY: Final = 64 << 20
_RATIO_FROM: Final = 1 << 20
_CHUNK: Final = 1 << 20


class ZipError(ValueError):
    """An archive that is damaged, or of a kind that is not read. The text says in a few words what is wrong."""


class Member(NamedTuple):
    """One file in the archive: sizes in bytes, position of its local header, and where the next thing begins."""

    name: str
    method: int
    stored_size: int
    size: int
    crc: int
    header: int
    limit: int


class _End(NamedTuple):
    entries: int
    size: int
    offset: int


def read_directory(source: ByteSource, limits: Limits) -> dict[str, Member]:
    """Return the members of the archive by name. Bytes after the archive are ignored.

    Raises:
        ZipError: no directory, or one that contradicts itself or the size of the file.
        PickleError: the file became shorter while it was read.
    """
    end = _find_end(source)
    if end.entries > limits.max_members or end.size > _MAX_DIRECTORY:
        raise ZipError("the zip directory is beyond the limit")
    if end.offset + end.size > source.size:
        raise ZipError("the zip directory lies outside of the file")
    members = _read_entries(source.read(end.offset, end.offset + end.size), end)
    return _placed(members, end.offset)


def _find_end(source: ByteSource) -> _End:
    start = max(source.size - _TAIL, 0)
    tail = source.read(start, source.size)
    found = tail.rfind(b"PK\x05\x06")
    while found >= 0:
        if len(tail) - found >= _END.size:
            _, disk, first_disk, here, entries, size, offset, _ = _END.unpack_from(tail, found)
            return _whole_end(source, start + found, (disk, first_disk, here), _End(entries, size, offset))
        found = tail.rfind(b"PK\x05\x06", 0, found)
    raise ZipError("the file ends before its zip directory (truncated?)")


def _whole_end(source: ByteSource, position: int, disks: tuple[int, int, int], end: _End) -> _End:
    at = position - _LOCATOR_64.size
    if at >= 0:
        signature, _, offset_64, _ = _LOCATOR_64.unpack(source.read(at, position))
        if signature == b"PK\x06\x07":
            return _read_end_64(source, offset_64, at)
    if _FULL_32 in {end.size, end.offset} or disks[0] not in {0, _FULL_16}:
        raise ZipError("the zip directory is incomplete")
    if end.offset + end.size != position:
        raise ZipError("the zip directory is not where the archive says")
    return end


def _read_end_64(source: ByteSource, offset: int, at: int) -> _End:
    if offset + _END_64.size > at:
        raise ZipError("the zip64 directory lies outside of the file")
    signature, _, _, _, _, _, _, entries, size, start = _END_64.unpack(source.read(offset, offset + _END_64.size))
    if signature != b"PK\x06\x06" or start + size != offset:
        raise ZipError("the zip directory is not where the archive says")
    return _End(entries, size, start)


def _read_entries(raw: bytes, end: _End) -> list[Member]:
    members = []
    position = 0
    while position + _ENTRY.size <= len(raw):
        fields = _ENTRY.unpack_from(raw, position)
        name_size, extra_size, comment_size = fields[10:13]
        names = position + _ENTRY.size
        stop = names + name_size + extra_size + comment_size
        if fields[0] != b"PK\x01\x02" or stop > len(raw):
            raise ZipError("the zip directory is damaged")
        extra = raw[names + name_size : names + name_size + extra_size]
        members.append(_member(raw[names : names + name_size], fields, extra))
        position = stop
    if position != len(raw) or len(members) != end.entries:
        raise ZipError("the zip directory is damaged")
    return members


def _member(raw_name: bytes, fields: tuple[int, ...], extra: bytes) -> Member:
    if fields[3] & _ENCRYPTED:
        raise ZipError("the archive is encrypted")
    try:
        name = raw_name.decode()
    except UnicodeDecodeError:
        raise ZipError("the archive has a name that is not text") from None
    size, stored, header = _sizes(fields[9], fields[8], fields[16], extra)
    return Member(name, fields[4], stored, size, fields[7], header, header)


def _sizes(size: int, stored: int, header: int, extra: bytes) -> tuple[int, int, int]:
    values = [size, stored, header]
    if _FULL_32 not in values:
        return size, stored, header
    wide = _zip64_field(extra)
    for index, value in enumerate(values):
        if value == _FULL_32:
            if len(wide) < _WIDE:
                raise ZipError("the zip directory is damaged")
            values[index] = int.from_bytes(wide[:_WIDE], "little")
            wide = wide[_WIDE:]
    return values[0], values[1], values[2]


def _zip64_field(extra: bytes) -> bytes:
    while len(extra) >= _FIELD.size:
        kind, size = _FIELD.unpack_from(extra)
        if kind == 1:
            return extra[4 : 4 + size]
        extra = extra[4 + size :]
    return b""


def _placed(members: list[Member], directory: int) -> dict[str, Member]:
    placed: dict[str, Member] = {}
    limit = directory
    for member in sorted(members, key=lambda one: one.header, reverse=True):
        if member.header + _LOCAL.size + len(member.name.encode()) + member.stored_size > limit:
            raise ZipError("members of the archive overlap or lie outside of it")
        if member.name in placed:
            raise ZipError("two members of the archive have the same name")
        placed[member.name] = member._replace(limit=limit)
        limit = member.header
    return placed


def open_member(source: ByteSource, member: Member, limits: Limits) -> ByteSource:
    """Return the bytes of a member: in place if it is stored, inflated into memory if it is compressed.

    Raises:
        ZipError: the member does not lie where the directory says, is compressed in another way than deflate, or
            inflates beyond `limits.max_inflated` bytes or `limits.max_inflate_ratio` times its size (from 1 MiB on).
    """
    start = _data_start(source, member)
    if member.method == STORED:
        if member.size != member.stored_size:
            raise ZipError("a member of the archive has two sizes")
        return SliceSource(source, start, member.size)
    if member.method != DEFLATED:
        raise ZipError(f"members compressed by method {member.method} are not read")
    return BufferSource(_inflate(source, start, member, limits))


def _data_start(source: ByteSource, member: Member) -> int:
    fields = _LOCAL.unpack(source.read(member.header, member.header + _LOCAL.size))
    name_at = member.header + _LOCAL.size
    start: int = name_at + fields[9] + fields[10]
    if fields[0] != b"PK\x03\x04" or start + member.stored_size > member.limit:
        raise ZipError("members of the archive overlap or lie outside of it")
    if source.read(name_at, name_at + fields[9]) != member.name.encode():
        raise ZipError("a member of the archive has two names")
    return start


def _inflate(source: ByteSource, start: int, member: Member, limits: Limits) -> bytearray:
    allowed = min(limits.max_inflated, max(member.stored_size * limits.max_inflate_ratio, _RATIO_FROM))
    if member.size > allowed:
        raise ZipError("a compressed member inflates beyond the limit")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    found = bytearray()
    try:
        for position in range(start, start + member.stored_size, _CHUNK):
            raw = source.read(position, min(position + _CHUNK, start + member.stored_size))
            # The size claimed is not believed: one byte more than allowed is asked for, and refused.
            found += inflater.decompress(raw, member.size + 1 - len(found))
            if len(found) > member.size:
                raise ZipError("a compressed member is larger than it says")
    except zlib.error:
        raise ZipError("a compressed member is damaged") from None
    if len(found) != member.size or not inflater.eof:
        raise ZipError("a compressed member is damaged")
    return found


def check_crc(source: ByteSource, member: Member, limits: Limits) -> None:
    """Read a whole member; raise `ZipError` if its bytes do not have the checksum the directory gives."""
    content = open_member(source, member, limits)
    crc = 0
    for position in range(0, content.size, _CHUNK):
        crc = zlib.crc32(content.read(position, min(position + _CHUNK, content.size)), crc)
    if crc != member.crc:
        raise ZipError(f"the checksum of {member.name[:80]} is wrong (damaged?)")
