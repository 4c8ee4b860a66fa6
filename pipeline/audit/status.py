"""The state of a ledger, read from the ledger itself."""

from __future__ import annotations

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
           count(*) FILTER (severity = 'warning') AS warnings
    FROM findings GROUP BY run
)
SELECT coalesce(p.run, n.run) AS run,
       coalesce(train_batches, 0) AS train_batches,
       coalesce(eval_batches, 0) AS eval_batches,
       coalesce(samples, 0) AS samples,
       last_step, published_at,
       coalesce(stale, 0) AS stale,
       coalesce(refused, 0) AS refused,
       coalesce(warnings, 0) AS warnings
FROM published p FULL JOIN noticed n ON p.run IS NOT DISTINCT FROM n.run
ORDER BY run
"""


def status(ledger: Path) -> pl.DataFrame:
    """Return one row a run: batches, samples, last train step, time of publication, stale and refused batches.

    `storage_bytes` is that of the whole ledger, older generations included.

    Raises:
        NoInputError: there is no ledger.
    """
    layout = Layout(ledger)
    runs = sql(_RUNS, ledger)
    size = sum(path.stat().st_size for path in layout.root.rglob("*") if path.is_file())
    return runs.with_columns(storage_bytes=pl.lit(size, pl.Int64))
