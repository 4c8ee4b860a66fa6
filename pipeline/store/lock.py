"""One writer at a time. The lock is the operating system's, so that a dead holder's never blocks."""

from __future__ import annotations

import json
import os
import socket
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from pipeline.errors import LockedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.store.layout import Layout


@contextmanager
def writing(layout: Layout) -> Iterator[None]:
    """Hold the ledger for writing.

    Raises:
        LockedError: another process holds it; the message says which, since when.
    """
    layout.root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(layout.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        message = f"{layout.root} is being written by {_holder(layout)}; wait for it, or run again later"
        raise LockedError(message) from error
    note = _note(layout)
    try:
        note.write_text(_signature(), encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _note(layout: Layout) -> Path:
    return layout.lock.with_suffix(".holder")


def _signature() -> str:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since})


def _holder(layout: Layout) -> str:
    try:
        holder = json.loads(_note(layout).read_text(encoding="utf-8"))
        return f"process {holder['pid']} on {holder['host']} since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
