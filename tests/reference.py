"""The accounting once more, in plain Python: the figures that Polars and the SQL views have to agree with.

Written from the definitions alone and in exact rational arithmetic, so nothing here depends on the order of a sum, on
overflow or on cancellation. Every published float is the float64 nearest to the exact figure; a figure beyond the range
of float64 (the spread of +-1.7e308) is the infinity of its sign.

`account` takes one batch and returns the rows of each relation in the order of its key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.reference_extras import extras

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

Row = dict[str, Any]
Tables = dict[str, list[Row]]

EPSILON = Fraction(1e-6)
INT64 = range(-(2**63), 2**63)
LENGTHS = range(2**40)
NORMALISING = ("grpo", "gspo", "reinforce_plus_plus_baseline")
DIVIDING = ("grpo", "gspo")
STATES = ("missing", "nan", "inf", "other")
DEFAULTS: Row = {
    "advantage_estimator": "grpo",
    "rewards_normalization": True,
    "grpo_std_normalization": True,
    "reward_key": None,
    "n_samples_per_prompt": None,
    "rollout_batch_size": None,
    "sibling_rewards": "mainstream",
    "reward_weights": None,
    "pass_threshold": 1.0,
    "log_reward_category": None,
    "metrics": None,
}
MAX_TEXT = 200
BATCH = ("run", "split", "step")
ADAPTER = ("adapter_name", "adapter_slot")
KEYS: dict[str, tuple[str, ...]] = {
    "batches": BATCH,
    "samples": (*BATCH, "row"),
    "rollouts": (*BATCH, *ADAPTER, "kind", "id", "prompt_group"),
    "prompt_groups": (*BATCH, "prompt_group"),
    "adapters": (*BATCH, *ADAPTER),
    "metrics": (*BATCH, "scope", *ADAPTER, "metric"),
    "findings": (*BATCH, "code", "row", "field"),
}


@dataclass(frozen=True)
class Dump:
    """One batch as a trainer wrote it."""

    run: str
    split: str
    step: int
    samples: list[dict[str, Any]]
    prompt_group_sizes: list[int] | None = None


class ContractBroken(Exception):  # noqa: N818 - named for what happened, and the accounting itself is not at fault
    """The batch must be refused; `problems` are its rows of `findings`: every reason, and its warnings too."""

    def __init__(self, problems: list[Row]) -> None:
        super().__init__("; ".join(f"{p['code']} (row {p['row']}, field {p['field']})" for p in problems))
        self.problems = problems


def account(dump: Dump, settings: Mapping[str, Any]) -> Tables:
    """Every relation's rows for one batch, or `ContractBroken`."""
    if unknown := set(settings) - set(DEFAULTS):
        raise ValueError(f"unknown settings: {sorted(unknown)}")
    chosen = {**DEFAULTS, **settings}
    if problems := broken_input(dump):
        raise ContractBroken(problems)
    samples = [describe(dump, row, chosen) for row in range(len(dump.samples))]
    source, labels = group_labels(dump, chosen)
    number_groups(samples, labels)
    mark_mainstream(samples)
    findings = raw_reward_findings(dump) + mixed_group_findings(dump, samples, source, labels)
    if chosen["sibling_rewards"] == "shared" and (problems := sibling_findings(dump, samples)):
        raise ContractBroken(findings + problems)
    set_advantages(dump, samples, chosen)
    tables = {
        "batches": [batch_row(dump, samples, source)],
        "samples": samples,
        "rollouts": [rollout_row(dump, siblings) for siblings in by(samples, rollout_key)],
        "prompt_groups": [group_row(dump, members) for members in by(samples, group_of)],
        "adapters": [adapter_row(dump, samples, own) for own in by(samples, adapter_of)],
        "metrics": [
            row
            for row in batch_metrics(dump, samples) + adapter_metrics(dump, samples)
            if is_selected("accounting", row["metric"], chosen)
        ],
        "findings": findings,
    }
    return {name: in_key_order(name, rows) for name, rows in tables.items()}


