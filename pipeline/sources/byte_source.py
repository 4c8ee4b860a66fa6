"""Where bytes come from: a buffer in memory, or a stretch of an open file.

Files are read with positioned reads and never mapped, because a trainer that rewrites a dump in place would
end a process that has the old file mapped (SIGBUS); a positioned read only comes back short.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Protocol

from pipeline.sources.inert import PickleError

if TYPE_CHECKING:
    import mmap
    from pathlib import Path


class ByteSource(Protocol):
    """Random access to `size` bytes."""

    size: int

    def read(self, start: int, end: int) -> bytes:
        """Return exactly the bytes `[start, end)`; raise `PickleError` if they are not all there."""
        ...


class BufferSource:
    """Bytes that already lie in memory (or in a mapping made by the caller)."""

    __slots__ = ("_buffer", "size")

    def __init__(self, buffer: bytes | bytearray | memoryview | mmap.mmap) -> None:
        self._buffer = buffer if isinstance(buffer, bytes) else memoryview(buffer).cast("B")
        self.size = len(self._buffer)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)`; raise `PickleError` outside of the buffer."""
        if not 0 <= start <= end <= self.size:
            raise PickleError("read beyond the end of the data", start)
        return bytes(self._buffer[start:end])


class OpenFile:
    """A file opened for positioned reads; closed by `close`, or when nothing refers to it any more."""

    __slots__ = ("__weakref__", "_close", "_descriptor", "size")

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file; later reads raise `PickleError`. May be called again."""
        self._close()

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)`; raise `PickleError` if the file is closed or has become shorter."""
        if not self._close.alive:
            raise PickleError("the file is closed", start)
        if not 0 <= start <= end <= self.size:
            raise PickleError("read beyond the end of the file", start)
        first = self._some(start, end)
        if len(first) == end - start:
            return first
        return self._rest(bytearray(first), start, end)

    def _rest(self, found: bytearray, start: int, end: int) -> bytes:
        while len(found) < end - start:
            more = self._some(start + len(found), end)
            if not more:
                raise PickleError("the file became shorter while it was read", start + len(found))
            found += more
        return bytes(found)

    def _some(self, start: int, end: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, end - start, start)
        os.lseek(self._descriptor, start, os.SEEK_SET)
        return os.read(self._descriptor, end - start)


class SliceSource:
    """The stretch `[start, start + size)` of another source."""

    __slots__ = ("_outer", "_start", "size")

    def __init__(self, outer: ByteSource, start: int, size: int) -> None:
        self._outer = outer
        self._start = start
        self.size = size

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of the stretch; raise `PickleError` outside of it."""
        if not 0 <= start <= end <= self.size:
            raise PickleError("read beyond the end of the data", start)
        return self._outer.read(self._start + start, self._start + end)
