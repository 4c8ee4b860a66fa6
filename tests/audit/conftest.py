"""Ledgers that many tests of audits ask."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from pipeline.audit.audits import asked, bound
from pipeline.audit.catalogue import find
from pipeline.audit.query import connected
from tests.audit.ledgers import published
from tests.fixture_dumps import load_run
from tests.worked_cases import SEATS, SHARED_INDEX, TWO_ADAPTERS, train

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import duckdb

Ask = Callable[..., pl.DataFrame]


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("empty") / "ledger", [])


@pytest.fixture(scope="session")
def cases_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cases 2, 3 and 10 as the runs `two`, `three` and `ten`."""
    dumps = [train(*TWO_ADAPTERS, run="two"), train(*SHARED_INDEX, run="three"), train(*SEATS, run="ten")]
    return published(tmp_path_factory.mktemp("cases") / "ledger", dumps, {"grpo_std_normalization": False})


@pytest.fixture(scope="session")
def fanout_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trainer's own run of three adapters with several leaves a rollout."""
    return published(tmp_path_factory.mktemp("fanout") / "ledger", load_run("miles_multilora_fanout_run").values())


@pytest.fixture(scope="session")
def asking(empty_ledger: Path, cases_ledger: Path, fanout_ledger: Path) -> Iterator[dict[str, Ask]]:
    """Functions that ask a ledger, each over one connection: `asking["fanout"]("gaps", limit=1)`."""
    ledgers = {"empty": empty_ledger, "cases": cases_ledger, "fanout": fanout_ledger}
    with ExitStack() as stack:
        yield {name: asker(stack.enter_context(connected(ledger))) for name, ledger in ledgers.items()}


def asker(connection: duckdb.DuckDBPyConnection) -> Ask:
    def ask(name: str, **parameters: Any) -> pl.DataFrame:
        query = find(name)
        return asked(connection, query, bound(query, parameters))

    return ask
