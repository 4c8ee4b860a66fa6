"""Directories in memory: what is tested is the order of writes, and a disk that syncs slowly shows nothing more."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = Path("/dev/shm")


def directory_in_memory() -> Iterator[Path]:
    parent = MEMORY if os.access(MEMORY, os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix=f"unattended-{os.getpid()}-", dir=parent))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from directory_in_memory()


@pytest.fixture(scope="module")
def shared_path() -> Iterator[Path]:
    yield from directory_in_memory()
