"""Writing so that a file is whole or not there, also after a power cut."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pathlib import Path


def write_parquet(frame: pl.DataFrame | pl.LazyFrame, path: Path) -> None:
    """Write a Parquet file and see it on disk; a lazy frame's rows pass by in their order, never all held at once.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("wb") as file:
        try:
            frame.lazy().sink_parquet(
                file, compression="zstd", compression_level=1, statistics=True, maintain_order=True, engine="streaming"
            )
        except pl.exceptions.PolarsError as error:
            # The engine has its own words for some errors of the disk.
            raise OSError(errno.EIO, str(error).splitlines()[0], str(path)) from error
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write a small file, whole or not at all; it need not survive a power cut."""
    staged = path.with_name(f"{path.name}.new")
    staged.write_text(text, encoding="utf-8")
    staged.replace(path)


def sync_directory(directory: Path) -> None:
    """See the entries of a directory on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """See a file that another library wrote on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def replace(source: Path, target: Path) -> None:
    """Give a file or directory its final name, atomically, and see that on disk."""
    source.replace(target)
    sync_directory(target.parent)