def account_all(dumps: Iterable[Dump], settings: Mapping[str, Any]) -> Tables:
    """The same for several batches; of a refused one only its findings appear."""
    tables: Tables = {name: [] for name in KEYS}
    for dump in dumps:
        try:
            batch = account(dump, settings)
        except ContractBroken as refusal:
            batch = {"findings": refusal.problems}
        for name, rows in batch.items():
            tables[name].extend(rows)
    return {name: in_key_order(name, rows) for name, rows in tables.items()}


def in_key_order(relation: str, rows: list[Row]) -> list[Row]:
    """Sorted by the relation's key, null before every value."""
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in KEYS[relation]])


def by(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[list[Row]]:
    """Rows with equal keys together, in order of first appearance. None equals None, as everywhere in the ledger."""
    buckets: dict[Hashable, list[Row]] = {}
    for row in rows:
        buckets.setdefault(key(row), []).append(row)
    return list(buckets.values())


def adapter_of(sample: Row) -> Hashable:
    return (sample["adapter_name"], sample["adapter_slot"])


def group_of(sample: Row) -> Hashable:
    return (sample["prompt_group"],)


def episode_key(sample: Row) -> Hashable:
    """A rollout of the episode metrics: its group is the sample's own `group_index`."""
    return (adapter_of(sample), sample["kind"], sample["group_index"], sample["id"])


def unscoped_key(sample: Row) -> Hashable:
    """The key that was used before adapters were told apart."""
    return (sample["kind"], sample["group_index"], sample["id"])


def rollout_key(sample: Row) -> Hashable:
    """A rollout of the normalisation: its group is the recovered prompt group."""
    return (adapter_of(sample), sample["kind"], sample["prompt_group"], sample["id"])


def is_selected(family: str, metric: str, settings: Mapping[str, Any]) -> bool:
    """Whether the setting `metrics` names the metric, its family or a pattern that it fits."""
    patterns = settings["metrics"]
    return patterns is None or any(pattern == family or fnmatchcase(metric, pattern) for pattern in patterns)


# --- input contract -------------------------------------------------------------------------------------------------


def finding(dump: Dump, severity: str, code: str, row: int | None, field: str) -> Row:
    return {**batch_key(dump), "severity": severity, "code": code, "row": row, "field": field}


def batch_key(dump: Dump) -> Row:
    return {"run": dump.run, "split": dump.split, "step": dump.step}


def broken_input(dump: Dump) -> list[Row]:
    """Every reason why the batch cannot be accounted for."""
    found = [finding(dump, "error", code, None, "prompt_group_sizes") for code in broken_sizes(dump)]
    for row, sample in enumerate(dump.samples):
        found += [finding(dump, "error", code, row, field) for field, code in broken_fields(sample)]
    return found


def broken_sizes(dump: Dump) -> list[str]:
    sizes = dump.prompt_group_sizes
    if sizes is None:
        return []
    if not isinstance(sizes, list) or not all(is_integer(size) for size in sizes):
        return ["wrong_type"]
    if any(size < 0 for size in sizes):
        return ["negative_length"]
    return [] if sum(sizes) == len(dump.samples) else ["group_sizes_do_not_add_up"]


def broken_fields(sample: dict[str, Any]) -> list[tuple[str, str]]:
    """(field, code) for each field that breaks the contract."""
    found = []
    for field in ("rollout_id", "index", "group_index", "prompt_group"):
        value = sample.get(field)
        if value is not None and not is_int64(value):
            found.append((field, "id_not_int64"))
    adapter = sample.get("adapter")
    if adapter is not None and not is_adapter(adapter):
        found.append(("adapter", "wrong_type"))
    expected_types: list[tuple[str, type]] = [("metadata", dict), ("status", str), ("remove_sample", bool)]
    for field, kind in expected_types:
        if sample.get(field) is not None and not isinstance(sample[field], kind):
            found.append((field, "wrong_type"))
    return found + broken_lengths(sample)


def broken_lengths(sample: dict[str, Any]) -> list[tuple[str, str]]:
    length, mask = sample.get("response_length"), sample.get("loss_mask")
    if length is None and mask is None and is_integer(sample.get("trainable_tokens")):
        return []  # record formats: it stands for the mask
    if not isinstance(length, int) or not is_integer(length):
        return [("response_length", "wrong_type")]
    if length not in LENGTHS:
        return [("response_length", "negative_length" if length < 0 else "absurd_length")]
    if mask is None:
        return []
    if not isinstance(mask, list) or not all(isinstance(entry, int) for entry in mask):
        return [("loss_mask", "wrong_type")]
    return [] if len(mask) == length else [("loss_mask", "mask_length")]


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_int64(value: object) -> bool:
    return is_integer(value) and value in INT64


def is_adapter(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and is_int64(value.get("slot"))


# --- samples --------------------------------------------------------------------------------------------------------


def describe(dump: Dump, row: int, settings: Row) -> Row:
    """What can be said of a sample from itself (and from whether the batch's first sample has a raw reward)."""
    sample = dump.samples[row]
    adapter = sample.get("adapter") or {"name": None, "slot": None}
    kind, identity = identify(sample, row)
    reward, reward_state = reward_of(sample.get("reward"), settings)
    raw_reward, raw_reward_state = reward, reward_state
    if has_raw_reward(dump.samples[0]):
        raw_reward, raw_reward_state = classify((sample.get("metadata") or {}).get("raw_reward"))
    return {
        **batch_key(dump),
        "row": row,
        "adapter_name": adapter["name"],
        "adapter_slot": adapter["slot"],
        "kind": kind,
        "id": identity,
        "group_index": sample.get("group_index"),
        "rollout_id": sample.get("rollout_id"),
        "sample_index": sample.get("index"),
        "reward": reward,
        "reward_state": reward_state,
        "raw_reward": raw_reward,
        "raw_reward_state": raw_reward_state,
        "response_length": sample.get("response_length"),
        "trainable_tokens": trainable_tokens(sample),
        "effective_response_length": unmasked_tokens(sample),
        "remove_sample": bool(sample.get("remove_sample")),
        "status": sample.get("status"),
        "reward_parts": parts_of(sample.get("reward")),
        **extras(sample),
    }


def identify(sample: dict[str, Any], row: int) -> tuple[str, int]:
    if sample.get("rollout_id") is not None:
        return "rollout", sample["rollout_id"]
    if sample.get("index") is not None:
        return "sample", sample["index"]
    return "position", row


def reward_of(reward: object, settings: Row) -> tuple[float | None, str]:
    """`reward_key` or `reward_weights` open a dictionary; whatever is not one stays as it is."""
    if isinstance(reward, dict) and settings["reward_weights"] is not None:
        return weighted(reward, settings["reward_weights"])
    if isinstance(reward, dict) and settings["reward_key"] is not None:
        return classify(reward.get(settings["reward_key"]))
    return classify(reward)


def weighted(reward: dict[str, Any], weights: Mapping[str, float]) -> tuple[float | None, str]:
    """The weighted sum of the parts that have a weight, or the state of the first of them that is not ok.

    Added in float64 in the order of the names, not exactly: whether a group is constant hinges on the last bit of it.
    """
    total = 0.0
    for key in sorted(weights):
        if weights[key] != 0:
            value, state = classify(reward.get(key))
            if value is None:
                return None, state
            total += value * weights[key]
    return (total, "ok") if math.isfinite(total) else (None, "inf")


def parts_of(reward: object) -> list[Row] | None:
    """The entries of a dictionary reward by name; one of null is as good as none."""
    if not isinstance(reward, dict):
        return None
    parts = []
    for key in sorted(key for key, part in reward.items() if part is not None):
        value, state = classify(reward[key])
        text = reward[key][:MAX_TEXT] if isinstance(reward[key], str) else None
        parts.append({"key": key, "value": value, "state": state, "text": text})
    return parts


def has_raw_reward(sample: dict[str, Any]) -> bool:
    """The key counts, not its value: an explicit null is present."""
    return "raw_reward" in (sample.get("metadata") or {})


def classify(value: object) -> tuple[float | None, str]:
    """(value as float64, "ok"), or (None, why not)."""
    value = unwrap(value)
    if value is None:
        return None, "missing"
    if not isinstance(value, bool | int | float):
        return None, "other"
    try:
        number = float(value)
    except OverflowError:
        return None, "inf"
    if math.isnan(number):
        return None, "nan"
    return (None, "inf") if math.isinf(number) else (number, "ok")


def unwrap(value: object) -> object:
    """The Python value inside a scalar, array or tensor of one element, recognised without importing its library."""
    count = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    if not hasattr(value, "item") or count != 1:
        return value
    inner = value.item()
    return inner if isinstance(inner, bool | int | float) else value


def trainable_tokens(sample: dict[str, Any]) -> int:
    # Dumps hold the mask from before `remove_sample` zeroes it: the flag is asked first.
    return 0 if sample.get("remove_sample") else unmasked_tokens(sample)


def unmasked_tokens(sample: dict[str, Any]) -> int:
    if sample.get("loss_mask") is not None:
        return sum(sample["loss_mask"])
    tokens: int = sample["trainable_tokens"] if "trainable_tokens" in sample else sample["response_length"]
    return tokens


# --- prompt groups and mainstream samples -----------------------------------------------------------------------------


def group_labels(dump: Dump, settings: Row) -> tuple[str, list[int]]:
    """The rule that applies, and what it calls the group of each row (adapters not yet told apart)."""
    rows, size = len(dump.samples), settings["n_samples_per_prompt"]
    if dump.prompt_group_sizes is not None:
        return "explicit", [block for block, size in enumerate(dump.prompt_group_sizes) for _ in range(size)]
    for source, field in (("explicit", "prompt_group"), ("group_index", "group_index")):
        labels = [sample.get(field) for sample in dump.samples]
        if rows and all(label is not None for label in labels):
            return source, [label for label in labels if label is not None]
    prompts = settings["rollout_batch_size"]
    if rows and size is not None and prompts is not None and size * prompts == rows:
        return "fixed_fanout", [row // size for row in range(rows)]
    return "whole_batch", [0] * rows


def number_groups(samples: list[Row], labels: list[int]) -> None:
    """`prompt_group`: ordinal of (adapter, label) by first row."""
    ordinals: dict[Hashable, int] = {}
    for sample, label in zip(samples, labels, strict=True):
        sample["prompt_group"] = ordinals.setdefault((adapter_of(sample), label), len(ordinals))


def mark_mainstream(samples: list[Row]) -> None:
    for siblings in by(samples, rollout_key):
        chosen = siblings[0]
        for sample in siblings:
            sample["is_mainstream"] = False
            if sample["trainable_tokens"] > chosen["trainable_tokens"]:  # a tie keeps the first by row
                chosen = sample
        chosen["is_mainstream"] = True


def mainstream_of(siblings: list[Row]) -> Row:
    (chosen,) = (sample for sample in siblings if sample["is_mainstream"])
    return chosen


# --- findings: the row named is the first that disagrees with what stood before it ------------------------------------


def raw_reward_findings(dump: Dump) -> list[Row]:
    present = [has_raw_reward(sample) for sample in dump.samples]
    if len(set(present)) < 2:
        return []
    return [finding(dump, "warning", "raw_reward_partial", present.index(not present[0]), "raw_reward")]


def mixed_group_findings(dump: Dump, samples: list[Row], source: str, labels: list[int]) -> list[Row]:
    if source not in ("explicit", "fixed_fanout"):
        return []
    found = []
    first: dict[int, Hashable] = {}
    reported: set[int] = set()
    for sample, label in zip(samples, labels, strict=True):
        first.setdefault(label, adapter_of(sample))
        if adapter_of(sample) != first[label] and label not in reported:
            reported.add(label)
            found.append(finding(dump, "warning", "group_mixes_adapters", sample["row"], "adapter"))
    return found


def sibling_findings(dump: Dump, samples: list[Row]) -> list[Row]:
    found = []
    for siblings in by(samples, rollout_key):
        scored = [sample for sample in siblings if sample["reward"] is not None]
        other = [sample for sample in scored if sample["reward"] != scored[0]["reward"]]
        if other:
            found.append(finding(dump, "error", "siblings_differ", other[0]["row"], "reward"))
    return found


# --- exact arithmetic -------------------------------------------------------------------------------------------------


def mean(values: Iterable[float | Fraction]) -> Fraction | None:
    exact = [Fraction(value) for value in values]
    return sum(exact, Fraction(0)) / len(exact) if exact else None


def variance(values: Sequence[float | Fraction]) -> Fraction:
    """Unbiased: divided by n - 1. Needs two values."""
    middle = mean(values)
    assert middle is not None
    return sum(((Fraction(value) - middle) ** 2 for value in values), Fraction(0)) / (len(values) - 1)


def square_root(value: Fraction) -> Fraction:
    """To at least 99 significant bits."""
    shift = max(0, 100 - (value.numerator.bit_length() - value.denominator.bit_length()) // 2)
    return Fraction(math.isqrt((value.numerator << 2 * shift) // value.denominator), 1 << shift)


def nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def nearest_or_none(value: Fraction | None) -> float | None:
    return None if value is None else nearest(value)


def ok(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


# --- advantages -------------------------------------------------------------------------------------------------------


def set_advantages(dump: Dump, samples: list[Row], settings: Row) -> None:
    """`advantage` (the rollout's, for each sibling) and `row_advantage` (every ok sample on its own)."""
    for sample in samples:
        sample["advantage"] = sample["row_advantage"] = None
    if dump.split != "train":
        return
    estimator = settings["advantage_estimator"]
    if not settings["rewards_normalization"] or estimator not in NORMALISING:
        for sample in samples:
            sample["advantage"] = sample["row_advantage"] = sample["reward"]
        return
    divide = estimator in DIVIDING and settings["grpo_std_normalization"]
    for members in by(samples, group_of):
        normalise_rollouts(members, divide)
        normalise_rows(members, divide)


def normalise_rollouts(members: list[Row], divide: bool) -> None:
    rollouts = [siblings for siblings in by(members, rollout_key) if mainstream_of(siblings)["reward"] is not None]
    advantages = normalised([mainstream_of(siblings)["reward"] for siblings in rollouts], divide)
    for siblings, advantage in zip(rollouts, advantages, strict=True):
        for sample in siblings:
            sample["advantage"] = advantage


def normalise_rows(members: list[Row], divide: bool) -> None:
    scored = [sample for sample in members if sample["reward"] is not None]
    advantages = normalised([sample["reward"] for sample in scored], divide)
    for sample, advantage in zip(scored, advantages, strict=True):
        sample["row_advantage"] = advantage


def normalised(rewards: list[float], divide: bool) -> list[float]:
    """x - mean, over (s + 1e-6) where `divide`; exactly 0.0 where all are equal."""
    if not rewards or min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    middle = mean(rewards)
    assert middle is not None
    divisor = square_root(variance(rewards)) + EPSILON if divide else Fraction(1)
    return [nearest((Fraction(reward) - middle) / divisor) for reward in rewards]


# --- rows of the relations --------------------------------------------------------------------------------------------


def batch_row(dump: Dump, samples: list[Row], source: str) -> Row:
    row = {
        **batch_key(dump),
        "samples": len(samples),
        "rollouts": len(by(samples, episode_key)),
        "scored_rollouts": len(bucket_means(samples, episode_key)),
        "prompt_groups": len(by(samples, group_of)),
        "group_source": source,
    }
    for measure in ("reward", "raw_reward"):
        for state in STATES:
            row[f"{measure}_{state}"] = sum(sample[f"{measure}_state"] == state for sample in samples)
    return row


def rollout_row(dump: Dump, siblings: list[Row]) -> Row:
    first, mainstream = siblings[0], mainstream_of(siblings)
    rewards = ok(sample["reward"] for sample in siblings)
    raw_rewards = ok(sample["raw_reward"] for sample in siblings)
    identity = {name: first[name] for name in (*ADAPTER, "kind", "id", "group_index", "prompt_group")}
    return {
        **batch_key(dump),
        **identity,
        "samples": len(siblings),
        "scored_samples": len(raw_rewards),
        "raw_reward": nearest_or_none(mean(raw_rewards)),
        "mainstream_row": mainstream["row"],
        "mainstream_reward": mainstream["reward"],
        "mainstream_tokens": mainstream["trainable_tokens"],
        "reward_min": min(rewards, default=None),
        "reward_max": max(rewards, default=None),
        "siblings_differ": bool(rewards) and min(rewards) < max(rewards),
        "mainstream_truncated": mainstream["status"] == "truncated",
        "advantage": mainstream["advantage"],
    }


def group_row(dump: Dump, members: list[Row]) -> Row:
    rollouts = by(members, rollout_key)
    rewards = ok(mainstream_of(siblings)["reward"] for siblings in rollouts)
    return {
        **batch_key(dump),
        **{name: members[0][name] for name in (*ADAPTER, "prompt_group")},
        "rollouts": len(rollouts),
        "scored_rollouts": len(rewards),
        "samples": len(members),
        "reward_mean": nearest_or_none(mean(rewards)),
        "reward_std": nearest(square_root(variance(rewards))) if len(rewards) > 1 else None,
        "reward_min": min(rewards, default=None),
        "reward_max": max(rewards, default=None),
        "is_constant": bool(rewards) and min(rewards) == max(rewards),
    }


# --- episode metrics --------------------------------------------------------------------------------------------------


def bucket_means(samples: list[Row], key: Callable[[Row], Hashable]) -> list[Fraction]:
    """The mean raw reward of each bucket that has an ok one."""
    means = (mean(ok(sample["raw_reward"] for sample in bucket)) for bucket in by(samples, key))
    return [value for value in means if value is not None]


def batch_metrics(dump: Dump, samples: list[Row]) -> list[Row]:
    own_means = [mean(bucket_means(own, episode_key)) for own in by(samples, adapter_of)]
    summands: dict[str, list[Fraction]] = {
        "episode_raw_reward": bucket_means(samples, episode_key),
        "row_mean_raw_reward": [Fraction(value) for value in ok(sample["raw_reward"] for sample in samples)],
        "unscoped_raw_reward": bucket_means(samples, unscoped_key),
        "adapter_macro_raw_reward": [value for value in own_means if value is not None],
    }
    everyone = {**batch_key(dump), "scope": "batch", "adapter_name": None, "adapter_slot": None}
    rows = [{**everyone, "metric": "num_training_samples", "value": float(len(samples)), "count": len(samples)}]
    for metric, values in summands.items():
        rows.append({**everyone, "metric": metric, "value": nearest(mean(values) or Fraction(0)), "count": len(values)})
    return rows


def adapter_metrics(dump: Dump, samples: list[Row]) -> list[Row]:
    rows = []
    for own in by(samples, adapter_of):
        adapter = {**batch_key(dump), "scope": "adapter", **{name: own[0][name] for name in ADAPTER}}
        rollouts = bucket_means(own, episode_key)
        scored = ok(sample["raw_reward"] for sample in own)
        figures: list[tuple[str, float | None, int]] = [
            ("num_training_samples", float(len(own)), len(own)),
            ("episode_raw_reward", nearest_or_none(mean(rollouts)), len(rollouts)),
            ("row_mean_raw_reward", nearest_or_none(mean(scored)), len(scored)),
        ]
        rows += [{**adapter, "metric": metric, "value": value, "count": count} for metric, value, count in figures]
    return rows


def adapter_row(dump: Dump, samples: list[Row], own: list[Row]) -> Row:
    rollouts = bucket_means(own, episode_key)
    return {
        **batch_key(dump),
        **{name: own[0][name] for name in ADAPTER},
        "samples": len(own),
        "rollouts": len(by(own, episode_key)),
        "scored_rollouts": len(rollouts),
        "trainable_tokens": sum(sample["trainable_tokens"] for sample in own),
        "episode_raw_reward": nearest_or_none(mean(rollouts)),
        **adapter_weights(samples, own),
    }


def adapter_weights(samples: list[Row], own: list[Row]) -> Row:
    """The adapter's share in each of the four batch figures; null where the batch has nothing scored."""
    scored = [sample for sample in samples if sample["raw_reward"] is not None]
    scored_adapters = by(scored, adapter_of)
    me = adapter_of(own[0])
    mine = [sample for sample in scored if adapter_of(sample) == me]
    shares = [
        Fraction(sum(adapter_of(sample) == me for sample in bucket), len(bucket)) for bucket in by(scored, unscoped_key)
    ]
    if not scored:
        return dict.fromkeys(("weight_by_rows", "weight_unscoped", "weight_scoped", "weight_macro"))
    return {
        "weight_by_rows": len(mine) / len(scored),
        "weight_unscoped": nearest_or_none(mean(shares)),
        "weight_scoped": len(by(mine, episode_key)) / len(by(scored, episode_key)),
        "weight_macro": 1 / len(scored_adapters) if mine else 0.0,
    }
