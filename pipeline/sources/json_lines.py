"""JSON Lines, plain or compressed: one record a sample, in the field names of a miles sample.

Python's NaN and Infinity literals are taken. Blank lines count for nothing.
"""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from pipeline.errors import SourceError
from pipeline.sources.contract import canonical_columns, canonical_frame, check_records
from pipeline.sources.gathering import BatchKey, Gathering
from pipeline.sources.json_fields import fields
from pipeline.sources.json_text import parse
from pipeline.sources.values import readable
from schemas.findings import Finding, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pipeline.sources.batch import BatchRead, SourceFile

FORMAT = "jsonl"
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LINES_AT_ONCE = 8_192
_BYTES_AT_ONCE = 64 * 2**20
_MAX_LINE = 256 * 2**20
_MAX_RATIO, _RATIO_FREE = 1_000, 2**30
"""A compressed file may grow a thousandfold, once it is beyond a gibibyte: text does not, a bomb does."""
_BUFFER, _PLAIN_BUFFER = 2**17, 2**20
"""A line that lies in the buffer as a whole is copied once; of longer ones, pieces are put together."""
_PACKED_AT_ONCE = 2**12
"""Bytes to decompress at once: at worst they become 128 MiB."""
_INT64 = range(-(2**63), 2**63)


class _Line(NamedTuple):
    number: int
    text: bytes
    is_whole: bool


def read(source: SourceFile) -> Iterator[BatchRead]:
    """Yield the batches of a JSON Lines file, in the order of their first sample.

    Raises:
        SourceError: the file cannot be read or decompressed, or a line is too long.
    """
    gathering = Gathering(source, FORMAT)
    is_empty = source.path.stat().st_size == 0
    if is_empty:
        raise SourceError("unreadable_file", "empty file; write it again, or remove it")
    try:
        with _open(source.path) as stream:
            _read_lines(gathering, _lines(stream, source.path))
    except (OSError, EOFError, zlib.error, _zstd_error()) as error:
        message = f"cannot be decompressed or read ({error}); write it again, or remove it"
        raise SourceError("unreadable_file", message) from error
    yield from gathering.batches(at_least_one=True)


def _zstd_error() -> type[Exception]:
    import zstandard

    return zstandard.ZstdError


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic.startswith(GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(path, "rb"), _BUFFER)
    if magic == ZSTD_MAGIC:
        return io.BufferedReader(_ZstdFrames(path), _BUFFER)
    return path.open("rb", _PLAIN_BUFFER)


class _ZstdFrames(io.RawIOBase):
    """A file of zstd frames. The library's own reader takes a file that is cut off for one that ends there."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._context = zstandard.ZstdDecompressor(max_window_size=2**27)
        self._frame = self._context.decompressobj()
        self._is_inside = False
        self._packed = b""
        self._text = memoryview(b"")
        self._file = path.open("rb")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._text and self._more():
            pass
        size = min(len(buffer), len(self._text))
        buffer[:size] = self._text[:size]
        self._text = self._text[size:]
        return size

    def _more(self) -> bool:
        """Decompress the next piece; return whether there was one."""
        packed = self._packed or self._file.read(_PACKED_AT_ONCE)
        if not packed:
            if self._is_inside:
                raise EOFError("it ends in the middle of a frame")
            return False
        self._text = memoryview(self._frame.decompress(packed))
        self._is_inside, self._packed = not self._frame.eof, b""
        if self._frame.eof:
            self._packed = self._frame.unused_data
            self._frame = self._context.decompressobj()
        return True


def _lines(stream: IO[bytes], path: Path) -> Iterator[_Line]:
    read, limit = 0, max(_RATIO_FREE, path.stat().st_size * _MAX_RATIO)
    number = 0
    while text := stream.readline(_MAX_LINE + 1):
        read += len(text)
        if len(text) > _MAX_LINE or read > limit:
            what = "a line is longer than 256 MiB" if len(text) > _MAX_LINE else "it decompresses more than 1,000-fold"
            raise SourceError("unreadable_file", f"{what}; this is no dump of rollouts")
        if not text.isspace():
            yield _Line(number, text, text.endswith(b"\n"))
        number += 1


def _read_lines(gathering: Gathering, lines: Iterator[_Line]) -> None:
    last = gathering.default_key()
    parsed: list[tuple[BatchKey, dict[str, Any]]] = []
    count = size = 0
    for line in lines:
        record = _parse(gathering, line, last)
        if record is not None:
            last = _key(gathering, record)
            parsed.append((last, record))
        count += 1
        size += len(line.text)
        if count >= _LINES_AT_ONCE or size > _BYTES_AT_ONCE:
            _add(gathering, parsed)
            parsed, count, size = [], 0, 0
    _add(gathering, parsed)


def _parse(gathering: Gathering, line: _Line, last: BatchKey) -> dict[str, Any] | None:
    """Return a line's record, or null after having refused what the line belongs to."""
    found = fields(line.text)
    if found is not None:
        return found
    try:
        record = parse(line.text)
    except (ValueError, RecursionError) as error:
        where = f"line {line.number + 1}"
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        if line.is_whole:
            message = f"{where} is not JSON ({reason}); correct or remove it"
            gathering.refuse_file(Finding(code="bad_line", message=message, value=shown(line.text)))
        else:
            message = f"{where}, the last, is cut off; the batch is taken when it is complete"
            gathering.refuse(last, Finding(code="torn_line", message=message, value=shown(line.text)))
        return None
    if isinstance(record, dict):
        return record
    message = f"line {line.number + 1} is {type(record).__name__}; expected an object, one sample a line"
    gathering.refuse_file(Finding(code="bad_line", message=message, value=shown(record)))
    return None


def _key(gathering: Gathering, record: dict[str, Any]) -> BatchKey:
    """Return the batch of a record. Values of a wrong type are left to the contract, which names them."""
    run, split, step = gathering.default_key()
    if isinstance(record.get("run"), str):
        run = readable(record["run"])
    if record.get("split") in ("train", "eval"):
        split = record["split"]
    own_step = record.get("step")
    if isinstance(own_step, float) and own_step.is_integer():
        own_step = int(own_step)
    if isinstance(own_step, int) and not isinstance(own_step, bool) and own_step in _INT64:
        step = own_step
    return BatchKey(run, split, step)


def _add(gathering: Gathering, parsed: list[tuple[BatchKey, dict[str, Any]]]) -> None:
    if not parsed:
        return
    rows = [gathering.next_row(key) for key, _ in parsed]
    checked, problems = check_records([record for _, record in parsed])
    for problem in problems:
        position = problem.row or 0
        gathering.refuse(parsed[position][0], problem.model_copy(update={"row": rows[position]}))
    kept = [position for position, record in enumerate(checked) if record is not None]
    if not kept:
        return
    keys = [parsed[position][0] for position in kept]
    gathering.add(
        canonical_frame(
            {
                **canonical_columns([record for record in checked if record is not None]),
                "run": [key.run for key in keys],
                "split": [key.split for key in keys],
                "step": [key.step for key in keys],
                "row": [rows[position] for position in kept],
            }
        )
    )
