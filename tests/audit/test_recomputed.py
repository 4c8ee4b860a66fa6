"""SQL agrees with Polars and the plain-Python reference on every metric, and no check finds fault with what is right.

Two comparisons, since SQL adds plain floats. Rewards of everyday size (`tame`) have to agree to 1e-9 relative or 1e-12,
figure by figure. Where 1e300, 1e16 + 2 or 8.9e307 stand next to one another, large numbers cancel and no float64
addition keeps that: there the comparison allows 64 units in the last place of the largest number that went in, as do
the checks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from pipeline.audit.audits import bound
from pipeline.expressions.metrics import METRICS
from pipeline.store import derived
from queries.files import ANSWERS, queries
from tests.audit.ledgers import Memory, memory
from tests.comparison import assert_tables_agree
from tests.reference import account_all
from tests.strategies import runs, settings
from tests.worked_cases import TWO_ADAPTERS, train

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queries.files import Query
    from tests.reference import Dump, Row, Tables

TWINS = queries("metrics")
CHECKS = queries("checks")
ASKED = [query for kind in ANSWERS for query in queries(kind)]
FEWER = profile(max_examples=max(profile.default.max_examples // 3, 20) if profile.default else 20)
"""An example asks a dozen questions."""
KEY = ("run", "split", "step", "scope", "adapter_name", "adapter_slot", "metric")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    yield from memory(tmp_path_factory.mktemp("memory"))


def rows(frame: pl.DataFrame) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in KEY): row for row in frame.iter_rows(named=True)}


def close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def asked(ledger: Memory, name: str, **parameters: Any) -> pl.DataFrame:
    (query,) = (query for query in ASKED if query.name == name)
    values = bound(query, parameters)
    used = {name: value for name, value in values.items() if f"${name}" in query.statement}
    return ledger.ask(query.statement, used)


def test_there_is_a_twin_for_every_published_metric_and_no_other() -> None:
    assert {query.name for query in TWINS} == {metric.name for metric in METRICS}


@FEWER
@given(dumps=runs(tame=True), chosen=settings())
def test_every_metric_is_the_same_in_sql(ledger: Memory, dumps: list[Dump], chosen: dict[str, Any]) -> None:
    ledger.fill(dumps, chosen)

    published = rows(ledger.ask("SELECT * FROM metrics"))
    recomputed = rows(ledger.ask("SELECT * FROM recomputed_metrics"))

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

    actual = ledger.ask(f"SELECT {', '.join(KEY)}, value, count FROM recomputed_metrics").to_dicts()
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
    separate = [ledger.ask(f"SELECT '{twin.name}' AS metric, * FROM recomputed_{twin.name}") for twin in TWINS]
    unions = [derived.views(portable=portable)[-1].statement for portable in (True, False)]

    for union in unions:
        assert rows(ledger.ask(union)) == rows(pl.concat(separate))


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
