"""What goes in and what comes out: the input contract, the settings, and every published table.

Each table is one Pydantic model. Column types, descriptions, JSON Schema and SQL comments are all read from it.
Everything is imported on first use: a command that reads settings needs no table.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schemas.canonical import CanonicalBatch as CanonicalBatch
    from schemas.canonical import CanonicalSample as CanonicalSample
    from schemas.canonical import RewardPart as RewardPart
    from schemas.findings import Finding as Finding
    from schemas.record import AdapterRef as AdapterRef
    from schemas.record import SampleRecord as SampleRecord
    from schemas.settings import LedgerConfig as LedgerConfig
    from schemas.settings import RunConfig as RunConfig
    from schemas.settings import Settings as Settings
    from schemas.table import SCHEMA_VERSION as SCHEMA_VERSION
    from schemas.table import Table as Table
    from schemas.tables import PUBLISHED as PUBLISHED
    from schemas.tables import AdapterRow as AdapterRow
    from schemas.tables import BatchRow as BatchRow
    from schemas.tables import FindingRow as FindingRow
    from schemas.tables import MetricRow as MetricRow
    from schemas.tables import PromptGroupRow as PromptGroupRow
    from schemas.tables import RolloutRow as RolloutRow
    from schemas.tables import SampleRow as SampleRow
    from schemas.tables import SourceRow as SourceRow

_NAMES = {
    "canonical": ("CanonicalBatch", "CanonicalSample", "RewardPart"),
    "findings": ("Finding",),
    "record": ("AdapterRef", "SampleRecord"),
    "settings": ("LedgerConfig", "RunConfig", "Settings"),
    "table": ("SCHEMA_VERSION", "Table"),
    "tables": (
        "PUBLISHED",
        "AdapterRow",
        "BatchRow",
        "FindingRow",
        "MetricRow",
        "PromptGroupRow",
        "RolloutRow",
        "SampleRow",
        "SourceRow",
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module 'schemas' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"schemas.{_HOMES[name]}"), name)
