"""Deliberate faults: a line of the accounting said otherwise, as it might be by mistake."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.expressions import advantages, identity, keys, rewards
from pipeline.stages import samples, tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


@dataclass(frozen=True)
class Fault:
    """One fault: in `module` the text `right` becomes `wrong`; it moves `moves`, and `hint` is told (none: no hint)."""

    name: str
    module: ModuleType
    right: str
    wrong: str
    moves: tuple[str, str]
    hint: str | None = None


@contextmanager
def put_in(fault: Fault) -> Iterator[None]:
    """Run the module's source with the fault in it; afterwards everything is as it was."""
    source = inspect.getsource(fault.module)
    assert fault.right in source, f"the accounting no longer says {fault.right!r}: say the fault {fault.name!r} anew"
    before = dict(vars(fault.module))
    # In the module's own namespace, as the stages reach each other through their modules.
    exec(compile(source.replace(fault.right, fault.wrong), fault.module.__file__ or "", "exec"), vars(fault.module))
    try:
        yield
    finally:
        vars(fault.module).clear()
        vars(fault.module).update(before)


EPISODE = ("metrics", "episode_raw_reward")
ADVANTAGE = ("samples", "advantage")
ROW_ADVANTAGE = ("samples", "row_advantage")

FAULTS = [
    Fault(
        "adapter dropped from the key",
        keys,
        'EPISODE_ROLLOUT = ("adapter", "kind"',
        'EPISODE_ROLLOUT = ("batch", "kind"',
        EPISODE,
        "adapters merged",
    ),
    Fault("kind dropped from the keys", keys, '"kind", "id"', '"id"', EPISODE),
    Fault("group_index dropped from the episode key", keys, '"id", "group_index")', '"id")', EPISODE),
    Fault(
        "ddof 0",
        advantages,
        '_squares"), n - 1)',
        '_squares"), n)',
        ADVANTAGE,
        "looks like ddof, the standard deviation divided by n (ddof 0) instead of n - 1",
    ),
    Fault("epsilon 1e-4", advantages, "EPSILON = 1e-6", "EPSILON = 1e-4", ADVANTAGE, "epsilon of 1e-04"),
    Fault("no epsilon", advantages, "EPSILON = 1e-6", "EPSILON = 0.0", ADVANTAGE),
    Fault(
        "the standard deviation left out",
        advantages,
        "if divide:",
        "if not divide:",
        ADVANTAGE,
        "no longer divided by it",
    ),
    Fault(
        "the standard deviation of the whole batch",
        advantages,
        "divisor = self._scaled_std +",
        "divisor = self.std.max() * sums.power_of_two(-self._exp) +",
        ADVANTAGE,
        "the whole batch's deviation",
    ),
    Fault(
        "a constant group is not zero",
        advantages,
        "pl.when(self.is_constant).then(0.0).otherwise(result)",
        "pl.when(self.is_constant).then(value).otherwise(result)",
        ADVANTAGE,
    ),
    Fault(
        "the first sample instead of the mainstream",
        samples,
        'pl.col("trainable_tokens") * MAX_ROWS_IN_BATCH - pl.col("row")',
        '-pl.col("row")',
        ("rollouts", "mainstream_row"),
        "always an earlier one",
    ),
    Fault(
        "the last on ties",
        samples,
        '* MAX_ROWS_IN_BATCH - pl.col("row")',
        '* MAX_ROWS_IN_BATCH + pl.col("row")',
        ("rollouts", "mainstream_row"),
        "always a later one",
    ),
    Fault(
        "removed samples count",
        identity,
        'pl.when(pl.col("remove_sample"))',
        "pl.when(pl.lit(value=False))",
        ("samples", "trainable_tokens"),
        "another sample stands for 1 rollouts",
    ),
    Fault(
        "the mask is not looked at",
        identity,
        'pl.coalesce("mask_tokens", "response_length")',
        'pl.col("response_length")',
        ("samples", "trainable_tokens"),
        "another sample stands for 1 rollouts",
    ),
    Fault(
        "row mean",
        samples,
        'episode_reward=pl.when(keys.leads("episode")).then("in_episode_mean")',
        'episode_reward=pl.col("raw_reward")',
        EPISODE,
        "every sample votes, not every rollout: fan-out factor",
    ),
    Fault(
        "NaN as 0",
        rewards,
        '    plain = pl.col("reward_value")\n',
        '    plain = pl.when(pl.col("reward_value_state") == "nan").then(0.0).otherwise("reward_value")\n',
        ("samples", "reward"),
        "what is not scored (missing, NaN) counts as 0",
    ),
    Fault(
        "missing as 0",
        rewards,
        '.then(pl.col("raw_value")).otherwise(pl.col("reward"))',
        '.then(pl.col("raw_value").fill_null(0.0)).otherwise(pl.col("reward").fill_null(0.0))',
        EPISODE,
    ),
    Fault(
        "groups by group_index across adapters",
        keys,
        'PROMPT_GROUP = ("adapter", "group_rule")',
        'PROMPT_GROUP = ("batch", "group_rule")',
        ("batches", "prompt_groups"),
    ),
    Fault(
        "float32",
        rewards,
        '    plain = pl.col("reward_value")\n',
        '    plain = pl.col("reward_value").cast(pl.Float32).cast(pl.Float64)\n',
        ADVANTAGE,
        "single precision",
    ),
    Fault(
        "raw_reward from reward",
        rewards,
        '.then(pl.col("raw_value"))',
        '.then(pl.col("reward"))',
        EPISODE,
    ),
    Fault(
        "advantages not broadcast to siblings",
        samples,
        'frame.select("group", "split", "reward", "mainstream_reward")',
        'frame.select("group", "split", "reward", mainstream_reward="rollout_vote")',
        ADVANTAGE,
    ),
    Fault(
        "every sample votes in its group",
        samples,
        'rollout_vote=pl.when(keys.leads("rollout")).then("mainstream_reward")',
        'rollout_vote=pl.col("reward")',
        ADVANTAGE,
    ),
    Fault(
        "the weight of an adapter by samples",
        tables,
        'pl.col("a_episode_n"), pl.col("batch_episode_n")',
        'pl.col("a_row_n"), pl.col("batch_row_n")',
        ("adapters", "weight_scoped"),
        "weight by samples",
    ),
    Fault(
        "an adapter without a score is a 0",
        tables,
        'batch_macro=sums.mean("a_episode")',
        'batch_macro=sums.mean("a_episode").fill_null(0.0)',
        ("metrics", "adapter_macro_raw_reward"),
        "what is not scored",
    ),
    Fault(
        "evaluation gets advantages",
        samples,
        'pl.when(pl.col("split") == "train")',
        "pl.when(pl.lit(value=True))",
        ADVANTAGE,
    ),
    Fault(
        "the index before the rollout_id",
        identity,
        'pl.coalesce("rollout_id", "sample_index", "row")',
        'pl.coalesce("sample_index", "rollout_id", "row")',
        ("samples", "id"),
    ),
    Fault(
        "truncated is not told",
        samples,
        'eq_missing("truncated")',
        'eq_missing("cut")',
        ("rollouts", "mainstream_truncated"),
    ),
]
