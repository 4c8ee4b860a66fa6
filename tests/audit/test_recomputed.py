"""SQL agrees with Polars and the plain-Python reference on every metric, and no check finds fault with what is right.

Two comparisons, since SQL adds plain floats. Rewards of everyday size (`tame`) have to agree to 1e-9 relative or 1e-12,
figure by figure. Where 1e300, 1e16 + 2 or 8.9e307 stand next to one another, large numbers cancel and no float64
addition keeps that: there the comparison allows 64 units in the last place of the largest number that went in, as do
the checks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from pipeline.audit.audits import bound
from pipeline.expressions.catalogue import METRICS, UNITS, record_of
from pipeline.store import derived
from queries.files import ANSWERS, queries
from tests.audit.ledgers import Memory, memory
from tests.catalogue_cases import EDGES, EVERYTHING, EVERYTHING_CHOSEN
from tests.comparison import assert_tables_agree
from tests.reference import account_all
from tests.strategies import runs, settings
from tests.worked_cases import TWO_ADAPTERS, train

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from queries.files import Query
    from tests.reference import Dump, Row, Tables

FILES = queries("metrics")
ACCOUNTING = [query.name for query in FILES if "metric" not in {column.name for column in query.columns}]
"""Files of one metric, whose name they have."""
LABELLED = [query.name for query in FILES if query.name not in ACCOUNTING]
"""Files of a family of metrics, whose names are a column."""
OF_UNITS = [f"of_{unit}" for unit in UNITS]
"""Views of the metrics that are made from their records."""
CHECKS = queries("checks")
ASKED = [query for kind in ANSWERS for query in queries(kind)]
FEWER = profile(max_examples=max(profile.default.max_examples // 3, 20) if profile.default else 20)
"""An example asks a dozen questions."""
FEW = profile(max_examples=max(FEWER.max_examples // 4, 5))
"""An example of the whole catalogue takes a second."""
ALL: dict[str, Any] = {"metrics": None}
KEY = ("run", "split", "step", "scope", "adapter_name", "adapter_slot", "metric")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    yield from memory(tmp_path_factory.mktemp("memory"))


def keyed(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in KEY): row for row in rows}


def close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def asked(ledger: Memory, name: str, **parameters: Any) -> pl.DataFrame:
    (query,) = (query for query in ASKED if query.name == name)
    values = bound(query, parameters)
    used = {name: value for name, value in values.items() if f"${name}" in query.statement}
    return ledger.ask(query.statement, used)


def recomputed_rows(ledger: Memory, names: Iterable[str]) -> list[Row]:
    """The rows of these twins, each asked for by itself, which is faster than all at once."""
    found = []
    for name in names:
        metric = f"'{name}' AS metric, " if name in ACCOUNTING else ""
        found += ledger.ask(f"SELECT {metric}* FROM recomputed_{name}").to_dicts()
    return found


def assert_catalogue_agrees(ledger: Memory) -> None:
    """Every metric in SQL is the published one, with the slack that the samples' numbers need."""
    samples = ledger.ask("SELECT * FROM samples").to_dicts()
    published = ledger.ask("SELECT * FROM metrics").to_dicts()
    recomputed = recomputed_rows(ledger, (*ACCOUNTING, *LABELLED, *OF_UNITS))
    assert_tables_agree({"samples": samples, "metrics": recomputed}, {"samples": samples, "metrics": published})


def test_there_is_a_twin_for_every_published_metric_and_no_other(ledger: Memory) -> None:
    """Twins are files by name, files by a column, and views made from records: a batch of all metrics has them all."""
    ledger.fill([EVERYTHING], {**ALL, **EVERYTHING_CHOSEN})

    labelled, of_units = (
        {record_of(row["metric"]) for row in recomputed_rows(ledger, names)} for names in (LABELLED, OF_UNITS)
    )

    accounting = [metric for metric in METRICS if metric.family == "accounting"]
    assert set(ACCOUNTING) == {metric.name for metric in accounting}
    assert labelled == {metric for metric in METRICS if metric.label is not None}
    assert of_units == {metric for metric in METRICS if metric.label is None and metric not in accounting}


def test_edges(ledger: Memory) -> None:
    """All in one ledger, each as a run of its own: asking takes as long for one batch as for all of them."""
    ledger.fill([], {})
    for case in EDGES:
        ledger.add([replace(dump, run=case.id) for dump in case.dumps], {**ALL, **case.settings})

    assert_catalogue_agrees(ledger)
    assert asked(ledger, "published_metrics").to_dicts() == []


@FEW
@given(dumps=runs(tame=True, extras=True, max_batches=6), chosen=settings())
def test_the_whole_catalogue_is_the_same_in_sql(ledger: Memory, dumps: list[Dump], chosen: dict[str, Any]) -> None:
    ledger.fill(dumps, {**ALL, **chosen})

    assert_catalogue_agrees(ledger)


