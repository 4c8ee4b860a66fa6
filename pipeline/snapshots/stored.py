"""Snapshots on disk: written whole or not at all, read only if they are what was written.

NAME/snapshot.jsonl                 the header, a field a line; then every table, and its rows a line each
NAME/samples-0000-1a2b….parquet     rows of a table that is too large for that, whole batches, named by content
NAME/accepted.jsonl                 who moved this baseline, when and why (see `acceptance`)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import ValidationError

from pipeline.errors import NoInputError
from pipeline.snapshots import fingerprint, part_files, text_rows
from pipeline.snapshots.content import SETTINGS, TABLES, Content, TableContent, normal_settings
from pipeline.store import durable
from schemas.snapshot import FORMAT_VERSION, SnapshotHeader, TableHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from schemas.snapshot import Selection

FILE = "snapshot.jsonl"
MAX_TEXT_ROWS = 20_000
"""Tables up to here are text, whose changes a commit shows; larger ones are Parquet."""


def write(
    content: Content,
    selection: Selection,
    directory: Path,
    wanted: Callable[[SnapshotHeader], bool] = lambda _header: True,
) -> SnapshotHeader:
    """Write a snapshot; an earlier one in the directory stays whole until this one is there.

    Args:
        content: what to keep.
        selection: what it was selected by.
        directory: the snapshot's own.
        wanted: asked before the snapshot takes the place of the earlier one; on no, nothing changes.

    Raises:
        NoInputError: two rows have one key, so that nothing could be compared with them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tables = [_table(content.tables[name], directory) for name in TABLES if name in content.tables]
    header = SnapshotHeader(
        snapshot=FORMAT_VERSION,
        fingerprint=_of_tables([table for table, _ in tables]),
        counts=content.counts,
        selection=selection,
        versions=content.versions,
        settings=content.settings,
    )
    if wanted(header):
        durable_text(directory / FILE, _file_lines(header, tables))
    part_files.remove_others(directory, {part.file for table in _kept(directory) for part in table.parts or ()})
    return header


def _kept(directory: Path) -> list[TableHeader]:
    return read_header(directory)[1] if (directory / FILE).exists() else []


def durable_text(path: Path, lines: Iterator[str]) -> None:
    """Write lines to a file, atomically; on every system with the same line ends."""
    staged = path.with_name(f".{path.name}.writing")
    with staged.open("w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(line + "\n")
    durable.sync_file(staged)
    durable.replace(staged, path)


def read(directory: Path) -> tuple[SnapshotHeader, Content]:
    """Return a stored snapshot.

    Raises:
        NoInputError: there is none, or it cannot be read, or it is not what was written.
    """
    path = directory / FILE
    if not path.exists():
        message = f"snapshot {directory.name}: not in {directory.parent}; make it with `rollout-ledger snapshot save`"
        raise NoInputError(message)
    try:
        with path.open(encoding="utf-8") as file:
            header, tables = _parsed(file)
        contents: dict[str, TableContent] = {t.table: _content(t, rows, directory) for t, rows in tables}
        _check_is_whole(header, [table for table, _ in tables])
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, ValidationError) as error:
        why = _brief(error)
        message = f"{path}: no snapshot that can be trusted ({why}); restore it, or save it again with --force"
        raise NoInputError(message) from error
    texts = {name: normal_settings(json.dumps(use.values)) for name, use in header.settings.items()}
    if "batches" in contents:
        contents["batches"] = _with_settings(contents["batches"], texts)
    return header, Content(f"snapshot {directory.name}", header.versions, header.settings, contents, header.counts)


def read_header(directory: Path) -> tuple[SnapshotHeader, list[TableHeader]]:
    """Return what a stored snapshot says of itself, without looking at its rows.

    Raises:
        NoInputError: as `read`.
    """
    path = directory / FILE
    try:
        with path.open(encoding="utf-8") as file:
            header, tables = _parsed(file)
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, ValidationError) as error:
        message = f"{path}: no snapshot that can be read ({_brief(error)})"
        raise NoInputError(message) from error
    return header, [table for table, _ in tables]


