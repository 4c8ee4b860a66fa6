"""Where things lie in a ledger's directory.

ledger.duckdb                       all that a reader needs: views over the newest generation
ledger.lock                         held by the one writer
data/generations/000007/*.parquet   what one publication says: batches and findings
data/segments/ID/*.parquet          rows of some whole batches; never changed once published
data/staging/                       written, not yet published
data/views-*.duckdb                 the views over nothing, from which the next ledger.duckdb is made
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.tables import (
    AbsentMetricRow,
    AdapterRow,
    BatchRow,
    FindingRow,
    MetricRow,
    PromptGroupRow,
    RolloutRow,
    SampleRow,
    SourceRow,
)

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT_TABLES = (SampleRow, RolloutRow, PromptGroupRow, AdapterRow, MetricRow, AbsentMetricRow)
"""Tables whose rows lie in segments."""
GENERATION_TABLES = (BatchRow, FindingRow, SourceRow)
"""Tables that are small, and written anew with every publication."""


@dataclass(frozen=True)
class Layout:
    """The paths of one ledger."""

    root: Path

    @property
    def database(self) -> Path:
        """The one file that readers know."""
        return self.root / "ledger.duckdb"

    @property
    def lock(self) -> Path:
        """The writer's lock."""
        return self.root / "ledger.lock"

    @property
    def data(self) -> Path:
        """The project's own part of the directory."""
        return self.root / "data"

    @property
    def staging(self) -> Path:
        """Files that are written and not yet published."""
        return self.data / "staging"

    def template(self, fingerprint: str) -> Path:
        """Return the database of all views over nothing, from which `ledger.duckdb` is made."""
        return self.data / f"views-{fingerprint}.duckdb"

    def generation(self, number: int) -> Path:
        """Return the directory of one publication."""
        return self.data / "generations" / f"{number:06d}"

    def segment(self, segment: str) -> Path:
        """Return the directory of one segment."""
        return self.data / "segments" / segment

    def generation_file(self, number: int, relation: str) -> Path:
        """Return the file of a table of one publication."""
        return self.generation(number) / f"{relation}.parquet"

    def segment_file(self, segment: str, relation: str) -> Path:
        """Return the file of a table of one segment."""
        return self.segment(segment) / f"{relation}.parquet"
