"""Every metric of the catalogue is guarded by a snapshot; a new record is so without another line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from pipeline.expressions.catalogue import METRICS
from pipeline.snapshots.compare import Rules, compare
from pipeline.snapshots.tolerance import tolerances
from tests.snapshots.contents import content, metrics

if TYPE_CHECKING:
    from pipeline.expressions.catalogue import Metric


def published(metric: Metric) -> str:
    """Return a name as it is published; of a family that of one member."""
    return metric.pattern.replace("*", "x")


@pytest.mark.parametrize("metric", METRICS, ids=published)
@pytest.mark.parametrize("now", [3.0 + 1e-6, math.nan, None])
def test_a_value_that_moved_fails(metric: Metric, now: float | None) -> None:
    name = published(metric)

    told = compare(content(metrics=metrics({name: (3.0, 7)})), content(metrics=metrics({name: (now, 7)})))

    assert told.verdict == "fail"
    assert [one.metric for one in told.moved if one.differing] == [name]


@pytest.mark.parametrize("metric", METRICS, ids=published)
def test_a_tolerance_is_for_means_and_never_for_counts(metric: Metric) -> None:
    name = published(metric)
    old, new = (content(metrics=metrics({name: (value, 7)})) for value in (3.0, 4.0))

    told = compare(old, new, Rules(tolerances=tolerances(["*=2,0"])))

    assert told.verdict == ("fail" if metric.is_count else "pass")
