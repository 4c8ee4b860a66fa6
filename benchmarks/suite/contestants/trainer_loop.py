"""A trainer's way: one dictionary a sample and plain loops, batch by batch, on the first steps of a run.

python -m benchmarks.suite.contestants.trainer_loop STEPS DIRECTORY OUT

Tells its own seconds, without Python's start, since they are multiplied to those of the whole run.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl

Row = dict[str, Any]
EPSILON = 1e-6
ABSENT = (
    *("registration_id", "sample_index", "versions_seen", "version_oldest", "version_newest", "cached_tokens"),
    *("prompt_tokens", "spec_accepted", "spec_proposed", "spec_verifications", "spec_tokens"),
    *("non_generation_time", "tool_calls", "is_repetitive", "reward_parts"),
)
"""Columns of samples that these dumps do not hold; those of a table are fixed."""
TABLES = ("samples", "rollouts", "prompt_groups", "adapters", "metrics")


def samples_of(dumped: list[Row]) -> list[Row]:
    """Return the samples of a batch with identity, reward, tokens and prompt group."""
    groups: dict[Any, int] = {}
    samples = []
    for row, given in enumerate(dumped):
        reward = given["reward"]
        tokens = given["trainable_tokens"]
        if tokens is None:
            tokens = given["response_length"]
        state = "missing" if reward is None else "nan" if math.isnan(reward) else "inf" if math.isinf(reward) else "ok"
        value = reward if state == "ok" else None
        adapter = given["adapter_name"], given["adapter_slot"]
        has_id = given["rollout_id"] is not None
        samples.append(
            {
                **given,
                **dict.fromkeys(ABSENT),
                "row": row,
                "kind": "rollout" if has_id else "position",
                "id": given["rollout_id"] if has_id else row,
                "prompt_group": groups.setdefault((adapter, given["group_index"]), len(groups)),
                "reward": value,
                "reward_state": state,
                "raw_reward": value,
                "raw_reward_state": state,
                "effective_response_length": tokens,
                "trainable_tokens": 0 if given["remove_sample"] else tokens,
            }
        )
    return samples


def rollouts_of(samples: list[Row]) -> list[Row]:
    """Return the rollouts of a batch, and mark the mainstream samples."""
    siblings: dict[Any, list[Row]] = defaultdict(list)
    for sample in samples:
        siblings[sample["prompt_group"], sample["kind"], sample["id"]].append(sample)
    rollouts = []
    for several in siblings.values():
        first, main = several[0], several[0]
        for sample in several:
            sample["is_mainstream"] = False
            if sample["trainable_tokens"] > main["trainable_tokens"]:
                main = sample
        main["is_mainstream"] = True
        ok = [sample["reward"] for sample in several if sample["reward"] is not None]
        rollouts.append(
            {
                **{name: first[name] for name in ("split", "step", "adapter_name", "adapter_slot", "kind", "id")},
                "group_index": first["group_index"],
                "prompt_group": first["prompt_group"],
                "samples": len(several),
                "scored_samples": len(ok),
                "raw_reward": sum(ok) / len(ok) if ok else None,
                "mainstream_row": main["row"],
                "mainstream_reward": main["reward"],
                "mainstream_tokens": main["trainable_tokens"],
                "reward_min": min(ok, default=None),
                "reward_max": max(ok, default=None),
                "siblings_differ": bool(ok) and min(ok) < max(ok),
                "mainstream_truncated": main["status"] == "truncated",
                "of": several,
            }
        )
    return rollouts


def with_advantages(samples: list[Row], rollouts: list[Row]) -> list[Row]:
    """Add the advantages; return the prompt groups."""
    members: dict[int, list[Row]] = defaultdict(list)
    rows: dict[int, list[Row]] = defaultdict(list)
    for rollout in rollouts:
        members[rollout["prompt_group"]].append(rollout)
    for sample in samples:
        rows[sample["prompt_group"]].append(sample)
    groups = []
    for number, several in members.items():
        votes = Votes([rollout["mainstream_reward"] for rollout in several])
        row_votes = Votes([sample["reward"] for sample in rows[number]])
        for rollout in several:
            rollout["advantage"] = votes.advantage(rollout["mainstream_reward"])
            for sample in rollout.pop("of"):
                sample["advantage"] = rollout["advantage"]
                sample["row_advantage"] = row_votes.advantage(sample["reward"])
        groups.append(
            {
                **{name: several[0][name] for name in ("split", "step", "adapter_name", "adapter_slot")},
                "prompt_group": number,
                "rollouts": len(several),
                "scored_rollouts": votes.n,
                "samples": len(rows[number]),
                "reward_mean": votes.mean,
                "reward_std": votes.std,
                "reward_min": votes.low,
                "reward_max": votes.high,
                "is_constant": votes.n > 0 and votes.low == votes.high,
            }
        )
    return groups


class Votes:
    """The votes of a group."""

    def __init__(self, rewards: list[float | None]) -> None:
        ok = [reward for reward in rewards if reward is not None]
        self.n = len(ok)
        self.low, self.high = min(ok, default=None), max(ok, default=None)
        self.mean = sum(ok) / self.n if ok else None
        self.std: float | None = None
        if self.n > 1 and self.mean is not None:
            self.std = math.sqrt(sum((reward - self.mean) ** 2 for reward in ok) / (self.n - 1))
        if self.low == self.high:
            self.mean, self.std = self.low, 0.0 if self.n > 1 else None

    def advantage(self, reward: float | None) -> float | None:
        if reward is None or self.mean is None:
            return None
        if self.low == self.high:
            return 0.0
        return (reward - self.mean) / ((self.std or 0.0) + EPSILON)


def figures(samples: list[Row], rollouts: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return adapters and metrics of a batch."""
    key = {name: samples[0][name] for name in ("split", "step")}
    ok = [sample["reward"] for sample in samples if sample["reward"] is not None]
    buckets: dict[Any, list[float]] = defaultdict(list)
    of_adapter: dict[Any, list[Row]] = defaultdict(list)
    for sample in samples:
        of_adapter[sample["adapter_name"], sample["adapter_slot"]].append(sample)
        if sample["reward"] is not None:
            buckets[sample["kind"], sample["id"], sample["group_index"]].append(sample["reward"])
    scored: dict[Any, list[float]] = defaultdict(list)
    count: dict[Any, int] = defaultdict(int)
    for rollout in rollouts:
        adapter = rollout["adapter_name"], rollout["adapter_slot"]
        count[adapter] += 1
        if rollout["raw_reward"] is not None:
            scored[adapter].append(rollout["raw_reward"])
    every = [reward for rewards in scored.values() for reward in rewards]
    adapters, metrics = [], []
    for adapter, own in of_adapter.items():
        own_ok = [sample for sample in own if sample["reward"] is not None]
        share = sum(1 / len(buckets[sample["kind"], sample["id"], sample["group_index"]]) for sample in own_ok)
        rewards = scored[adapter]
        named = {"adapter_name": adapter[0], "adapter_slot": adapter[1]}
        adapters.append(
            {
                **key,
                **named,
                "samples": len(own),
                "rollouts": count[adapter],
                "scored_rollouts": len(rewards),
                "trainable_tokens": sum(sample["trainable_tokens"] for sample in own),
                "episode_raw_reward": _mean(rewards),
                "weight_by_rows": len(own_ok) / len(ok) if ok else None,
                "weight_unscoped": share / len(buckets) if ok else None,
                "weight_scoped": len(rewards) / len(every) if ok else None,
                "weight_macro": bool(rewards) / sum(map(bool, scored.values())) if ok else None,
            }
        )
        of = {**key, "scope": "adapter", **named}
        metrics += [
            {**of, "metric": "num_training_samples", "value": float(len(own)), "count": len(own)},
            {**of, "metric": "episode_raw_reward", "value": _mean(rewards), "count": len(rewards)},
            _row(of, "row_mean_raw_reward", [sample["reward"] for sample in own_ok]),
        ]
    of = {**key, "scope": "batch", "adapter_name": None, "adapter_slot": None}
    metrics += [
        {**of, "metric": "num_training_samples", "value": float(len(samples)), "count": len(samples)},
        _row(of, "episode_raw_reward", every),
        _row(of, "row_mean_raw_reward", ok),
        _row(of, "unscoped_raw_reward", [statistics.fmean(rewards) for rewards in buckets.values()]),
        _row(of, "adapter_macro_raw_reward", [statistics.fmean(rewards) for rewards in scored.values() if rewards]),
    ]
    return adapters, metrics


