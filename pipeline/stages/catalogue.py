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
    from collections.abc import Callable, Iterable, Sequence

    from pipeline.expressions.catalogue.record import Metric, Scope, Support, Unit
    from schemas.settings import Settings

_SCHEMA = pl.Schema({**polars_schema(MetricRow), "reason": pl.String()})


@dataclass(frozen=True)
class Evaluated:
    """Metrics that were made, and those that a batch or adapter cannot have, as lazy frames."""

    metrics: pl.LazyFrame
    absent: pl.LazyFrame


def evaluated(
    wide: pl.LazyFrame,
    stretches: pl.LazyFrame,
    settings: Settings,
    chosen: Sequence[Metric],
    settle: sums.Settle,
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
        for scope in SCOPES:
            of_scope = [metric for metric in of_unit if scope in metric.scopes]
            if of_scope:
                found.append(_of_unit(frames, unit, scope, of_scope))
                found += [_family(frames, scope, metric) for metric in of_scope if metric.label is not None]
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
            "episode": lambda: units.episodes(self.stretches),
            "prompt_group": lambda: units.prompt_groups(self.of("rollout"), self.settings),
            "part_key": lambda: units.parts(self.wide),
            "k": lambda: tries.by_k(self.of("prompt_group")),
            "category": lambda: self.of("sample"),
        }
        return makers.get(name, lambda: self.of("prompt_group"))()


def _of_unit(frames: _Frames, unit: Unit, scope: Scope, metrics: Sequence[Metric]) -> pl.LazyFrame:
    """Return one row a metric, its value or the reason why it is absent; of a family only the reason."""
    single = tuple(metric for metric in metrics if metric.label is None)
    wide = frames.settle(_aggregated(frames.of(unit), scope, single, _supports(metrics), frames.settle))
    names = _names(scope)
    values = wide.select(scope, *names, *_values(single))
    counts = wide.select(scope, *(pl.col(f"n:{metric.columns.of}").alias(metric.name) for metric in single))
    having = wide.select(scope, *names, *_supports(metrics))
    rows = values.unpivot(index=[scope, *names], variable_name="metric", value_name="value").join(
        counts.unpivot(index=scope, variable_name="metric", value_name="count"), on=[scope, "metric"], how="left"
    )
    lacking = _lacking(having, scope, metrics).cache()
    kept = rows.join(lacking, on=[scope, "metric"], how="anti").with_columns(reason=pl.lit(None, pl.String))
    absent = lacking.with_columns(value=pl.lit(None, pl.Float64), count=pl.lit(None, pl.Int64))
    return pl.concat([_rows(kept, scope), _rows(absent, scope)])


def _lacking(having: pl.LazyFrame, scope: Scope, metrics: Sequence[Metric]) -> pl.LazyFrame:
    """Return (key, metric, reason) of every metric that a key has nothing for."""
    told = [(one.name, _support(one.support), one.support.reason) for one in metrics if one.support is not None]
    reasons = pl.LazyFrame(told, schema=dict.fromkeys(("metric", "support", "reason"), pl.String), orient="row")
    has = having.unpivot(index=[scope, *_names(scope)], variable_name="support", value_name="has")
    # Where no metric needs anything there is no column of that type either.
    return has.filter(~pl.col("has").cast(pl.Boolean)).join(reasons, on="support")


def _aggregated(
    frame: pl.LazyFrame,
    scope: Scope,
    metrics: Sequence[Metric],
    supports: dict[str, pl.Expr],
    settle: sums.Settle,
    *more: str,
) -> pl.LazyFrame:
    """Return one row a key with all that the metrics' values are made of."""
    # Columns, not conditions within an aggregation, which would be worked out key by key.
    frame = frame.with_columns(_masked(metrics))
    key = [scope, *more]
    voted = tuple(dict.fromkeys(metric.columns.of for metric in metrics if metric.statistic.kind == "std"))
    added = {metric.columns.of: None for metric in metrics if metric.statistic.adds_floats}
    summed = tuple(name for name in added if name not in voted)
    made = [value.alias(name) for name, value in {**_aggregates(tuple(metrics)), **supports}.items()]
    member = scope
    if more:
        member = "__member"
        frame = frame.with_columns(__member=pl.col("__row").min().over(key))
    frame = settle(frame)
    found = frame.group_by(key).agg(pl.col(dict.fromkeys((member, "batch", *_names(scope)))).exclude(key).first(), *made)
    if voted:
        found = found.join(advantages.counted(frame, voted, member, settle), on=member, how="left")
    if summed:
        found = found.join(sums.summed(frame, summed, member, settle), on=member, how="left")
    of_batch = tuple(str(metric.over) for metric in metrics if metric.statistic.kind == "part")
    return found.join(sums.summed(frame, of_batch, "batch", settle), on="batch", how="left") if of_batch else found


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


def _masked(metrics: Iterable[Metric]) -> list[pl.Expr]:
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
    return {
        _support(one): (pl.col(one.measure) > 0).any() if one.positive else pl.col(one.measure).is_not_null().any()
        for one in needed
    }


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
