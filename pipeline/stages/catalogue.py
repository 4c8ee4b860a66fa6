"""The catalogue's metrics: each a statistic over one unit of account, for the batch and for every adapter."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import advantages, keys, sums
from pipeline.expressions.catalogue import SCOPES, UNITS, accounting
from pipeline.stages import tries, units
from pipeline.stages.tables import published
from schemas.frames import polars_schema
from schemas.tables import AbsentMetricRow, MetricRow

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pipeline.expressions.catalogue.record import Metric, Scope, Support, Unit
    from schemas.settings import Settings

_SCHEMA = pl.Schema({**polars_schema(MetricRow), "reason": pl.String()})


@dataclass(frozen=True)
class Evaluated:
    """Metrics that were made, and those that a batch or adapter cannot have, as lazy frames."""

    metrics: pl.LazyFrame
    absent: pl.LazyFrame


def evaluated(
    wide: pl.LazyFrame, stretches: pl.LazyFrame, settings: Settings, chosen: Sequence[Metric], settle: sums.Settle
) -> Evaluated:
    """Return the chosen metrics of every batch and adapter, those of the accounting itself apart.

    Args:
        wide: one row a sample, as the accounting leaves it.
        stretches: one row a stretch of them.
        settings: pass threshold and expected group size among them.
        chosen: records of the catalogue.
        settle: what makes a frame that is used several times be worked out once.
    """
    own = [metric for metric in chosen if metric.family != accounting.FAMILY]
    frames = _Frames(wide, stretches, settings, settle)
    found = [_SCHEMA.to_frame().lazy()]
    for unit in UNITS:
        of_unit = [metric for metric in own if metric.unit == unit]
        if of_unit:
            found += _of_unit(frames, unit, of_unit)
    rows = settle(pl.concat(found))
    is_absent = pl.col("reason").is_not_null()
    return Evaluated(published(rows.filter(~is_absent), MetricRow), published(rows.filter(is_absent), AbsentMetricRow))


@dataclass
class _Frames:
    """The frames of the units, each made once and only if it is asked for."""

    wide: pl.LazyFrame
    stretches: pl.LazyFrame
    settings: Settings
    settle: sums.Settle
    made: dict[str, pl.LazyFrame] = field(default_factory=dict)

    def of(self, name: str) -> pl.LazyFrame:
        if name not in self.made:
            self.made[name] = self.settle(self._make(name))
        return self.made[name]

    def _make(self, name: str) -> pl.LazyFrame:
        makers: dict[str, Callable[[], pl.LazyFrame]] = {
            "sample": lambda: units.samples(self.wide, self.settings),
            "rollout": lambda: units.rollouts(self.stretches, self.settings, self.settle),
            "episode": lambda: units.episodes(self.stretches, self.settle),
            "prompt_group": lambda: units.prompt_groups(self.of("rollout"), self.settings),
            "part_key": lambda: units.parts(self.wide),
            "k": lambda: tries.by_k(self.of("prompt_group")),
            "category": lambda: self.of("sample"),
        }
        return makers.get(name, lambda: self.of("prompt_group"))()


def _of_unit(frames: _Frames, unit: Unit, metrics: Sequence[Metric]) -> list[pl.LazyFrame]:
    """Return frames of one row a metric of a batch or adapter, its value or the reason why it is absent."""
    frame = frames.of(unit)
    unsupported = _unsupported(frame, metrics)
    # What no batch of these has anything for is not worked out: most dumps lack half of what there is to measure.
    given = [metric for metric in metrics if metric.support not in unsupported]
    single = tuple(metric for metric in given if metric.label is None)
    parts = frames.settle(_aggregated(frame, "adapter", single, _supports(given), frames.settle))
    found = []
    for scope in SCOPES:
        of_scope = [metric for metric in metrics if scope in metric.scopes]
        whole = parts if scope == "adapter" else frames.settle(_of_batches(frame, parts, single, given, frames.settle))
        rows_of = tuple(metric for metric in single if scope in metric.scopes)
        found.append(_rows_of(whole, scope, rows_of, frames.settle))
        found.append(_lacking(whole, scope, of_scope, unsupported))
        found += [_family(frames, scope, metric) for metric in given if metric.label and scope in metric.scopes]
    return found


def _unsupported(frame: pl.LazyFrame, metrics: Sequence[Metric]) -> set[Support]:
    """Return what metrics need of which there is nothing in any batch."""
    supports = {_support(one): one for one in (metric.support for metric in metrics) if one is not None}
    if not supports:
        return set()
    row = frame.select(**_supports(metrics)).collect().row(0, named=True)
    return {one for name, one in supports.items() if not row[name]}


def _rows_of(wide: pl.LazyFrame, scope: Scope, metrics: tuple[Metric, ...], settle: sums.Settle) -> pl.LazyFrame:
    """Return one row a metric that a key has something for."""
    if not metrics:
        return _SCHEMA.to_frame().lazy()
    # The same keys and metrics in the same order, so that values and counts lie beside each other.
    frames = [
        settle(wide.select(scope, *_names(scope), *_values(metrics))).unpivot(
            index=[scope, *_names(scope)], variable_name="metric", value_name="value"
        ),
        wide.select(pl.col(f"n:{metric.columns.of}").alias(metric.name) for metric in metrics)
        .unpivot(value_name="count")
        .select("count"),
        wide.select(_has(metric).alias(metric.name) for metric in metrics).unpivot(value_name="has").select("has"),
    ]
    rows = pl.concat(frames, how="horizontal").filter("has")
    return _rows(rows.with_columns(reason=pl.lit(None, pl.String)), scope)


def _has(metric: Metric) -> pl.Expr:
    """Return whether a key has what a metric needs."""
    return pl.col(_support(metric.support)) if metric.support is not None else pl.repeat(value=True, n=pl.len())


def _lacking(
    wide: pl.LazyFrame, scope: Scope, metrics: Sequence[Metric], unsupported: Collection[Support]
) -> pl.LazyFrame:
    """Return one row a metric that a key has nothing for, with the reason."""
    needing = [(metric, metric.support) for metric in metrics if metric.support is not None]
    told = [(metric.name, _support(support), support.reason) for metric, support in needing]
    reasons = pl.LazyFrame(told, schema=dict.fromkeys(("metric", "support", "reason"), pl.String), orient="row")
    nowhere = pl.repeat(value=False, n=pl.len())
    supports = {_support(one): nowhere if one in unsupported else pl.col(_support(one)) for _, one in needing}
    if not supports:
        return _SCHEMA.to_frame().lazy()
    has = wide.select(scope, *_names(scope), **supports).unpivot(
        index=[scope, *_names(scope)], variable_name="support", value_name="has"
    )
    rows = has.filter(~pl.col("has")).join(reasons, on="support")
    return _rows(rows.with_columns(value=pl.lit(None, pl.Float64), count=pl.lit(None, pl.Int64)), scope)


def _of_batches(
    frame: pl.LazyFrame,
    parts: pl.LazyFrame,
    metrics: tuple[Metric, ...],
    given: Sequence[Metric],
    settle: sums.Settle,
) -> pl.LazyFrame:
    """Return one row a batch with all that the metrics' values are made of.

    Counts, sums of whole numbers and extremes come from those of its adapters, everything else from the units.
    """
    metrics = tuple(metric for metric in metrics if "batch" in metric.scopes)
    added = {**_combined(metrics)}
    added |= {name: pl.col(name).any() for name in _supports(given)}
    names = (pl.col(name).first() for name in keys.BATCH)
    whole = parts.group_by("batch").agg(*names, *(value.alias(name) for name, value in added.items()))
    rest = {name: value for name, value in _aggregates(metrics).items() if name not in added}
    own = _grouped(frame.with_columns(_masked(metrics)), "batch", metrics, rest, settle=settle)
    return whole.join(own, on="batch", how="left")


def _aggregated(
    frame: pl.LazyFrame,
    scope: Scope,
    metrics: tuple[Metric, ...],
    supports: dict[str, pl.Expr],
    settle: sums.Settle,
    *more: str,
) -> pl.LazyFrame:
    """Return one row a key with all that the metrics' values are made of."""
    # Columns, not conditions within an aggregation, which would be worked out key by key.
    frame = frame.with_columns(_masked(metrics))
    key: str = scope
    if more:
        key = "__member"
        frame = frame.with_columns(__member=pl.col("__row").min().over(scope, *more))
    named = [pl.col(name).first() for name in dict.fromkeys((scope, *more, "batch", *_names(scope))) if name != key]
    found = _grouped(frame, key, metrics, {**_aggregates(metrics), **supports}, settle=settle, named=named)
    of_batch = tuple(str(metric.over) for metric in metrics if metric.statistic.kind == "part")
    return found.join(sums.summed(frame, of_batch, "batch", settle), on="batch", how="left") if of_batch else found


