"""A frame as text: a table, JSON, CSV or Markdown."""

from __future__ import annotations

import json
import math
import sys
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal

from pipeline.cli import console
from pipeline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import polars as pl

Format = Literal["table", "json", "csv", "markdown"]


_ENDINGS: dict[str, Format] = {".json": "json", ".csv": "csv", ".md": "markdown"}


def deliver(frame: pl.DataFrame, format: Format | None, output: Path | None) -> None:
    """Write a frame to stdout, or to a file, in which a table is plain.

    Raises:
        UsageError: the file cannot be written.
    """
    if output is None:
        console.answer(render(frame, chosen(format, output)))
        return
    text = render(frame, chosen(format, output), drawn=False)
    try:
        output.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    except OSError as error:
        message = f"{output}: cannot be written ({error.strerror}); give another --output"
        raise UsageError(message) from error


def chosen(format: Format | None, output: Path | None) -> Format:
    """Return the format asked for, else that of the file's name, else a table."""
    if format is not None:
        return format
    return _ENDINGS.get(output.suffix.lower(), "table") if output is not None else "table"


def render(frame: pl.DataFrame, format: Format, *, drawn: bool = True) -> str:
    """Return a frame as text. A table is drawn for a terminal where `drawn`, and plain and complete otherwise."""
    if format == "json":
        return json.dumps([_jsonable(row) for row in frame.iter_rows(named=True)], indent=1, allow_nan=False)
    if format == "csv":
        return _flat(frame).write_csv()
    cells = [[_cell(value) for value in row] for row in frame.iter_rows()]
    numeric = [dtype.is_numeric() for dtype in frame.dtypes]
    if format == "markdown":
        return _markdown(frame.columns, cells, numeric)
    if drawn and sys.stdout.isatty():
        return _drawn(frame.columns, cells, numeric)
    return plain(frame.columns, cells, numeric)


def plain(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    """Return aligned columns without lines around them, nothing cut off."""
    widths = [max(len(name), *(len(row[i]) for row in rows), 0) for i, name in enumerate(header)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(_aligned(line, widths, numeric) for line in lines)


def _aligned(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(cells, widths, numeric, strict=True))
    return "  ".join(padded).rstrip()


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    rule = ["---:" if right else "---" for right in numeric]
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(header), rule, *escaped])


def _drawn(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, right in zip(header, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value)


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_jsonable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with nested columns as JSON text, which CSV can hold."""
    import polars as pl

    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    texts = [pl.Series(name, [json.dumps(_jsonable(value)) for value in frame[name].to_list()]) for name in nested]
    return frame.with_columns(texts)
