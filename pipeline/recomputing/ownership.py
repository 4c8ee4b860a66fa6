"""Whose file a batch or a finding comes from.

A file is known by (run, path), the run being the one it was given for. Records may name runs of their own, so a row's
run need not be its file's; and one file may be given for two runs, each of which has its own rows of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable

FileKey = tuple[str, str]
"""(run, path) of a file."""
SCHEMA = {"run": pl.String(), "source": pl.String()}


def frame(files: Iterable[FileKey]) -> pl.DataFrame:
    """Return files as a frame with the columns run and source."""
    return pl.DataFrame(sorted(files), schema=SCHEMA, orient="row")


def is_of(rows: pl.DataFrame, files: Iterable[FileKey], sources: pl.DataFrame) -> pl.Series:
    """Return for every row whether it is of one of the files.

    Args:
        rows: columns run and source.
        files: the files.
        sources: run and source of every known file; a row of a run that its path was not given for is any run's.
    """
    given = frame(files)
    if given.is_empty() or rows.is_empty():
        return pl.repeat(value=False, n=rows.height, dtype=pl.Boolean, eager=True)
    key = pl.struct("run", "source")
    own = key.is_in(given.to_struct("files").implode())
    claimed = key.is_in(pl.concat([given, sources.select("run", "source")]).unique().to_struct("files").implode())
    of_path = pl.col("source").is_in(given["source"].unique().to_list())
    return rows.select((own | (of_path & ~claimed)).fill_null(value=False)).to_series()