@FEW
@given(dumps=runs(extras=True, max_batches=6), chosen=settings())
def test_the_catalogue_of_large_numbers_that_cancel(ledger: Memory, dumps: list[Dump], chosen: dict[str, Any]) -> None:
    ledger.fill(dumps, {**ALL, **chosen})

    assert_catalogue_agrees(ledger)
    assert asked(ledger, "published_metrics").to_dicts() == []


@FEWER
@given(dumps=runs(tame=True), chosen=settings())
def test_every_metric_is_the_same_in_sql(ledger: Memory, dumps: list[Dump], chosen: dict[str, Any]) -> None:
    ledger.fill(dumps, chosen)

    published = keyed(ledger.ask("SELECT * FROM metrics").to_dicts())
    recomputed = keyed(recomputed_rows(ledger, ACCOUNTING))

    assert recomputed.keys() == published.keys()
    for key, row in published.items():
        assert recomputed[key]["count"] == row["count"], key
        assert close(recomputed[key]["value"], row["value"]), (key, recomputed[key]["value"], row["value"])
    assert_contributions_add_up(ledger)
    assert_collisions(ledger, account_all(dumps, chosen))


@FEWER
@given(dumps=runs(), chosen=settings(), query=st.sampled_from(ASKED))
def test_large_numbers_that_cancel(ledger: Memory, dumps: list[Dump], chosen: dict[str, Any], query: Query) -> None:
    """The reference agrees, no check finds anything, and an audit gives its columns and never NaN."""
    ledger.fill(dumps, chosen)

    actual = recomputed_rows(ledger, ACCOUNTING)
    assert_tables_agree({"metrics": actual}, {"metrics": account_all(dumps, chosen)["metrics"]})
    for check in CHECKS:
        assert asked(ledger, check.name).to_dicts() == [], check.name
    answer = asked(ledger, query.name)
    assert answer.columns == [column.name for column in query.columns]
    assert answer.select(query.grain).is_unique().all()
    floats = [name for name, dtype in answer.schema.items() if dtype.is_float()]
    assert not any(answer[name].is_nan().any() for name in floats)


def test_the_union_is_that_of_the_views_of_each_metric_portable_or_not(ledger: Memory) -> None:
    ledger.fill([train(*TWO_ADAPTERS)], {})
    separate = recomputed_rows(ledger, (*ACCOUNTING, *LABELLED, *OF_UNITS))
    unions = [derived.views(portable=portable)[-1].statement for portable in (True, False)]

    for union in unions:
        assert keyed(ledger.ask(union).to_dicts()) == keyed(separate)


def assert_contributions_add_up(ledger: Memory) -> None:
    sums = ledger.ask(
        """
        SELECT d.*, c.* EXCLUDE (run, split, step)
        FROM metric_definitions AS d
        LEFT JOIN (
            SELECT
                run,
                split,
                step,
                sum(contribution_by_rows) AS by_rows,
                sum(contribution_unscoped) AS unscoped,
                sum(contribution_scoped) AS scoped,
                sum(contribution_macro) AS macro
            FROM adapter_weighting
            GROUP BY ALL
        ) AS c USING (run, split, step)
        """
    )
    for row in sums.iter_rows(named=True):
        assert close(row["by_rows"] or 0.0, row["row_mean_raw_reward"])
        assert close(row["unscoped"] or 0.0, row["unscoped_raw_reward"])
        assert close(row["scoped"] or 0.0, row["episode_raw_reward"])
        assert close(row["macro"] or 0.0, row["adapter_macro_raw_reward"])


def assert_collisions(ledger: Memory, tables: Tables) -> None:
    """The merged keys of every batch are those that plain Python counts."""
    expected: dict[tuple[Any, ...], tuple[int, int]] = {}
    for batch in tables["batches"]:
        samples = [s for s in tables["samples"] if (s["split"], s["step"]) == (batch["split"], batch["step"])]
        for dropped in ("adapter", "kind"):
            counts = merged(samples, dropped)
            if counts[0]:
                expected[batch["split"], batch["step"], dropped] = counts
    answer = {
        (row["split"], row["step"], row["dropped"]): (row["merged_keys"], row["samples"])
        for row in asked(ledger, "identity_collisions").iter_rows(named=True)
    }
    assert answer == expected


def merged(samples: list[Row], dropped: str) -> tuple[int, int]:
    """Keys that stand for several rollouts once a part is dropped, and their samples."""
    parts = {"adapter": ("adapter_name", "adapter_slot"), "kind": ("kind",)}
    whole = ("adapter_name", "adapter_slot", "kind", "id", "group_index")
    left = [name for name in whole if name not in parts[dropped]]
    buckets: dict[tuple[Any, ...], list[Row]] = {}
    for sample in samples:
        buckets.setdefault(tuple(sample[name] for name in left), []).append(sample)
    several = [b for b in buckets.values() if len({tuple(s[name] for name in whole) for s in b}) > 1]
    return len(several), sum(map(len, several))
