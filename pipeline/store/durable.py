"""Writing so that a file is whole or not there, also after a power cut."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a Parquet file and see it on disk."""
    with path.open("wb") as file:
        frame.write_parquet(file, compression="zstd", compression_level=1, statistics=True)
        file.flush()
        os.fsync(file.fileno())


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