def _table(content: TableContent, directory: Path) -> tuple[TableHeader, list[str]]:
    columns = {name: text_rows.type_name(dtype) for name, dtype in content.schema.items()}
    name = content.table.relation
    if content.rows > MAX_TEXT_ROWS:
        parts = part_files.write(content, directory, _short_settings)
        mark = fingerprint.of_lines([json.dumps(columns), *(part.sha256 for part in parts)])
        return TableHeader(table=name, columns=columns, rows=content.rows, fingerprint=mark, parts=tuple(parts)), []
    batches = content.sizes.select("run", "split", "step").unique()
    frame = part_files.in_order(content, content.read(batches, content.schema.names()))
    lines = list(text_rows.lines(_short_settings(frame)))
    mark = fingerprint.of_lines([json.dumps(columns), *lines])
    return TableHeader(table=name, columns=columns, rows=frame.height, fingerprint=mark), lines


def _short_settings(frame: pl.DataFrame) -> pl.DataFrame:
    if SETTINGS not in frame.columns:
        return frame
    names = {text: fingerprint.short(text) for text in frame[SETTINGS].unique()}
    return frame.with_columns(pl.col(SETTINGS).replace(names))


def _with_settings(content: TableContent, texts: dict[str, str]) -> TableContent:
    if SETTINGS not in content.schema:
        return content
    pieces = tuple(piece.with_columns(pl.col(SETTINGS).replace(texts)) for piece in content.pieces)
    return TableContent(content.table, content.schema, pieces)


def _check_is_whole(header: SnapshotHeader, tables: list[TableHeader]) -> None:
    if _of_tables(tables) != header.fingerprint:
        message = "its tables do not have the fingerprint of its header"
        raise ValueError(message)


def _of_tables(tables: list[TableHeader]) -> str:
    return fingerprint.of_lines(f"{table.table} {table.fingerprint}" for table in tables)


def _file_lines(header: SnapshotHeader, tables: list[tuple[TableHeader, list[str]]]) -> Iterator[str]:
    for name, value in header.model_dump(by_alias=True, mode="json").items():
        yield json.dumps({name: value}, ensure_ascii=False)
    for table, lines in tables:
        yield json.dumps(table.model_dump(exclude_none=True, mode="json"), ensure_ascii=False)
        yield from lines


def _parsed(lines: Iterator[str]) -> tuple[SnapshotHeader, list[tuple[TableHeader, list[list[Any]]]]]:
    fields: dict[str, Any] = {}
    tables: list[tuple[TableHeader, list[list[Any]]]] = []
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except ValueError as error:
            message = f"line {number} is no JSON"
            raise ValueError(message) from error
        if isinstance(value, list):
            tables[-1][1].append(value)
        elif "table" in value:
            tables.append((TableHeader.model_validate(value), []))
        else:
            fields.update(value)
        if fields.get("snapshot") != FORMAT_VERSION:
            message = f"format version {fields.get('snapshot')}, while this rollout-ledger reads {FORMAT_VERSION}"
            raise ValueError(message)
    return SnapshotHeader.model_validate(fields), tables


def _content(header: TableHeader, rows: list[list[Any]], directory: Path) -> TableContent:
    schema = pl.Schema({name: text_rows.NAMES[kind] for name, kind in header.columns.items()})
    table = TABLES[header.table]
    columns: dict[str, str] = dict(header.columns)
    if header.parts is not None:
        mark = fingerprint.of_lines([json.dumps(columns), *(part.sha256 for part in header.parts)])
        pieces = part_files.read(header.parts, directory)
    else:
        frame = text_rows.frame(rows, columns)
        mark = fingerprint.of_lines([json.dumps(columns), *text_rows.lines(frame)])
        pieces = (frame.lazy(),)
    if mark != header.fingerprint or (header.parts is None and len(rows) != header.rows):
        message = f"the rows of {header.table} do not have its fingerprint: edited, or torn"
        raise ValueError(message)
    return TableContent(table, schema, pieces)


def _brief(error: Exception) -> str:
    if isinstance(error, ValidationError):
        detail = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in detail['loc'])}: {detail['msg']}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
