"""Prompt groups: which teach nothing, how large they are, and how often a prompt is solved in k tries."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import comb
from typing import TYPE_CHECKING

from tests.metric_reference.held import tokens_of, was_aborted
from tests.metric_reference.statistics import averaged, counted, described, label
from tests.reference import Row, adapter_of, by, group_of, mainstream_of, ok, rollout_key

if TYPE_CHECKING:
    from tests.metric_reference.held import Held
    from tests.metric_reference.statistics import Figure, Found

Group = list[list[Row]]


def groups(held: Held) -> Found:
    votes = [votes_of(group) for group in held.groups]
    raws = [ok(sample["raw_reward"] for siblings in group for sample in siblings) for group in held.groups]
    kept = [votes_of([siblings for siblings in group if not was_aborted(siblings)]) for group in held.groups]
    kept_constant = averaged(is_constant(values) for values in kept if values)
    return {
        **constancy("zero_std", votes),
        **constancy("raw_zero_std", raws),
        "phantom_groups": counted(map(is_phantom, raws, votes)),
        "without_aborted/constant_share": kept_constant if held.has_status else None,
        "effective_group_share": averaged(map(is_effective, held.groups)) if held.is_train else None,
        **sizes(held),
        "pass@{k}": tries(held),
    }


def votes_of(group: Group) -> list[float]:
    return ok(mainstream_of(siblings)["reward"] for siblings in group)


def is_constant(values: list[float]) -> bool:
    return min(values) == max(values)


def is_phantom(raws: list[float], votes: list[float]) -> bool:
    return bool(raws and votes) and is_constant(raws) and not is_constant(votes)


def constancy(prefix: str, groups: list[list[float]]) -> Found:
    numeric = [values for values in groups if values]
    labels = Counter(label(values[0]) for values in numeric if is_constant(values))
    members: dict[str, Figure] = {
        f"{prefix}/count_{value}": (float(count), len(numeric)) for value, count in labels.items()
    }
    return {
        f"{prefix}/count_{{value}}": members if numeric else None,
        f"{prefix}/constant_share": averaged(is_constant(values) for values in numeric),
        f"{prefix}/all_zero_share": averaged(set(values) == {0.0} for values in numeric),
        f"{prefix}/all_one_share": averaged(set(values) == {1.0} for values in numeric),
        f"{prefix}/non_numeric_groups": counted(not values for values in groups),
    }


def is_effective(group: Group) -> bool:
    """Whether anything is learned from it."""
    return any(mainstream_of(siblings)["advantage"] and tokens_of(siblings) > 0 for siblings in group)


# --- sizes ------------------------------------------------------------------------------------------------------------


def sizes(held: Held) -> Found:
    found = [len(group) for group in held.groups]
    wanted = [expected(held, group) for group in held.groups]
    pairs = list(zip(found, wanted, strict=True))
    return {
        **described("group_size", found, ("mean", "median", "min", "max")),
        "incomplete_groups": counted(size < full for size, full in pairs),
        "overfull_groups": counted(size > full for size, full in pairs),
    }


def expected(held: Held, group: Group) -> int:
    """How many rollouts there should be: by the settings, else as in most groups of the adapter, more on ties."""
    size = held.settings["n_samples_per_prompt"]
    if size is not None:
        return int(size)
    adapter = adapter_of(group[0][0])
    own = by((sample for sample in held.batch if adapter_of(sample) == adapter), group_of)
    frequency = Counter(len(by(members, rollout_key)) for members in own)
    return max(frequency, key=lambda rollouts: (frequency[rollouts], rollouts))


# --- pass@k -----------------------------------------------------------------------------------------------------------


def tries(held: Held) -> dict[str, Figure]:
    estimates: dict[int, list[Fraction]] = {}
    for group in held.groups:
        full = expected(held, group)
        votes = votes_of(group)
        is_used = len(group) == full and len(votes) == full
        for k in powers_of_two(max(full, 1)):
            found = estimates.setdefault(k, [])
            if is_used and k <= full:
                found.append(pass_at(k, len(votes), sum(map(held.passes, votes))))
    return {f"pass@{k}": averaged(values) for k, values in estimates.items()}


def powers_of_two(largest: int) -> list[int]:
    return [2**exponent for exponent in range(largest.bit_length())]


def pass_at(k: int, n: int, passed: int) -> Fraction:
    """The chance that k of the n rollouts, drawn without putting back, are not all failures."""
    return 1 - Fraction(comb(n - passed, k), comb(n, k))
