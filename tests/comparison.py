"""Do two sets of tables agree? By key, column by column, with a message that names the cell."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.metric_sizes import MetricSizes

Row = Mapping[str, Any]
Tables = Mapping[str, list[dict[str, Any]]]
Key = tuple[Any, ...]

RELATIVE = 1e-9
ABSOLUTE = 1e-12
SHOWN = 20

BATCH = ("run", "split", "step")
ADAPTER = ("adapter_name", "adapter_slot")
GROUP = (*BATCH, "prompt_group")
ROLLOUT = (*BATCH, *ADAPTER, "kind", "id", "prompt_group")
KEYS: dict[str, tuple[str, ...]] = {
    "batches": BATCH,
    "samples": (*BATCH, "row"),
    "rollouts": ROLLOUT,
    "prompt_groups": GROUP,
    "adapters": (*BATCH, *ADAPTER),
    "metrics": (*BATCH, "scope", *ADAPTER, "metric"),
    "absent_metrics": (*BATCH, "scope", *ADAPTER, "metric"),
}
# A finding has no key: equal ones may occur twice. Message and value are the publisher's own words, and so are further
# warnings: only these are defined.
FINDING = (*BATCH, "severity", "code", "row")
WARNINGS = {"raw_reward_partial", "group_mixes_adapters"}
# Copied from the input or chosen from it, never computed: these are equal to the bit.
COPIED = {"reward", "raw_reward", "mainstream_reward", "reward_min", "reward_max"}
COMPUTED_ELSEWHERE = {("rollouts", "raw_reward")}


def assert_tables_agree(actual: Tables, expected: Tables) -> None:
    """Each relation and column of `expected` is in `actual` with equal values; `actual` may hold further columns."""
    found = differences(actual, expected)
    more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    assert not found, "\n".join([f"{len(found)} differences", *found[:SHOWN], *more])


def differences(actual: Tables, expected: Tables) -> list[str]:
    """One line for each missing, unexpected or differing row or cell."""
    found: list[str] = []
    condition = Conditioning(expected)
    for relation, rows in expected.items():
        if relation not in actual:
            found.append(f"{relation}: the relation is missing")
        elif relation == "findings":
            found += finding_differences(actual[relation], rows)
        else:
            found += relation_differences(relation, actual[relation], rows, condition)
    return found


def finding_differences(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    defined = [row for row in actual if row["severity"] == "error" or row["code"] in WARNINGS]
    got, want = (Counter(key_of(row, FINDING) for row in rows) for rows in (defined, expected))
    absent = [f"findings {labelled(FINDING, key)}: missing" for key in (want - got).elements()]
    return absent + [f"findings {labelled(FINDING, key)}: unexpected" for key in (got - want).elements()]


def relation_differences(
    relation: str, actual: list[dict[str, Any]], expected: list[dict[str, Any]], condition: Conditioning
) -> list[str]:
    names = KEYS[relation]
    got_rows = {key_of(row, names): row for row in actual}
    want_rows = {key_of(row, names): row for row in expected}
    counted = Counter(key_of(row, names) for row in actual)
    found = [f"{relation} {labelled(names, key)}: {n} rows with this key" for key, n in counted.items() if n > 1]
    found += [f"{relation} {labelled(names, key)}: missing" for key in want_rows if key not in got_rows]
    found += [f"{relation} {labelled(names, key)}: unexpected" for key in got_rows if key not in want_rows]
    for key, want in want_rows.items():
        for column in want if key in got_rows else ():
            if problem := cell_difference(relation, column, got_rows[key], want, condition):
                found.append(f"{relation} {labelled(names, key)}: {column} {problem}")
    return found


def cell_difference(relation: str, column: str, got_row: Row, want_row: Row, condition: Conditioning) -> str | None:
    if column not in got_row:
        return "is missing"
    got, want = got_row[column], want_row[column]
    if type(got) is not type(want):
        return f"got {got!r}, want {want!r} (types differ)"
    if not isinstance(want, float):
        return None if got == want else f"got {got!r}, want {want!r}"
    if got == want:
        return None
    allowed = condition.allowed(relation, column, want_row)
    # Written as "proven close", so that a NaN is a difference.
    if math.isfinite(got) and math.isfinite(want) and abs(got - want) <= allowed:
        return None
    return f"got {got!r}, want {want!r}, difference {got - want:.3g}, allowed {allowed:.3g}"


def key_of(row: Row, names: Iterable[str]) -> Key:
    return tuple(row[name] for name in names)


def labelled(names: Iterable[str], key: Key) -> str:
    return "(" + ", ".join(f"{name}={value!r}" for name, value in zip(names, key, strict=True)) + ")"


class Conditioning:
    """How far a float64 computation may stray from the exact figure.

    Normally 1e-9 of the figure or 1e-12. Where large values cancel, no float64 computation can keep that: the mean of
    1e16 and 1e16 + 2 is itself rounded, and the advantages with it. A figure is therefore also allowed `ROUNDINGS`
    units in the last place of the largest reward that went into it, carried through the divisor for an advantage. For
    rewards of everyday size and spread this is below 1e-12 and changes nothing. Where a rule fixes the figure without
    arithmetic (a constant group, a copied value) nothing at all is allowed.
    """

    ROUNDINGS = 64

    def __init__(self, expected: Tables) -> None:
        samples = expected.get("samples", [])
        self.metrics = MetricSizes(samples)
        raw = [sample for sample in samples if sample["raw_reward"] is not None]
        self.by_adapter = sizes(raw, (*BATCH, *ADAPTER))
        self.by_rollout = sizes(raw, ROLLOUT)
        scored = [sample for sample in samples if sample["reward"] is not None]
        mainstream = [sample for sample in scored if sample["is_mainstream"]]
        self.advantages = {
            "advantage": slack_by_group(mainstream, "advantage", self.rounding),
            "row_advantage": slack_by_group(scored, "row_advantage", self.rounding),
        }

    def allowed(self, relation: str, column: str, row: Row) -> float:
        slack = self.slack(relation, column, row)
        return 0.0 if slack is None else max(RELATIVE * abs(row[column]), ABSOLUTE) + slack

    def slack(self, relation: str, column: str, row: Row) -> float | None:
        """What is allowed beyond the usual tolerance; None where the figure has to be exact."""
        if column in self.advantages:
            return self.advantages[column].get(key_of(row, GROUP))
        if column in COPIED and (relation, column) not in COMPUTED_ELSEWHERE:
            return None
        if relation == "prompt_groups":
            return None if row["is_constant"] else self.rounding(max(abs(row["reward_min"]), abs(row["reward_max"])))
        if relation == "rollouts":
            return self.rounding(self.by_rollout.get(key_of(row, ROLLOUT), 0.0))
        if column == "episode_raw_reward":
            return self.rounding(self.by_adapter.get(key_of(row, (*BATCH, *ADAPTER)), 0.0))
        return self.rounding(self.metrics.of(row)) if relation == "metrics" else 0.0

    def rounding(self, size: float) -> float:
        return self.ROUNDINGS * sys.float_info.epsilon * size


def sizes(samples: list[dict[str, Any]], names: tuple[str, ...]) -> dict[Key, float]:
    """The largest magnitude of a raw reward for each key."""
    largest: dict[Key, float] = {}
    for sample in samples:
        key = key_of(sample, names)
        largest[key] = max(largest.get(key, 0.0), abs(sample["raw_reward"]))
    return largest


def slack_by_group(
    voters: list[dict[str, Any]], column: str, rounding: Callable[[float], float]
) -> dict[Key, float | None]:
    """For each prompt group the slack of its advantages; None where all its rewards are equal."""
    groups: dict[Key, list[dict[str, Any]]] = {}
    for sample in voters:
        groups.setdefault(key_of(sample, GROUP), []).append(sample)
    return {key: advantage_slack(members, column, rounding) for key, members in groups.items()}


def advantage_slack(members: list[dict[str, Any]], column: str, rounding: Callable[[float], float]) -> float | None:
    rewards = [sample["reward"] for sample in members]
    if min(rewards) == max(rewards):
        return None
    if all(sample[column] in (None, sample["reward"]) for sample in members):
        return 0.0  # no arithmetic (an estimator that does not normalise, an evaluation batch), or a mean of 0
    largest_advantage = max(abs(sample[column]) for sample in members)
    # |x - mean| is at least half the range at one end, so 2 * advantage / range is no less than 1 / divisor.
    spread = min(max(rewards) - min(rewards), sys.float_info.max)
    return rounding(max(abs(reward) for reward in rewards) / spread * 2 * largest_advantage)