def _row(of: Row, metric: str, values: list[float]) -> Row:
    nothing = 0.0 if of["scope"] == "batch" else None
    return {**of, "metric": metric, "value": _mean(values) if values else nothing, "count": len(values)}


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def main() -> None:
    start = time.perf_counter()
    left, out = int(sys.argv[1]), Path(sys.argv[3])
    tables: dict[str, list[Row]] = {name: [] for name in TABLES}
    for path in sorted(Path(sys.argv[2]).glob("*.parquet")):
        for _, batch in groupby(pl.read_parquet(path).iter_rows(named=True), lambda row: (row["split"], row["step"])):
            if left == 0:
                break
            left -= 1
            samples = samples_of(list(batch))
            rollouts = rollouts_of(samples)
            tables["samples"] += samples
            tables["prompt_groups"] += with_advantages(samples, rollouts)
            tables["rollouts"] += rollouts
            adapters, metrics = figures(samples, rollouts)
            tables["adapters"] += adapters
            tables["metrics"] += metrics
        if left == 0:
            break
    target = out / "part-00000"
    target.mkdir(parents=True)
    for name, rows in tables.items():
        frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(run=pl.lit(Path(sys.argv[2]).name))
        frame.write_parquet(target / f"{name}.parquet", compression="zstd")
    print(json.dumps({"seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
