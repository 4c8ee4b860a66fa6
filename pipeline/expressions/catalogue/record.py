"""What a metric is: a record that says what is averaged over what, in Polars and in SQL, and what a reader has to know.

A metric is a statistic of one measure over the things of one unit of account. Measures are columns: those of samples
are written in `pipeline.expressions.measures`, those of rollouts and prompt groups in `pipeline.stages.units`; the SQL
views `measures_of_UNIT` have columns of the same names, made from the published samples alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipeline.expressions.catalogue.statistics import Columns

if TYPE_CHECKING:
    from pipeline.expressions.catalogue.statistics import Statistic

Unit = Literal["sample", "rollout", "episode", "prompt_group"]
"""What is counted once: a sample; a rollout of the normalisation (within its prompt group) or of the episode metrics
(within its own group_index); a prompt group."""
UNITS: tuple[Unit, ...] = ("sample", "rollout", "episode", "prompt_group")
Direction = Literal["higher", "lower", "neutral"]
"""Which way is better; neutral where neither is."""
Scope = Literal["batch", "adapter"]
SCOPES: tuple[Scope, ...] = ("batch", "adapter")


@dataclass(frozen=True)
class Support:
    """What a dump must hold for a metric: a measure that is not null, or not 0, everywhere.

    Args:
        measure: column of the metric's unit.
        reason: said of a batch or adapter in which it is null, or 0, throughout.
        positive: whether it has to be more than 0 somewhere: what a trainer writes where it has measured nothing.
    """

    measure: str
    reason: str
    positive: bool = False

    @property
    def sql(self) -> str:
        """Return in SQL whether a key has it."""
        given = f"bool_or({self.measure} > 0)" if self.positive else f"count({self.measure}) > 0"
        return f"coalesce({given}, false)"


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric, or with `label` a family of metrics whose names differ in one part. There is one record of each.

    Args:
        name: its name; of a family with the part that differs in braces.
        family: what `--metrics` may name to select it with its kin.
        unit: what is counted once.
        statistic: what is made of the measure.
        measure: column of the unit that it is made of.
        meaning: one line.
        count_of: what its `count` counts.
        direction: which way is better.
        where: boolean column of the unit: only the things for which it is true take part.
        over: second column, of a ratio of sums.
        in_units_of: column of what a float measure is in units of (see `Columns`).
        label: column of the unit that names the member of the family.
        support: what a dump must hold for it.
        tracker: key under which trainers log a figure of the same definition.
        compare: key of the trainers' figure that it differs from on purpose.
        differs: how, and why.
        source: where the definition is from.
        scopes: for what it is published.
        version: raised when its definition changes.
    """

    name: str
    family: str
    unit: Unit
    statistic: Statistic
    measure: str
    meaning: str
    count_of: str
    direction: Direction = "neutral"
    where: str | None = None
    over: str | None = None
    in_units_of: str | None = None
    label: str | None = None
    support: Support | None = None
    tracker: str | None = None
    compare: str | None = None
    differs: str | None = None
    source: str = "here"
    scopes: tuple[Scope, ...] = SCOPES
    version: int = 1

    @property
    def is_count(self) -> bool:
        """Return whether it is a whole number of things."""
        return self.statistic.is_count

    @property
    def columns(self) -> Columns:
        """Return the columns that the statistic works on: the measure, masked where only some things take part."""
        if self.statistic.kind == "ratio":
            return Columns(f"{self.measure}_of_{self.over}", f"{self.over}_for_{self.measure}")
        masked = self.measure if self.where is None else f"{self.measure}_if_{self.where}"
        return Columns(masked, self.over, self.in_units_of)

    @property
    def sql(self) -> str:
        """Return the value's aggregation in SQL over `measures_of_UNIT`."""
        return self.statistic.sql(self._in_sql)

    @property
    def sql_count(self) -> str:
        """Return the count's aggregation in SQL."""
        return f"count({self._in_sql.of})"

    @property
    def _in_sql(self) -> Columns:
        if self.statistic.kind == "ratio":
            both = f"{self.measure} IS NOT NULL AND {self.over} IS NOT NULL"
            return Columns(f"CASE WHEN {both} THEN {self.measure} END", f"CASE WHEN {both} THEN {self.over} END")
        masked = self.measure if self.where is None else f"CASE WHEN {self.where} THEN {self.measure} END"
        return Columns(masked, self.over, self.in_units_of)

    @property
    def pattern(self) -> str:
        """Return the name with a wildcard for the part in which the members of a family differ."""
        if self.label is None:
            return self.name
        head, _, rest = self.name.partition("{")
        return f"{head}*{rest.partition('}')[2]}"
