"""Files that are only ever added to: a line of JSON for everything that happened, who did it and when."""

from __future__ import annotations

import getpass
import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipeline.errors import NoInputError
from pipeline.store import durable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def signed(by: str | None = None) -> dict[str, str]:
    """Return who and when, for an entry."""
    return {"at": datetime.now(UTC).isoformat(timespec="seconds"), "by": by or _user()}


def append(path: Path, entry: Mapping[str, Any]) -> None:
    """Add an entry and see it on disk. Several writers may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
    torn = path.exists() and path.stat().st_size > 0 and not _ends_whole(path)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        # What a writer left half done must not swallow the next entry.
        os.write(descriptor, ("\n" * torn + line).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    durable.sync_directory(path.parent)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the entries; the last one is left out if its writer died before it was whole.

    Raises:
        NoInputError: a line is no entry.
    """
    if not path.exists():
        return []
    entries = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise TypeError  # noqa: TRY301 - told below, with the line
            entries.append(entry)
        except (ValueError, TypeError) as error:
            if number == len(lines):
                continue
            message = f"{path}: line {number} is no entry; restore the file from version control"
            raise NoInputError(message) from error
    return entries


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
