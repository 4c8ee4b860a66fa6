"""What a file looks like from outside, and what is in it as one short text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from pathlib import Path


@dataclass(frozen=True)
class Stamp:
    """Size in bytes and time of the last change in nanoseconds since 1970."""

    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return a file's stamp; a link's is that of what it points to.

        Raises:
            OSError: the file is gone, or may not be looked at.
        """
        return cls.from_status(path.stat())

    @classmethod
    def from_status(cls, status: os.stat_result) -> Stamp:
        """Return the stamp of a status that is already there."""
        return cls(status.st_size, status.st_mtime_ns)


def digest(path: Path) -> str:
    """Return the BLAKE2b digest of a file's content, 128 bits in hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
