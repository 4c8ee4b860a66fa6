"""One writer at a time. The lock is the operating system's, so that a dead holder's never blocks."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from pipeline.errors import LockedError, StorageError
from pipeline.store import durable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.store.layout import Layout

_PATIENCE = 1.0
"""Seconds to wait for the name of a holder that has not signed."""
_PAUSE = 0.01


@contextmanager
def writing(layout: Layout) -> Iterator[None]:
    """Hold the ledger for writing.

    Raises:
        LockedError: another process holds it; the message says which, since when.
        StorageError: the directory cannot be made or written.
    """
    lock = FileLock(layout.lock)
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
        _acquire(lock, layout)
    except OSError as error:
        message = (
            f"{layout.root} cannot be written ({error.strerror or error}); check the directory and its permissions"
        )
        raise StorageError(message) from error
    note = _note(layout)
    try:
        # The note only names the holder; a disk too full for it is told by what is written next.
        with suppress(OSError):
            durable.write_text(note, _signature())
        yield
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)
        lock.release()


def _acquire(lock: FileLock, layout: Layout) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            holder = _holder(layout)
            if holder is None and time.monotonic() < deadline:
                # It has just begun and not signed yet, or it is just ending.
                time.sleep(_PAUSE)
                continue
            message = (
                f"{layout.root} is being written by {holder or 'another process'}; wait for it, or run again later"
            )
            raise LockedError(message) from error
        return


def _note(layout: Layout) -> Path:
    return layout.lock.with_suffix(".holder")


def _signature() -> str:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})


def _holder(layout: Layout) -> str | None:
    """Return who has signed; null where nobody has, or only one who is dead."""
    try:
        holder = json.loads(_note(layout).read_text(encoding="utf-8"))
        if holder["host"] == socket.gethostname() and not _is_alive(int(holder["pid"])):
            return None
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