def _grouped(
    frame: pl.LazyFrame,
    key: str,
    metrics: Sequence[Metric],
    aggregates: dict[str, pl.Expr],
    *,
    settle: sums.Settle,
    named: Sequence[pl.Expr] = (),
) -> pl.LazyFrame:
    """Return one row a key with some aggregates, and with the votes and the sums of floats that metrics need."""
    voted = tuple(dict.fromkeys(metric.columns.of for metric in metrics if metric.statistic.kind == "std"))
    added = {metric.columns.of: None for metric in metrics if metric.statistic.adds_floats}
    summed = tuple(name for name in added if name not in voted)
    frame = settle(frame.with_columns(keys.flagged(key)))
    found = frame.group_by(key).agg(*named, *(value.alias(name) for name, value in aggregates.items()))
    if voted:
        found = found.join(advantages.counted(frame, voted, key, settle), on=key, how="left")
    return found.join(sums.summed(frame, summed, key, settle), on=key, how="left") if summed else found


# Expressions are values: the same some hundred for every chunk, and to build them takes as long as to work them out.
@cache
def _values(metrics: tuple[Metric, ...]) -> list[pl.Expr]:
    return [metric.statistic.value(metric.columns).cast(pl.Float64).alias(metric.name) for metric in metrics]


@cache
def _aggregates(metrics: tuple[Metric, ...]) -> dict[str, pl.Expr]:
    made: dict[str, pl.Expr] = {}
    for metric in metrics:
        made |= metric.statistic.aggregates(metric.columns)
    return made


