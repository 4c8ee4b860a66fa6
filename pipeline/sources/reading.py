"""One door for every format: which it is, by content, and its batches. A file's error leaves here as a finding only."""

from __future__ import annotations

import errno
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import SourceError, UsageError
from pipeline.sources import isolation
from pipeline.sources.batch import BatchRead
from schemas.findings import Finding, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.sources.batch import SourceFile

FORMATS = ("pt", "jsonl", "parquet", "ipc")
READERS = {
    "pt": ("pipeline.sources.trainer_dump", "read"),
    "jsonl": ("pipeline.sources.json_lines", "read"),
    "parquet": ("pipeline.sources.columnar", "read_parquet"),
    "ipc": ("pipeline.sources.columnar", "read_ipc"),
}
_NATIVE = ("parquet", "ipc")
"""Formats whose reader is native code, which a damaged file may abort."""
_MAGIC = (
    (b"PK", "pt"),
    (b"\x80", "pt"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "ipc"),
    (b"\xff\xff\xff\xff", "ipc"),
    (b"\x1f\x8b", "jsonl"),
    (b"\x28\xb5\x2f\xfd", "jsonl"),
)
_HEAD = 64
isolated = True
"""Whether native readers run in a process of their own; not in a process that may itself be ended by a damaged file."""


def read(source: SourceFile) -> Iterator[BatchRead]:
    """Yield the batches of a file. What cannot be read is yielded as a refused batch with its findings.

    Raises:
        UsageError: the source asks for a format that does not exist.
    """
    if source.format is not None and source.format not in FORMATS:
        message = f"--format {source.format}: no such format; expected one of {', '.join(FORMATS)}"
        raise UsageError(message)
    try:
        for batch in _reader(source.format or detect(source))(source):
            yield _placed(batch)
    except SourceError as error:
        yield refused(source, Finding(code=error.code, message=error.message, field=error.field, value=error.value))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, MemoryError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EMFILE, errno.ENFILE):
            raise
        message = f"cannot be read ({_reason(error)}); write it again, or remove it"
        yield refused(source, Finding(code="unreadable_file", message=message))


def detect(source: SourceFile) -> str:
    """Return the format of a file's content.

    Raises:
        SourceError: it is empty, or of no known format.
    """
    with source.path.open("rb") as file:
        head = file.read(_HEAD)
    if not head:
        raise SourceError("unreadable_file", "empty file; write it again, or remove it")
    for magic, format_name in _MAGIC:
        if head.startswith(magic):
            return format_name
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return "jsonl"
    message = (
        "neither a torch dump, JSON Lines, Parquet nor Arrow IPC; "
        f"give --format ({', '.join(FORMATS)}) if it is one of them"
    )
    raise SourceError("unknown_format", message, value=shown(head[:16]))


def refused(source: SourceFile, finding: Finding) -> BatchRead:
    """Return a batch that stands for a file of which nothing could be read."""
    batch = BatchRead(source.run, source.split or "train", source.step, source.name, source.format or "unknown")
    return _placed(replace(batch, findings=(finding,)))


def _reader(name: str) -> Callable[[SourceFile], Iterator[BatchRead]]:
    # Formats are imported where they are read, so that one format's libraries cost the others nothing.
    module, function = READERS[name]
    if name in _NATIVE and isolated:
        return lambda source: isolation.read(module, function, source)
    reader: Callable[[SourceFile], Iterator[BatchRead]] = getattr(import_module(module), function)
    return reader


def _placed(batch: BatchRead) -> BatchRead:
    """Return the batch with its place written into its findings."""
    place = {"source": batch.source, "run": batch.run, "split": batch.split, "step": batch.step}
    return replace(batch, findings=tuple(finding.model_copy(update=place) for finding in batch.findings))


def _reason(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0][:200] if text else type(error).__name__
