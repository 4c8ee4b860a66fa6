"""Polars and SQL types of the table models."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any, Literal, get_args, get_origin

import polars as pl
from pydantic import BaseModel

from schemas.canonical import CanonicalSample
from schemas.table import Table, column_type
from schemas.tables import SampleRow

_POLARS: dict[type[Any], pl.DataType] = {
    bool: pl.Boolean(),
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
    datetime: pl.Datetime("us", "UTC"),
}
_SQL: dict[type[Any], str] = {
    bool: "BOOLEAN",
    int: "BIGINT",
    float: "DOUBLE",
    str: "VARCHAR",
    datetime: "TIMESTAMP WITH TIME ZONE",
}


def polars_type(python_type: Any) -> pl.DataType:
    """Return the Polars type of a Python type: models are structs, lists lists, closed sets of words enumerations."""
    if get_origin(python_type) is list:
        return pl.List(polars_type(get_args(python_type)[0]))
    if get_origin(python_type) is Literal:
        return pl.Enum(get_args(python_type))
    if isinstance(python_type, type) and issubclass(python_type, BaseModel):
        return pl.Struct({name: polars_type(column_type(f)[0]) for name, f in python_type.model_fields.items()})
    return _POLARS[python_type]


@cache
def polars_schema(table: type[Table]) -> pl.Schema:
    """Return the fixed column types of a table."""
    return pl.Schema({name: polars_type(python_type) for name, python_type, _, _ in table.columns()})


@cache
def answered_schema(table: type[Table]) -> pl.Schema:
    """Return the types that SQL over a table answers with: words are texts."""
    schema = polars_schema(table)
    return pl.Schema({name: pl.String() if isinstance(dtype, pl.Enum) else dtype for name, dtype in schema.items()})


@cache
def stored_schema(table: type[Table]) -> pl.Schema:
    """Return the columns of a table as it is kept: samples have the canonical ones too, for a recomputation."""
    published = polars_schema(table)
    return (
        published if table is not SampleRow else pl.Schema({**published, **polars_schema(CanonicalSample), **published})
    )


def sql_columns(table: type[Table]) -> list[tuple[str, str, str]]:
    """Return (name, SQL type, comment) of every column of a published table."""
    return [(name, _sql_type(python_type), text) for name, python_type, _, text in table.columns()]


def _sql_type(python_type: Any) -> str:
    if get_origin(python_type) is list:
        return f"{_sql_type(get_args(python_type)[0])}[]"
    if get_origin(python_type) is Literal:
        return _SQL[str]
    if isinstance(python_type, type) and issubclass(python_type, BaseModel):
        fields = (f'"{name}" {_sql_type(column_type(f)[0])}' for name, f in python_type.model_fields.items())
        return f"STRUCT({', '.join(fields)})"
    return _SQL[python_type]


def empty_frame(table: type[Table]) -> pl.DataFrame:
    """Return a frame of a table's columns with no rows."""
    return pl.DataFrame(schema=polars_schema(table))