@cache
def _combined(metrics: tuple[Metric, ...]) -> dict[str, pl.Expr]:
    made: dict[str, pl.Expr] = {}
    for metric in metrics:
        made |= metric.statistic.combined(metric.columns)
    return made


@cache
def _masked(metrics: tuple[Metric, ...]) -> list[pl.Expr]:
    """Return the measures of which only some things take part, as columns of their own."""
    made: dict[str, pl.Expr] = {}
    for metric in metrics:
        columns = metric.columns
        if metric.where is not None:
            made[columns.of] = pl.when(metric.where).then(metric.measure)
        if metric.statistic.kind == "ratio" and metric.over is not None:
            both = pl.when(pl.col(metric.measure).is_not_null() & pl.col(metric.over).is_not_null())
            made |= {columns.of: both.then(metric.measure), str(columns.over): both.then(metric.over)}
    return [value.alias(name) for name, value in made.items()]


def _supports(metrics: Iterable[Metric]) -> dict[str, pl.Expr]:
    """Return, for every measure that metrics need, whether a key has it."""
    needed = dict.fromkeys(metric.support for metric in metrics if metric.support is not None)
    return {_support(one): _is_given(one) for one in needed}


def _is_given(support: Support) -> pl.Expr:
    measure = pl.col(support.measure)
    return (measure > 0).any() if support.positive else measure.count() > 0


def _support(support: Support) -> str:
    return f"supports:{support.measure}:{support.positive}"


def _family(frames: _Frames, scope: Scope, metric: Metric) -> pl.LazyFrame:
    """Return one row a member of a family of metrics, named by its label."""
    label = str(metric.label)
    frame = frames.of(label)
    head, _, rest = metric.name.partition("{")
    name = pl.lit(head) + pl.col(label) + pl.lit(rest.partition("}")[2])
    members = frame.filter(pl.col(label).is_not_null())
    if metric.statistic.kind in ("total", "share"):
        whole = frame.group_by(scope).agg(count=_whole(metric).cast(pl.Int64))
        counted = members.group_by(scope, label).agg(pl.col(_names(scope)).first(), members=pl.len().cast(pl.Int64))
        value = pl.col("members").cast(pl.Float64)
        value = value if metric.statistic.kind == "total" else sums.quotient(value, pl.col("count"))
        rows = counted.join(whole, on=scope, how="left").with_columns(value=value)
    else:
        numbered = members.with_row_index("__row").with_columns(pl.col("__row").cast(pl.Int64))
        columns = metric.columns
        rows = _aggregated(numbered, scope, (metric,), {}, frames.settle, label).with_columns(
            value=metric.statistic.value(columns), count=pl.col(f"n:{columns.of}")
        )
    return _rows(rows.with_columns(metric=name, reason=pl.lit(None, pl.String)), scope)


def _whole(metric: Metric) -> pl.Expr:
    """Return what the members of a family are counted among: the things that can be members."""
    return pl.len() if metric.statistic.kind == "share" else pl.col(metric.measure).sum()


def _names(scope: Scope) -> list[str]:
    return list(keys.BATCH if scope == "batch" else units.NAMES)


def _rows(frame: pl.LazyFrame, scope: Scope) -> pl.LazyFrame:
    nobody = {"adapter_name": pl.lit(None, pl.String), "adapter_slot": pl.lit(None, pl.Int64)}
    named = frame.with_columns(scope=pl.lit(scope), **(nobody if scope == "batch" else {}))
    return named.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
