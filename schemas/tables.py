"""The published tables. Names, types and meanings of every column are written here and nowhere else."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.canonical import RewardPart, RewardState
from schemas.table import Int64, Table, Timestamp

Kind = Literal["rollout", "sample", "position"]
"""What identifies a rollout."""

_BATCH = ("run", "split", "step")
_ADAPTER = ("adapter_name", "adapter_slot")


class BatchRow(Table):
    """One batch: the samples of one training or evaluation step."""

    relation: ClassVar[str] = "batches"
    grain: ClassVar[tuple[str, ...]] = _BATCH

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number: the dump's own rollout_id")
    source: str = Field(description="file that the batch was read from")
    format: str = Field(description="format of that file")
    samples: Int64 = Field(description="samples in the batch")
    rollouts: Int64 = Field(description="rollouts of the episode metrics (own group_index in the key)")
    scored_rollouts: Int64 = Field(
        description="those with at least one ok raw reward: what episode_raw_reward averages"
    )
    prompt_groups: Int64 = Field(description="prompt groups, the adapter being part of a group")
    group_source: str = Field(
        description="rule that found the groups: explicit, group_index, fixed_fanout, whole_batch"
    )
    reward_missing: Int64 = Field(description="samples whose reward is absent")
    reward_nan: Int64 = Field(description="samples whose reward is NaN")
    reward_inf: Int64 = Field(description="samples whose reward is infinite")
    reward_other: Int64 = Field(description="samples whose reward is no number")
    raw_reward_missing: Int64 = Field(description="samples whose raw reward is absent")
    raw_reward_nan: Int64 = Field(description="samples whose raw reward is NaN")
    raw_reward_inf: Int64 = Field(description="samples whose raw reward is infinite")
    raw_reward_other: Int64 = Field(description="samples whose raw reward is no number")
    state: str = Field(
        description="ok, or stale: a newer dump of this step was refused and these are the figures before it"
    )
    settings: str = Field(description="settings that the batch was computed with, JSON")
    versions: str = Field(description="versions of schema, canonical samples and metrics that computed it, JSON")
    published_at: Timestamp = Field(description="when these figures were published, UTC")


class SourceRow(Table):
    """One source file, and what is known of it."""

    relation: ClassVar[str] = "sources"
    grain: ClassVar[tuple[str, ...]] = ("run", "source")

    run: str = Field(description="training run")
    source: str = Field(description="file")
    state: str = Field(
        description="taken, partial (only a range of steps was taken), refused, pending (being written), vanished (its "
        "batches are kept)"
    )
    reason: str = Field(description="why it is in that state: new, changed, renamed, ...")
    batches: Int64 = Field(description="batches that were read from it, refused ones included")
    size: Int64 = Field(description="bytes, when it was looked at")
    modified_ns: Int64 = Field(description="time of its last change, nanoseconds since 1970, when it was looked at")
    digest: str | None = Field(description="BLAKE2 digest of its content, where it was read")
    versions: str | None = Field(description="versions of the code that read it, JSON")
    settings: str | None = Field(description="settings that it was last accounted for with, JSON")
    seen_at: Timestamp = Field(description="when it came into that state, UTC")


class SampleRow(Table):
    """One training sample: one leaf or segment of a rollout."""

    relation: ClassVar[str] = "samples"
    grain: ClassVar[tuple[str, ...]] = (*_BATCH, "row")

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    row: Int64 = Field(description="0-based position in the batch, as dumped")
    adapter_name: str | None = Field(description="LoRA adapter's name; null for no adapter")
    adapter_slot: Int64 | None = Field(description="LoRA adapter's slot; null for no adapter")
    registration_id: str | None = Field(description="registration of the adapter that made the sample, where dumped")
    kind: Kind = Field(description="what identifies the rollout: rollout (rollout_id), sample (index), position (row)")
    id: Int64 = Field(description="the rollout's id of that kind; unique only within batch, adapter, kind and group")
    group_index: Int64 | None = Field(description="group_index as dumped")
    prompt_group: Int64 = Field(description="0-based ordinal of the prompt group in the batch, by first row")
    rollout_id: Int64 | None = Field(description="rollout_id as dumped")
    sample_index: Int64 | None = Field(description="index as dumped")
    reward: float | None = Field(description="the sample's reward, or reward[reward_key]; null where not ok")
    reward_state: RewardState = Field(description="ok, missing, nan, inf, other")
    raw_reward: float | None = Field(description="what the episode metrics average; null where not ok")
    raw_reward_state: RewardState = Field(description="ok, missing, nan, inf, other")
    response_length: Int64 | None = Field(description="tokens of the response")
    trainable_tokens: Int64 = Field(
        description="tokens that reach the loss: 0 if removed, else the mask's sum, else response_length"
    )
    remove_sample: bool = Field(description="whether the sample is removed from the loss")
    status: str | None = Field(description="completed, truncated, aborted, failed, pending, as dumped")
    is_mainstream: bool = Field(
        description="whether its reward stands for the rollout: most trainable tokens, first on ties"
    )
    advantage: float | None = Field(
        description="normalised reward of the rollout; null for eval or where it is not scored"
    )
    row_advantage: float | None = Field(description="what the row-level rule gives, in which every sample votes")
    effective_response_length: Int64 | None = Field(
        description="the mask's sum, else response_length: trainable_tokens as if nothing were removed"
    )
    versions_seen: Int64 | None = Field(description="distinct policy versions that generated it, numeric or not")
    version_oldest: Int64 | None = Field(description="oldest numeric policy version that generated it")
    version_newest: Int64 | None = Field(description="newest numeric policy version that generated it")
    cached_tokens: Int64 | None = Field(description="prompt tokens that the engine's prefix cache had")
    prompt_tokens: Int64 | None = Field(description="prompt tokens of all its generation calls")
    spec_accepted: Int64 | None = Field(description="draft tokens that speculative decoding accepted")
    spec_proposed: Int64 | None = Field(description="draft tokens that speculative decoding proposed")
    spec_verifications: Int64 | None = Field(description="verification passes of speculative decoding")
    spec_tokens: Int64 | None = Field(description="tokens generated under speculative decoding")
    non_generation_time: float | None = Field(description="seconds spent outside generation (tools, environment)")
    tool_calls: Int64 | None = Field(description="messages of role tool in its conversation")
    is_repetitive: bool | None = Field(
        description="whether the last 10,000 characters of a longer response compress more than tenfold"
    )
    reward_parts: list[RewardPart] | None = Field(description="entries of a dictionary reward")


class RolloutRow(Table):
    """One rollout within a prompt group."""

    relation: ClassVar[str] = "rollouts"
    grain: ClassVar[tuple[str, ...]] = (*_BATCH, *_ADAPTER, "kind", "id", "prompt_group")

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    adapter_name: str | None = Field(description="LoRA adapter's name; null for no adapter")
    adapter_slot: Int64 | None = Field(description="LoRA adapter's slot; null for no adapter")
    kind: Kind = Field(description="what identifies the rollout: rollout, sample, position")
    id: Int64 = Field(description="the rollout's id of that kind")
    group_index: Int64 | None = Field(description="group_index of its first sample")
    prompt_group: Int64 = Field(description="ordinal of the prompt group in the batch")
    samples: Int64 = Field(description="its samples (siblings)")
    scored_samples: Int64 = Field(description="those with an ok raw reward")
    raw_reward: float | None = Field(description="mean of its ok raw rewards; null if none")
    mainstream_row: Int64 = Field(description="row of the mainstream sample")
    mainstream_reward: float | None = Field(description="reward of the mainstream sample; null where not ok")
    mainstream_tokens: Int64 = Field(description="trainable tokens of the mainstream sample")
    reward_min: float | None = Field(description="smallest ok reward of its samples")
    reward_max: float | None = Field(description="largest ok reward of its samples")
    siblings_differ: bool = Field(description="whether its ok rewards differ")
    mainstream_truncated: bool = Field(description="whether the mainstream sample was truncated")
    advantage: float | None = Field(description="advantage of the rollout; null for eval or where it is not scored")


class PromptGroupRow(Table):
    """One prompt group: the rollouts of one prompt and one adapter."""

    relation: ClassVar[str] = "prompt_groups"
    grain: ClassVar[tuple[str, ...]] = (*_BATCH, *_ADAPTER, "prompt_group")

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    adapter_name: str | None = Field(description="LoRA adapter's name; null for no adapter")
    adapter_slot: Int64 | None = Field(description="LoRA adapter's slot; null for no adapter")
    prompt_group: Int64 = Field(description="ordinal of the group in the batch, by first row")
    rollouts: Int64 = Field(description="rollouts of the group")
    scored_rollouts: Int64 = Field(description="those whose mainstream reward is ok: the n of the normalisation")
    samples: Int64 = Field(description="samples of the group")
    reward_mean: float | None = Field(description="mean of the scored mainstream rewards; null if none")
    reward_std: float | None = Field(description="their unbiased standard deviation (n - 1); null for n < 2")
    reward_min: float | None = Field(description="smallest scored mainstream reward")
    reward_max: float | None = Field(description="largest scored mainstream reward")
    is_constant: bool = Field(description="whether n >= 1 and all of them are equal: no advantage to learn from")


class AdapterRow(Table):
    """One adapter in a batch: its reward and its weight under each definition."""

    relation: ClassVar[str] = "adapters"
    grain: ClassVar[tuple[str, ...]] = (*_BATCH, *_ADAPTER)

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    adapter_name: str | None = Field(description="LoRA adapter's name; null for no adapter")
    adapter_slot: Int64 | None = Field(description="LoRA adapter's slot; null for no adapter")
    samples: Int64 = Field(description="samples of the adapter")
    rollouts: Int64 = Field(description="its rollouts")
    scored_rollouts: Int64 = Field(description="those with at least one ok raw reward")
    trainable_tokens: Int64 = Field(description="trainable tokens of its samples")
    episode_raw_reward: float | None = Field(description="mean over its scored rollouts; null if none")
    weight_by_rows: float | None = Field(description="its share of the batch's ok samples; null if none")
    weight_unscoped: float | None = Field(description="its share where equal local ids of different adapters merge")
    weight_scoped: float | None = Field(description="its share of the batch's scored rollouts: the right weight")
    weight_macro: float | None = Field(description="1 / scored adapters; 0 where it has no scored rollout")


class MetricRow(Table):
    """One metric of a batch or of one of its adapters."""

    relation: ClassVar[str] = "metrics"
    grain: ClassVar[tuple[str, ...]] = (*_BATCH, "scope", *_ADAPTER, "metric")

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    scope: str = Field(description="batch or adapter")
    adapter_name: str | None = Field(description="adapter's name where scope is adapter; null for no adapter")
    adapter_slot: Int64 | None = Field(description="adapter's slot where scope is adapter; null for no adapter")
    metric: str = Field(description="name of the metric")
    value: float | None = Field(description="its value; null where the adapter has nothing to average")
    count: Int64 = Field(description="number of things that the value is a mean of")


class AbsentMetricRow(Table):
    """One metric that a batch, or one of its adapters, does not have."""

    relation: ClassVar[str] = "absent_metrics"
    grain: ClassVar[tuple[str, ...]] = (*_BATCH, "scope", *_ADAPTER, "metric")

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    scope: str = Field(description="batch or adapter")
    adapter_name: str | None = Field(description="adapter's name where scope is adapter; null for no adapter")
    adapter_slot: Int64 | None = Field(description="adapter's slot where scope is adapter; null for no adapter")
    metric: str = Field(description="name of the metric, or of the family that it is one of")
    reason: str = Field(description="why it cannot be computed from this dump; it is never published as 0")


class FindingRow(Table):
    """One problem of an input."""

    relation: ClassVar[str] = "findings"
    grain: ClassVar[tuple[str, ...]] = ("run", "source", "split", "step", "code", "row", "field")

    run: str | None = Field(description="training run")
    split: str | None = Field(description="train or eval; null where not known")
    step: Int64 | None = Field(description="the batch's number; null where not known")
    source: str | None = Field(description="file")
    severity: str = Field(description="error: the batch was refused; warning: it was published")
    code: str = Field(description="kind of the problem")
    row: Int64 | None = Field(description="0-based row in the batch; null where the problem is not one row's")
    field: str | None = Field(description="field")
    value: str | None = Field(description="the value found, shortened")
    message: str = Field(description="what is wrong, what was expected, what to do")


PUBLISHED: tuple[type[Table], ...] = (
    BatchRow,
    SampleRow,
    RolloutRow,
    PromptGroupRow,
    AdapterRow,
    MetricRow,
    FindingRow,
    SourceRow,
)
"""The published relations, in the order of the documentation."""
