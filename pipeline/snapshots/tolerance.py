"""How far a figure may move: counts and identities not at all, means by a relative and an absolute tolerance.

A tolerance is given by the name of a metric or of a column, or by a pattern of such names (`*raw_reward`,
`adapters.weight_*`). A name counts over a pattern, a later one over an earlier one, the command line over
`ledger.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import polars as pl
from pydantic import TypeAdapter, ValidationError

from pipeline.errors import UsageError
from pipeline.expressions.catalogue import METRICS, record_of
from pipeline.snapshots.content import TABLES, kept_schema
from schemas.snapshot import EXACT, GivenTolerance, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

METRIC_TABLE, METRIC, VALUE = "metrics", "metric", "value"
DEFAULT = Tolerance()


@dataclass(frozen=True)
class Tolerances:
    """The tolerance of every mean. `layers`: names and patterns with their tolerances, the last layer counting most."""

    layers: tuple[tuple[tuple[str, Tolerance], ...], ...] = ()

    def of(self, table: str, name: str) -> Tolerance:
        """Return the tolerance of a mean, by its table and its metric's or column's name."""
        if table == METRIC_TABLE and (metric := record_of(name)) is not None and metric.is_count:
            return EXACT
        return self.explicit(table, name) or DEFAULT

    def explicit(self, table: str, name: str) -> Tolerance | None:
        """Return the tolerance that was given for a mean; null where the default holds."""
        names = (name, f"{table}.{name}")
        for layer in reversed(self.layers):
            exact = [tolerance for pattern, tolerance in layer if pattern in names]
            fitting = [tolerance for pattern, tolerance in layer if any(fnmatchcase(one, pattern) for one in names)]
            if exact or fitting:
                return (exact or fitting)[-1]
        return None


def tolerances(options: Sequence[str] = (), section: Mapping[str, Tolerance] | None = None) -> Tolerances:
    """Return the tolerances of a `[snapshot]` section and of options, which count more.

    Args:
        options: each `METRIC=ABS,REL`, or `METRIC=ABS` with nothing relative.
        section: by name or pattern.

    Raises:
        UsageError: a tolerance cannot fail (NaN, negative, infinite, relative of 0.5 and more), or fits no mean.
    """
    layers = (tuple((section or {}).items()), tuple(_parsed(option) for option in options))
    for layer in layers:
        for pattern, _ in layer:
            _check_fits(pattern)
    return Tolerances(layers)


def _parsed(option: str) -> tuple[str, Tolerance]:
    pattern, equals, numbers = option.rpartition("=")
    if not equals or not pattern.strip():
        message = f"--tolerance {option}: expected METRIC=ABS,REL, as in episode_raw_reward=1e-9,1e-6"
        raise UsageError(message)
    adapter: TypeAdapter[Tolerance] = TypeAdapter(GivenTolerance)
    try:
        return pattern.strip(), adapter.validate_python(numbers)
    except ValidationError as error:
        told = "; ".join(detail["msg"].removeprefix("Value error, ") for detail in error.errors())
        message = f"--tolerance {option}: {told}"
        raise UsageError(message) from error


def _check_fits(pattern: str) -> None:
    if any(fnmatchcase(one, pattern) for table, name in _means() for one in (name, f"{table}.{name}")):
        return
    member = record_of(pattern.removeprefix(f"{METRIC_TABLE}."))
    if member is not None and not member.is_count:
        return
    names = [name for table, name in _means() if table == METRIC_TABLE]
    near = get_close_matches(pattern, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "`rollout-ledger metrics` lists the metrics"
    message = (
        f"tolerance of {pattern!r}: no mean has that name; counts and identities are exact. {hint} "
        "A column is named with its table, such as adapters.weight_scoped"
    )
    raise UsageError(message)


def _means() -> Iterable[tuple[str, str]]:
    for metric in METRICS:
        if not metric.is_count:
            yield METRIC_TABLE, metric.name if metric.label is None else metric.pattern
    for name, table in TABLES.items():
        for column, dtype in kept_schema(table).items():
            if dtype == pl.Float64() and (name, column) != (METRIC_TABLE, VALUE):
                yield name, column
