"""pandas: the accounting file by file, without a Python loop over samples.

python -m benchmarks.suite.contestants.pandas_tables DIRECTORY OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

ADAPTER = ["adapter_name", "adapter_slot"]
BATCH = ["split", "step"]
SAMPLES = [*BATCH, "row", *ADAPTER, "kind", "id", "group_index", "prompt_group", "rollout_id", "reward", "reward_state"]
SAMPLES += ["raw_reward", "raw_reward_state", "response_length", "trainable_tokens", "remove_sample", "status"]
SAMPLES += ["is_mainstream", "advantage", "row_advantage", "effective_response_length"]
ROLLOUTS = [*BATCH, *ADAPTER, "kind", "id", "group_index", "prompt_group", "samples", "scored_samples", "raw_reward"]
ROLLOUTS += ["mainstream_row", "mainstream_reward", "mainstream_tokens", "reward_min", "reward_max"]
ROLLOUTS += ["siblings_differ", "mainstream_truncated", "advantage"]
INTEGERS = ["sample_index", "versions_seen", "version_oldest", "version_newest", "cached_tokens", "prompt_tokens"]
INTEGERS += ["spec_accepted", "spec_proposed", "spec_verifications", "spec_tokens", "tool_calls"]
ABSENT = dict.fromkeys(INTEGERS, "Int64") | {"non_generation_time": "Float64", "is_repetitive": "boolean"}
ABSENT |= {"registration_id": "string", "reward_parts": "object"}
"""Columns of samples that these dumps do not hold; those of a table are fixed."""
EPSILON = 1e-6


def identified(frame: pd.DataFrame) -> pd.DataFrame:
    """Add identity, states, tokens, and integer keys of batch, adapter, group, rollout and merged bucket."""
    frame["b"] = frame.groupby(BATCH, sort=False).ngroup()
    frame["row"] = frame.groupby("b", sort=False).cumcount()
    has_id = frame["rollout_id"].notna()
    frame["kind"] = pd.Categorical.from_codes(np.where(has_id, 0, 1), ["rollout", "position"])
    frame["id"] = frame["rollout_id"].where(has_id, frame["row"])
    reward = frame["reward"].to_numpy()
    frame["reward_state"] = pd.Categorical.from_codes(
        np.select([frame["reward_is_null"], np.isnan(reward), np.isinf(reward)], [1, 2, 3], 0),
        ["ok", "missing", "nan", "inf"],
    )
    frame["reward"] = frame["reward"].where(np.isfinite(reward))
    frame["effective_response_length"] = frame["trainable_tokens"].fillna(frame["response_length"])
    frame["trainable_tokens"] = frame["effective_response_length"].where(~frame["remove_sample"], 0)
    frame["ba"] = frame.groupby(["b", *ADAPTER], sort=False, dropna=False).ngroup()
    frame["g"] = frame.groupby(["ba", "group_index"], sort=False).ngroup()
    frame["r"] = frame.groupby(["g", "id", "kind"], sort=False, observed=True).ngroup()
    frame["u"] = frame.groupby(["b", "group_index", "id", "kind"], sort=False, observed=True).ngroup()
    frame["prompt_group"] = frame["g"] - frame.groupby("b", sort=False)["g"].transform("min")
    return frame


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the published tables of some whole batches. Keys are numbered by first row, so they are positions too."""
    frame = identified(frame)
    rank = frame["trainable_tokens"] * 2**22 - frame["row"]
    by_rollout = frame.groupby("r", sort=True)
    mainstream = frame.loc[rank.groupby(frame["r"], sort=True).idxmax()].reset_index(drop=True)
    reward = by_rollout["reward"].agg(["count", "sum", "min", "max"])
    first = frame.loc[~frame["r"].duplicated()].reset_index(drop=True)
    rollouts = first[[*BATCH, *ADAPTER, "kind", "id", "group_index", "prompt_group", "b", "ba", "g", "u"]].assign(
        samples=by_rollout.size(),
        scored_samples=reward["count"],
        total=reward["sum"],
        raw_reward=reward["sum"] / reward["count"],
        tokens=by_rollout["trainable_tokens"].sum(),
        mainstream_row=mainstream["row"],
        mainstream_reward=mainstream["reward"],
        mainstream_tokens=mainstream["trainable_tokens"],
        reward_min=reward["min"],
        reward_max=reward["max"],
        siblings_differ=reward["min"] < reward["max"],
        mainstream_truncated=mainstream["status"] == "truncated",
    )
    votes = _votes(rollouts.groupby("g", sort=True)["mainstream_reward"])
    row_votes = _votes(frame.groupby("g", sort=True)["reward"])
    rollouts["advantage"] = _advantage(rollouts["mainstream_reward"], votes, rollouts["g"])
    of_rollout = frame["r"].to_numpy()
    frame["is_mainstream"] = frame["row"].to_numpy() == rollouts["mainstream_row"].to_numpy()[of_rollout]
    frame["advantage"] = rollouts["advantage"].to_numpy()[of_rollout]
    frame["row_advantage"] = _advantage(frame["reward"], row_votes, frame["g"])
    frame["raw_reward"], frame["raw_reward_state"] = frame["reward"], frame["reward_state"]
    adapters, metrics = _weights(rollouts)
    return {
        "samples": frame[SAMPLES],
        "rollouts": rollouts[ROLLOUTS],
        "prompt_groups": _groups(rollouts, votes),
        "adapters": adapters,
        "metrics": metrics,
    }


