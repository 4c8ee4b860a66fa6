"""Which published batches were dumped again with other samples, as a resumed run does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from pipeline.expressions.keys import BATCH
from pipeline.store import segments
from pipeline.store.publication import SEGMENT
from schemas.canonical import CanonicalSample
from schemas.findings import Finding
from schemas.frames import polars_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.store.layout import Layout
    from pipeline.store.publication import Publication

CODE = "replaced_batch"
_KEY = list(BATCH)


def replaced(
    layout: Layout, before: Publication, accepted: pl.DataFrame, digests: dict[str, str | None]
) -> Iterator[Finding]:
    """Yield a warning for every batch that was read anew, and whose samples are not those published before.

    Files whose digest is the same hold the same samples; of the others the samples themselves are compared, since a
    file of many steps changes whenever a step is added.

    Args:
        layout: paths of the ledger.
        before: the last publication.
        accepted: new batches, rows as stored.
        digests: content of the files that were read, by path.
    """
    old = before.batches.select(*_KEY, "samples", SEGMENT, before="source")
    both = accepted.filter(pl.col("source").is_in(list(digests))).join(old, on=_KEY, how="inner", suffix="_before")
    if both.is_empty():
        return
    known = dict(before.sources.select("source", "digest").iter_rows())
    is_same = [
        digests[new] is not None and digests[new] == known.get(path)
        for new, path in both.select("source", "before").iter_rows()
    ]
    suspects = both.filter(~pl.Series(is_same, dtype=pl.Boolean))
    for pair in suspects.partition_by(SEGMENT, f"{SEGMENT}_before", maintain_order=True):
        now = _samples(layout, pair[SEGMENT][0], pair)
        then = _samples(layout, pair[f"{SEGMENT}_before"][0], pair)
        for row in pair.sort(_KEY).iter_rows(named=True):
            key = tuple(row[name] for name in _KEY)
            if not _equal(now.get(key), then.get(key)):
                yield _finding(row)


def _samples(layout: Layout, segment: str, keys: pl.DataFrame) -> dict[tuple[object, ...], pl.DataFrame]:
    samples = segments.read_segment(layout, segment, "samples").select(list(polars_schema(CanonicalSample)))
    chosen = samples.join(keys.select(_KEY).lazy(), on=_KEY, how="semi").sort(*_KEY, "row").collect()
    return chosen.partition_by(_KEY, as_dict=True)


def _equal(one: pl.DataFrame | None, other: pl.DataFrame | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.equals(other)


def _finding(row: dict[str, Any]) -> Finding:
    where = f"{row['split']} step {row['step']} of run {row['run']}"
    whence = f" in {row['before']}" if row["before"] != row["source"] else ""
    message = (
        f"{where} was dumped again with other samples ({row['samples_before']} before{whence}, {row['samples']} now), "
        "as a resumed run does; the later ones are published"
    )
    place = {name: row[name] for name in ("run", "split", "step", "source")}
    return Finding(code=CODE, message=message, value=f"{row['samples_before']} samples", **place)
