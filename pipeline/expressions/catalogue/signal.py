"""Learning signal: how large advantages are, and whose tokens carry them."""

from __future__ import annotations

from pipeline.expressions.catalogue.record import Metric, Support
from pipeline.expressions.catalogue.statistics import EXACT_MEAN, EXACT_RATIO, MEAN, PART

FAMILY = "signal"
_ADVANTAGE = Support("abs_advantage", "no sample has an advantage: an evaluation batch, or nothing is scored")

METRICS: tuple[Metric, ...] = (
    Metric(
        "zero_advantage_ratio",
        FAMILY,
        "sample",
        MEAN,
        "has_no_signal",
        meaning="share of samples whose advantage is 0",
        count_of="samples that have an advantage",
        direction="lower",
        support=_ADVANTAGE,
    ),
    Metric(
        "mean_abs_advantage",
        FAMILY,
        "sample",
        EXACT_MEAN,
        "abs_advantage",
        meaning="mean magnitude of the advantages",
        count_of="samples that have an advantage",
        support=_ADVANTAGE,
    ),
    Metric(
        "token_mean_abs_advantage",
        FAMILY,
        "sample",
        EXACT_RATIO,
        "signal",
        over="signal_tokens",
        in_units_of="signal_unit",
        meaning="magnitude of the advantage that a trainable token carries, on average",
        count_of="samples that have an advantage",
        support=Support("signal_tokens", "no sample has an advantage and trainable tokens", positive=True),
    ),
    Metric(
        "signal_share",
        FAMILY,
        "sample",
        PART,
        "signal",
        over="batch_signal",
        meaning="share of the batch's signal that the adapter's tokens carry: sum of |advantage| x trainable tokens",
        count_of="samples of the adapter that have an advantage",
        scopes=("adapter",),
        support=Support("batch_has_signal", "no sample of the batch has an advantage other than 0 and tokens"),
    ),
)
"""The records of this family."""
