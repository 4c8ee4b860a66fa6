"""Canonical samples of a record format, gathered by batch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from pipeline.expressions.keys import BATCH, continues
from pipeline.sources.batch import BatchRead
from pipeline.sources.contract import listed
from schemas.findings import Finding
from schemas.table import MAX_ROWS_IN_BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.sources.batch import SourceFile


class BatchKey(NamedTuple):
    """Where a sample belongs; `step` is null where neither the sample nor the file's name tells it."""

    run: str
    split: str
    step: int | None


class Gathering:
    """Samples and findings of one file, in the file's order, by batch."""

    def __init__(self, source: SourceFile, format: str) -> None:
        self.source = source
        self.format = format
        self._frames: list[pl.DataFrame] = []
        self._of_file: list[Finding] = []
        self._findings: dict[BatchKey, list[Finding]] = defaultdict(list)
        self._rows: dict[BatchKey, int] = defaultdict(int)

    def default_key(self) -> BatchKey:
        """Return the batch of a sample that does not say where it belongs."""
        return BatchKey(self.source.run, self.source.split or "train", self.source.step)

    def next_row(self, key: BatchKey) -> int:
        """Return the row of the next sample of a batch, counting it."""
        row = self._rows[key]
        self._rows[key] = row + 1
        return row

    def add(self, frame: pl.DataFrame) -> None:
        """Add canonical samples."""
        self._frames.append(frame)

    def refuse(self, key: BatchKey, finding: Finding) -> None:
        """Add a problem of one batch."""
        self._findings[key].append(finding)

    def refuse_file(self, finding: Finding) -> None:
        """Add a problem that may be any batch's of the file: none of them is taken."""
        self._of_file.append(finding)

    def batches(self, *, at_least_one: bool = False) -> Iterator[BatchRead]:
        """Yield every batch, refused ones with their findings.

        Args:
            at_least_one: yield an empty batch for a file without samples whose name tells the step.
        """
        samples = {BatchKey(*key): frame for key, frame in _partitioned(self._frames)}
        keys = list(dict.fromkeys([*samples, *self._findings]))
        if self._of_file:
            only = next(iter(keys)) if len(keys) == 1 else self.default_key()
            yield self._refused(only)
            return
        if at_least_one and not keys and self.source.step is not None:
            keys = [self.default_key()]
        for key in keys:
            yield self._batch(key, samples.get(key))

    def _refused(self, key: BatchKey) -> BatchRead:
        findings = [*self._of_file, *(finding for some in self._findings.values() for finding in some)]
        return BatchRead(*key, self.source.name, self.format, findings=tuple(listed(findings)))

    def _batch(self, key: BatchKey, samples: pl.DataFrame | None) -> BatchRead:
        findings = list(self._findings.get(key, ()))
        explicit = False
        if samples is not None:
            findings += check_batch(samples)
            explicit = samples.height > 0 and samples["explicit_group"].null_count() == 0
        if key.step is None:
            message = "no step in the records and none in the file's name; add a field `step`"
            findings.append(Finding(code="step_unknown", message=message))
        return BatchRead(
            run=key.run,
            split=key.split,
            step=key.step,
            source=self.source.name,
            format=self.format,
            findings=tuple(listed(findings)),
            explicit_groups=explicit,
            **({} if samples is None else {"samples": samples}),
        )


def check_batch(samples: pl.DataFrame) -> list[Finding]:
    """Return what is wrong with a batch as a whole: explicit groups of some samples only, too many rows."""
    findings = []
    labels = samples["explicit_group"]
    if 0 < labels.null_count() < samples.height:
        row = samples.filter(labels.is_null())["row"][0]
        message = "prompt_group: some samples of the batch have one and some have none; give it to all or to none"
        findings.append(Finding(code="group_sizes", message=message, row=row, field="prompt_group"))
    if samples.height >= MAX_ROWS_IN_BATCH:
        message = f"the batch has {samples.height} samples; at most {MAX_ROWS_IN_BATCH - 1} are taken: split the step"
        findings.append(Finding(code="payload_shape", message=message))
    return findings


def _partitioned(frames: list[pl.DataFrame]) -> Iterator[tuple[tuple[str, str, int | None], pl.DataFrame]]:
    if not frames:
        return
    samples = pl.concat(frames)
    firsts = samples.lazy().with_row_index("first").filter(~continues(BATCH)).select("first", *BATCH).collect()
    if firsts.select(BATCH).is_duplicated().any():
        yield from samples.partition_by(BATCH, as_dict=True, maintain_order=True).items()
        return
    # Batches lie one after another, as in nearly every file: they are looked at where they are, not copied.
    ends = firsts["first"].shift(-1, fill_value=samples.height)
    for (first, *key), end in zip(firsts.iter_rows(), ends, strict=True):
        yield (key[0], key[1], key[2]), samples.slice(first, end - first)
