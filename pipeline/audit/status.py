"""The state of a ledger, read from the ledger itself."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl

from pipeline.audit.query import sql
from pipeline.store.layout import Layout

if TYPE_CHECKING:
    from pathlib import Path

_RUNS = """
WITH published AS (
    SELECT run,
           count(*) FILTER (split = 'train') AS train_batches,
           count(*) FILTER (split = 'eval') AS eval_batches,
           sum(samples)::BIGINT AS samples,
           max(step) FILTER (split = 'train') AS last_step,
           max(published_at) AS published_at,
           count(*) FILTER (state = 'stale') AS stale
    FROM batches GROUP BY run
), noticed AS (
    SELECT run,
           count(DISTINCT (source, split, step)) FILTER (severity = 'error') AS refused,
           count(*) FILTER (severity = 'warning') AS warnings,
           count(*) FILTER (code = 'replaced_batch') AS replaced
    FROM findings GROUP BY run
), files AS (
    SELECT run,
           count(*) FILTER (state = 'pending') AS pending,
           count(*) FILTER (state = 'vanished') AS vanished
    FROM sources GROUP BY run
), runs AS (
    SELECT run FROM published UNION SELECT run FROM noticed UNION SELECT run FROM files
)
SELECT runs.run,
       coalesce(train_batches, 0) AS train_batches,
       coalesce(eval_batches, 0) AS eval_batches,
       coalesce(samples, 0) AS samples,
       last_step,
       published_at,
       coalesce(stale, 0) AS stale,
       coalesce(refused, 0) AS refused,
       coalesce(pending, 0) AS pending,
       coalesce(vanished, 0) AS vanished,
       coalesce(replaced, 0) AS replaced,
       coalesce(warnings, 0) AS warnings
FROM runs
LEFT JOIN published ON published.run IS NOT DISTINCT FROM runs.run
LEFT JOIN noticed ON noticed.run IS NOT DISTINCT FROM runs.run
LEFT JOIN files ON files.run IS NOT DISTINCT FROM runs.run
ORDER BY runs.run
"""


def status(ledger: Path) -> pl.DataFrame:
    """Return one row a run: its batches, last train step, when, and what is stale, refused, pending or vanished.

    `replaced` are published batches that were dumped again with other samples, as a resumed run does. `storage_bytes`
    is that of the whole ledger, older generations included.

    Raises:
        NoInputError: there is no ledger.
    """
    layout = Layout(ledger)
    runs = sql(_RUNS, ledger)
    return runs.with_columns(storage_bytes=pl.lit(_size(str(layout.root)), pl.Int64))


def _size(directory: str) -> int:
    """Return the bytes of all files below a directory, some of which a writer may be removing."""
    total = 0
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                is_directory = entry.is_dir(follow_symlinks=False)
                total += _size(entry.path) if is_directory else entry.stat(follow_symlinks=False).st_size
    return total
