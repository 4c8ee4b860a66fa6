"""Fingerprints: SHA-256 over the content's text, or over the files that hold it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SHORT = 8


def of_lines(lines: Iterable[str]) -> str:
    """Return the fingerprint of lines of text. Line ends are not part of it, so that git may translate them."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode())
        digest.update(b"\n")
    return digest.hexdigest()


def of_file(path: Path) -> str:
    """Return the fingerprint of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def short(text: str) -> str:
    """Return a short name for a text."""
    return of_lines([text])[:_SHORT]