def _votes(grouped: pd.api.typing.SeriesGroupBy) -> pd.DataFrame:
    return grouped.agg(["count", "mean", "std", "min", "max"])


def _advantage(reward: pd.Series, votes: pd.DataFrame, group: pd.Series) -> np.ndarray:
    constant = (votes["min"] == votes["max"]).to_numpy()[group]
    divisor = (votes["std"] + EPSILON).fillna(1.0).to_numpy()[group]
    value = reward.to_numpy()
    centred = value - votes["mean"].to_numpy()[group]
    return np.where(constant & ~np.isnan(value), 0.0, centred / divisor)


def _groups(rollouts: pd.DataFrame, votes: pd.DataFrame) -> pd.DataFrame:
    first = rollouts.loc[~rollouts["g"].duplicated(), [*BATCH, *ADAPTER, "prompt_group"]].reset_index(drop=True)
    grouped = rollouts.groupby("g", sort=True)
    constant = votes["min"] == votes["max"]
    return first.assign(
        rollouts=grouped.size(),
        scored_rollouts=votes["count"],
        samples=grouped["samples"].sum(),
        reward_mean=votes["mean"].where(~constant, votes["min"]),
        reward_std=votes["std"].where(~(constant & (votes["count"] > 1)), 0.0),
        reward_min=votes["min"],
        reward_max=votes["max"],
        is_constant=constant,
    )


def _weights(rollouts: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    buckets = rollouts.groupby("u", sort=True).agg(
        b=("b", "first"), n=("scored_samples", "sum"), total=("total", "sum")
    )
    rollouts["share"] = rollouts["scored_samples"] / buckets["n"].to_numpy()[rollouts["u"]]
    by_adapter = rollouts.groupby("ba", sort=True)
    adapters = by_adapter.agg(
        b=("b", "first"),
        split=("split", "first"),
        step=("step", "first"),
        adapter_name=("adapter_name", "first"),
        adapter_slot=("adapter_slot", "first"),
        samples=("samples", "sum"),
        rollouts=("samples", "size"),
        scored_rollouts=("raw_reward", "count"),
        trainable_tokens=("tokens", "sum"),
        episode_raw_reward=("raw_reward", "mean"),
        episode_total=("raw_reward", "sum"),
        ok=("scored_samples", "sum"),
        row_total=("total", "sum"),
        share=("share", "sum"),
    )
    buckets = buckets[buckets["n"] > 0]
    by_batch = adapters.groupby("b", sort=True)
    of_batch = by_batch[["samples", "rollouts", "scored_rollouts", "episode_total", "ok", "row_total"]].sum()
    of_batch["macro"], of_batch["scored_adapters"] = (
        by_batch["episode_raw_reward"].agg(how) for how in ("mean", "count")
    )
    bucket_means = (buckets["total"] / buckets["n"]).groupby(buckets["b"])
    of_batch["unscoped"], of_batch["buckets"] = bucket_means.mean(), bucket_means.size()
    of_batch[BATCH] = by_batch[BATCH].first()
    mine = of_batch.loc[adapters["b"]].set_index(adapters.index)
    adapters["weight_by_rows"] = adapters["ok"] / mine["ok"]
    adapters["weight_unscoped"] = adapters["share"] / mine["buckets"]
    adapters["weight_scoped"] = adapters["scored_rollouts"] / mine["scored_rollouts"]
    adapters["weight_macro"] = (adapters["scored_rollouts"] > 0) / mine["scored_adapters"]
    return adapters.drop(columns=["b", "ok", "row_total", "share", "episode_total"]), _metrics(adapters, of_batch)


def _metrics(adapters: pd.DataFrame, batches: pd.DataFrame) -> pd.DataFrame:
    batches = batches.assign(episode=batches["episode_total"] / batches["scored_rollouts"], scope="batch")
    adapters = adapters.assign(episode=adapters["episode_raw_reward"], scope="adapter")
    parts = []
    for frame in (batches, adapters):
        keys = frame[[*BATCH, "scope", *(name for name in ADAPTER if name in frame)]]
        parts += [
            keys.assign(metric="num_training_samples", value=frame["samples"].astype(float), count=frame["samples"]),
            keys.assign(metric="episode_raw_reward", value=frame["episode"], count=frame["scored_rollouts"]),
            keys.assign(metric="row_mean_raw_reward", value=frame["row_total"] / frame["ok"], count=frame["ok"]),
        ]
    keys = batches[[*BATCH, "scope"]]
    for metric, value, count in (("unscoped", "unscoped", "buckets"), ("adapter_macro", "macro", "scored_adapters")):
        parts.append(keys.assign(metric=f"{metric}_raw_reward", value=batches[value], count=batches[count]))
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    import pyarrow.parquet as pq

    directory, out = Path(sys.argv[1]), Path(sys.argv[2])
    for number, path in enumerate(sorted(directory.glob("*.parquet"))):
        read = pq.read_table(path)
        # pandas takes null and NaN for the same; the states tell them apart.
        frame = read.to_pandas().assign(reward_is_null=read["reward"].is_null().to_numpy())
        target = out / f"part-{number:05d}"
        target.mkdir(parents=True)
        for name, table in tables(frame).items():
            absent = ABSENT if name == "samples" else {}
            nulls = {column: pd.Series(None, index=table.index, dtype=dtype) for column, dtype in absent.items()}
            table.assign(run=directory.name, **nulls).to_parquet(
                target / f"{name}.parquet", compression="zstd", index=False
            )


if __name__ == "__main__":
    main()
