"""The metric catalogue once more, in plain Python: what Polars and SQL have to agree with.

Written from the definitions, in exact rational arithmetic, over what `tests.reference.account` says of a batch's
samples. The family `accounting` is in `tests.reference` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.metric_reference.groups import groups
from tests.metric_reference.held import Held, scopes_of
from tests.metric_reference.inference import inference, versions
from tests.metric_reference.lengths import lengths
from tests.metric_reference.outcomes import outcomes
from tests.metric_reference.rewards import rewards
from tests.metric_reference.signal import signal
from tests.reference import ADAPTER, DEFAULTS, Row, Tables, account_all, batch_key, is_selected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.metric_reference.statistics import Found
    from tests.reference import Dump

FAMILIES: dict[str, Callable[[Held], Found]] = {
    "rewards": rewards,
    "groups": groups,
    "lengths": lengths,
    "outcomes": outcomes,
    "versions": versions,
    "inference": inference,
    "signal": signal,
}


def catalogue(dump: Dump, samples: list[Row], settings: Mapping[str, Any]) -> Tables:
    """The rows of `metrics`, those of the accounting apart, and of `absent_metrics` without their reasons."""
    chosen = {**DEFAULTS, **settings}
    tables: Tables = {"metrics": [], "absent_metrics": []}
    for held in scopes_of(dump, samples, chosen):
        place = place_of(held)
        for family, twins in FAMILIES.items():
            for name, found in twins(held).items():
                if is_selected(family, name, chosen):
                    add(tables, place, name, found)
    return tables


def account_catalogue(dumps: Iterable[Dump], settings: Mapping[str, Any], published: Iterable[Row]) -> Tables:
    """Every relation's rows for several batches of one run, `absent_metrics` too, given the samples as published.

    Whether an advantage is exactly 0 hinges on rounding, so the metrics are those of the advantages as they are
    published; the parity of all other tables holds those to the exact ones.
    """
    given = list(dumps)
    tables = account_all(given, settings) | {"absent_metrics": []}
    advantages = {place_in_run(row): row["advantage"] for row in published}
    for row in tables["samples"]:
        row["advantage"] = advantages[place_in_run(row)]
    for dump in given:
        own = [row for row in tables["samples"] if (row["split"], row["step"]) == (dump.split, dump.step)]
        for relation, rows in catalogue(dump, own, settings).items():
            tables[relation] += rows
    return tables


def place_in_run(sample: Row) -> tuple[str, int, int]:
    return sample["split"], sample["step"], sample["row"]


def place_of(held: Held) -> Row:
    is_adapter = held.scope == "adapter"
    adapter = {name: held.samples[0][name] if is_adapter else None for name in ADAPTER}
    return {**batch_key(held.dump), "scope": held.scope, **adapter}


def add(tables: Tables, place: Row, name: str, found: Any) -> None:
    if found is None:
        tables["absent_metrics"].append({**place, "metric": name})
        return
    members = found if isinstance(found, dict) else {name: found}
    for metric, (value, count) in members.items():
        tables["metrics"].append({**place, "metric": metric, "value": value, "count": count})
