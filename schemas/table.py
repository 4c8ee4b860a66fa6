"""The base of every table model, and the few column types that tables are made of."""

from __future__ import annotations

from datetime import datetime
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

SCHEMA_VERSION = 1
"""Raised when a published column changes its meaning, its name or its type."""

CANONICAL_VERSION = 2
"""Raised when canonical samples are read differently: what was read before is then read again."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_TOKENS = 2**40
"""Lengths from here on are refused: sums over MAX_ROWS_IN_BATCH samples stay within 64 bits below it."""

MAX_ROWS_IN_BATCH = 2**22
"""A batch of more samples is refused: tokens and row fit into one 64-bit integer below it."""


def _whole(value: object) -> object:
    """Turn a float that is a whole number into an integer: files of one run differ in integer against float."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int64 = Annotated[int, BeforeValidator(_whole), Field(strict=True, ge=INT64_MIN, le=INT64_MAX)]
TokenCount = Annotated[int, BeforeValidator(_whole), Field(strict=True, ge=0, lt=MAX_TOKENS)]
Timestamp = datetime


class Table(BaseModel):
    """One row of a table; the class is the table's definition."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    relation: ClassVar[str]
    """Name of the table."""
    grain: ClassVar[tuple[str, ...]]
    """Columns that identify a row; nulls equal to nulls."""

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the class docstring: what one row is."""
        return (cls.__doc__ or "").strip().splitlines()[0]

    @classmethod
    def columns(cls) -> Iterator[tuple[str, type[Any], bool, str]]:
        """Yield (name, Python type, nullable, description) of every column, in order."""
        for name, field in cls.model_fields.items():
            python_type, nullable = column_type(field)
            yield name, python_type, nullable, field.description or ""


def column_type(field: FieldInfo) -> tuple[type[Any], bool]:
    """Return (type without None, whether None is allowed) of a model's field."""
    annotation: Any = field.annotation
    nullable = False
    if get_origin(annotation) in (UnionType, Union):
        members = [member for member in get_args(annotation) if member is not type(None)]
        nullable = len(members) < len(get_args(annotation))
        annotation = members[0]
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation, nullable
