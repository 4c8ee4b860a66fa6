"""Snapshots: the header of a stored one, what it was selected by, and the `[snapshot]` section of a `ledger.toml`."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

FORMAT_VERSION = 1
"""Raised when a stored snapshot is written in another way; every earlier version stays readable."""

TableName = Literal["batches", "samples", "rollouts", "prompt_groups", "adapters", "metrics"]
DEFAULT_TABLES: tuple[TableName, ...] = ("metrics", "adapters", "batches")
ROW_TABLES: tuple[TableName, ...] = ("samples", "rollouts")
"""Tables that `--rows` adds."""
TOO_WIDE = 0.5
"""A relative tolerance from here on lets a value halve or double, which no check is for."""


class Tolerance(BaseModel):
    """How far a mean may move: |a - b| <= max(absolute, relative * max(|a|, |b|))."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    absolute: float = Field(default=1e-12, description="in the metric's own unit")
    relative: float = Field(default=1e-9, description="share of the larger of the two magnitudes")

    @field_validator("absolute", "relative")
    @classmethod
    def _can_fail(cls, value: float) -> float:
        if not math.isfinite(value) or value < 0:
            message = f"a tolerance is a finite number of 0 or more; with {value} the check could not be trusted"
            raise ValueError(message)
        return value

    @field_validator("relative")
    @classmethod
    def _is_narrow(cls, value: float) -> float:
        if value >= TOO_WIDE:
            message = f"a relative tolerance of {value} cannot fail in earnest; give one below {TOO_WIDE}"
            raise ValueError(message)
        return value


EXACT = Tolerance(absolute=0.0, relative=0.0)
"""The tolerance of counts and identities."""


def _pair(value: object) -> object:
    """Read `"ABS,REL"` as the command line writes it."""
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",")]
    if len(parts) not in (1, 2):
        message = "expected ABS or ABS,REL"
        raise ValueError(message)
    names = ("absolute", "relative")[: len(parts)]
    # With one number alone, nothing but that number is tolerated.
    return {"relative": 0.0, **dict(zip(names, parts, strict=True))}


GivenTolerance = Annotated[Tolerance, BeforeValidator(_pair)]


class Corridor(BaseModel):
    """How far a metric may be from the mean of its trusted history, either way: max(absolute, relative * |mean|)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    absolute: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="in the metric's own unit")
    relative: float = Field(
        default=0.0, ge=0, lt=TOO_WIDE, allow_inf_nan=False, description="share of the mean of the trusted history"
    )
    points: int = Field(default=1, ge=1, description="trusted points from which the gate is active")
    window: int = Field(default=20, ge=1, description="newest trusted points that the mean is taken of")


class Selection(BaseModel):
    """Which batches and which tables a snapshot keeps. Nothing given: everything."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    runs: tuple[str, ...] = Field(default=(), description="runs by name; none: all")
    split: Literal["train", "eval"] | None = Field(default=None, description="train or eval; none: both")
    first_step: int | None = Field(default=None, description="first step kept")
    last_step: int | None = Field(default=None, description="last step kept")
    tables: tuple[TableName, ...] = Field(default=DEFAULT_TABLES, min_length=1, description="tables kept")
    metrics: tuple[str, ...] = Field(
        default=(), description="metrics kept, by name, family or pattern, of the table of metrics; none: all"
    )


class SettingsUse(BaseModel):
    """Settings that batches were computed with, and how many batches of which runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    runs: dict[str, int]
    values: dict[str, Any]


class Versions(BaseModel):
    """Versions of the code that computed the figures."""

    model_config = ConfigDict(frozen=True, extra="allow")

    schema_: int = Field(alias="schema", description="version of the published tables")
    metrics: dict[str, int] = Field(default_factory=dict, description="version of every metric's definition")


class Part(BaseModel):
    """One Parquet file of a large table: some whole batches."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    file: str = Field(pattern=r"^[a-z_]+-[0-9]+-[0-9a-f]+\.parquet$")
    rows: int = Field(ge=0)
    sha256: str


class TableHeader(BaseModel):
    """One table of a stored snapshot; its rows follow as lines, or lie in parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    table: TableName
    columns: dict[str, Literal["bool", "int", "float", "str"]]
    rows: int = Field(ge=0)
    fingerprint: str
    parts: tuple[Part, ...] | None = None


class SnapshotHeader(BaseModel):
    """What a stored snapshot says of itself. Nothing of it depends on when, where or by whom it was saved."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    snapshot: int = Field(description="version of the file format")
    fingerprint: str = Field(description="of the content of all tables")
    counts: dict[str, int] = Field(description="runs, batches, samples and rollouts that it was made from")
    selection: Selection
    versions: tuple[Versions, ...] = Field(description="distinct versions that computed its batches")
    settings: dict[str, SettingsUse] = Field(description="distinct settings of its batches, by their fingerprint")


class SnapshotSettings(BaseModel):
    """The `[snapshot]` section of a `ledger.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    directory: str | None = Field(default=None, description="directory of the snapshots, relative to the file")
    tables: tuple[TableName, ...] = Field(default=DEFAULT_TABLES, min_length=1)
    metrics: tuple[str, ...] = Field(default=(), description="metrics kept, by name, family or pattern; none: all")
    rows: bool = Field(default=False, description="keep samples and rollouts as well")
    allow_new: bool = Field(default=False, description="new keys are no difference: the run is growing")
    strict: bool = Field(default=False, description="an integer that became the equal float is a difference")
    tolerance: dict[str, GivenTolerance] = Field(default_factory=dict, description="by name or pattern of a metric")
    gate: dict[str, Corridor] = Field(default_factory=dict, description="by name or pattern of a metric")
