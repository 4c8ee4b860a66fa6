"""pass@k: the chance that one of k rollouts of a prompt passes, from c passes in n rollouts.

pass@k = 1 - C(n - c, k) / C(n, k), the unbiased closed form (Chen et al., 2021, "Evaluating Large Language Models
Trained on Code"); undefined for k > n.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from pipeline.expressions import sums

if TYPE_CHECKING:
    from schemas.settings import Settings


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Return 1 - C(n - c, k) / C(n, k), null for k > n.

    C(n - c, k) / C(n, k) is a product of k factors, and also one of c: the shorter is taken.
    """
    if k > n:
        return None
    if c == 0:
        return 0.0
    if n - c < k:
        return 1.0
    if c < k:
        return 1.0 - math.prod((n - k - i) / (n - i) for i in range(c))
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


def with_expected_size(groups: pl.LazyFrame, settings: Settings) -> pl.LazyFrame:
    """Add `expected`: n_samples_per_prompt, else the size that most groups of the adapter have, the larger on ties."""
    if settings.n_samples_per_prompt is not None:
        return groups.with_columns(expected=pl.lit(settings.n_samples_per_prompt, pl.Int64))
    frequent = (
        groups.group_by("adapter", "rollouts")
        .agg(groups=pl.len())
        .group_by("adapter")
        .agg(expected=pl.col("rollouts").sort_by("groups", "rollouts").last())
    )
    return groups.join(frequent, on="adapter", how="left")


def by_k(groups: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row a group and k = 1, 2, 4, ... up to the expected size, with `pass_at_k`.

    It is null where the group is not complete, or not all of its rollouts are scored.
    """
    # As many powers of two as there are bits in the size.
    powers = pl.int_ranges(0, sums.spare_bits(pl.max_horizontal("expected", 1)))
    kept = groups.with_columns(k=powers).explode("k").with_columns(k=pl.lit(2, pl.Int64).pow(pl.col("k")))
    used = (pl.col("rollouts") == pl.col("expected")) & (pl.col("scored") == pl.col("rollouts"))
    counted = pl.when(used).then(pl.struct(n="rollouts", c="passes", k="k"))
    value = counted.map_batches(_estimates, return_dtype=pl.Float64, is_elementwise=True)
    return kept.with_columns(pass_at_k=value).with_columns(k=pl.col("k").cast(pl.String))


def _estimates(counted: pl.Series) -> pl.Series:
    """Return pass@k of structs (n, c, k); equal ones, of which there are many, are worked out once."""
    cases = counted.struct.unnest()
    distinct = cases.drop_nulls().unique()
    values = pl.Series("estimate", [pass_at_k(*case) for case in distinct.iter_rows()], dtype=pl.Float64)
    known = distinct.with_columns(values)
    return cases.join(known, on=cases.columns, how="left", maintain_order="left")["estimate"].alias(counted.name)
