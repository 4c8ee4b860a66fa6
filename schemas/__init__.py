"""What goes in and what comes out: the input contract, the settings, and every published table.

Each table is one Pydantic model. Column types, descriptions, JSON Schema and SQL comments are all read from it.
"""

from schemas.canonical import CanonicalBatch, CanonicalSample, RewardPart
from schemas.findings import Finding
from schemas.record import AdapterRef, SampleRecord
from schemas.settings import LedgerConfig, RunConfig, Settings
from schemas.table import SCHEMA_VERSION, Table
from schemas.tables import (
    PUBLISHED,
    AdapterRow,
    BatchRow,
    FindingRow,
    MetricRow,
    PromptGroupRow,
    RolloutRow,
    SampleRow,
    SourceRow,
)

__all__ = [
    "PUBLISHED",
    "SCHEMA_VERSION",
    "AdapterRef",
    "AdapterRow",
    "BatchRow",
    "CanonicalBatch",
    "CanonicalSample",
    "Finding",
    "FindingRow",
    "LedgerConfig",
    "MetricRow",
    "PromptGroupRow",
    "RewardPart",
    "RolloutRow",
    "RunConfig",
    "SampleRecord",
    "SampleRow",
    "Settings",
    "SourceRow",
    "Table",
]
