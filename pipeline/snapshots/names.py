"""Names of snapshots: they become directories, on any system, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def checked(name: str) -> str:
    """Return a name that is safe.

    Raises:
        UsageError: it could leave the directory, or is no file name on some system.
    """
    if not _NAME.fullmatch(name) or name.endswith(".") or ".." in name or _RESERVED.fullmatch(name):
        message = (
            f"snapshot name {name!r}: expected up to 100 letters, digits, '.', '_' and '-', beginning with a letter or "
            "digit, without '..' and not ending with '.'; names such as con or nul are not portable"
        )
        raise UsageError(message)
    return name


def stored(directory: Path) -> list[str]:
    """Return the names of the snapshots in a directory."""
    return sorted(path.parent.name for path in directory.glob("*/snapshot.jsonl"))


def check_is_new(directory: Path, name: str) -> None:
    """Refuse a name that differs from a stored one in upper and lower case only.

    Raises:
        UsageError: there is one; on some systems both would be the same directory.
    """
    for other in stored(directory):
        if other != name and other.casefold() == name.casefold():
            message = f"snapshot name {name!r}: there is {other!r} already, the same name on some systems"
            raise UsageError(message)
