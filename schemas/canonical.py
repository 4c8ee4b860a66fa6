"""The canonical samples: what every source yields, before any setting is applied."""

from __future__ import annotations

from typing import ClassVar, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from schemas.table import Int64, Table, TokenCount

RewardState = Literal["ok", "missing", "nan", "inf", "other", "object"]
"""States of a reward: one type for all stages, so that nothing is converted on the way."""
OBJECT_STATE: Final = "object"
"""State of a dictionary reward before a `reward_key` is applied."""
REWARD_STATES: tuple[str, ...] = tuple(state for state in get_args(RewardState) if state != OBJECT_STATE)
"""States of a reward as published."""


class RewardPart(BaseModel):
    """One entry of a dictionary reward."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    key: str
    value: float | None
    state: str
    text: str | None = Field(description="the entry's text where it is one (error categories)")


class CanonicalBatch(Table):
    """One batch as read: the samples of one training or evaluation step."""

    relation: ClassVar[str] = "canonical_batches"
    grain: ClassVar[tuple[str, ...]] = ("run", "split", "step")

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    source: str = Field(description="file that holds the batch")
    format: str = Field(description="format of that file")
    samples: Int64 = Field(description="samples in the batch")
    explicit_groups: bool = Field(description="whether the batch carries its prompt groups")


class CanonicalSample(Table):
    """One sample as read."""

    relation: ClassVar[str] = "canonical_samples"
    grain: ClassVar[tuple[str, ...]] = ("run", "split", "step", "row")

    run: str = Field(description="training run")
    split: str = Field(description="train or eval")
    step: Int64 = Field(description="the batch's number")
    row: Int64 = Field(description="0-based position in the batch, as dumped")
    adapter_name: str | None = Field(description="LoRA adapter's name; null for no adapter")
    adapter_slot: Int64 | None = Field(description="LoRA adapter's slot; null for no adapter")
    registration_id: str | None = Field(description="registration of the adapter that made the sample, where dumped")
    rollout_id: Int64 | None = Field(description="rollout_id as dumped")
    sample_index: Int64 | None = Field(description="index as dumped")
    group_index: Int64 | None = Field(description="group_index as dumped")
    explicit_group: Int64 | None = Field(description="label of the prompt group that the batch carries")
    reward_value: float | None = Field(description="the reward, where it is a finite number")
    reward_value_state: RewardState = Field(description="state of the reward: ok, missing, nan, inf, other, object")
    reward_parts: list[RewardPart] | None = Field(description="entries of a dictionary reward")
    has_raw_reward: bool = Field(description="whether metadata has the key raw_reward")
    raw_value: float | None = Field(description="metadata.raw_reward, where it is a finite number")
    raw_value_state: RewardState = Field(description="state of metadata.raw_reward: ok, missing, nan, inf, other")
    response_length: TokenCount | None = Field(description="tokens of the response")
    mask_tokens: TokenCount | None = Field(description="sum of the loss mask; null where there is none")
    remove_sample: bool = Field(description="whether the sample is removed from the loss")
    status: str | None = Field(description="completed, truncated, aborted, failed, pending, as dumped")
    versions_seen: Int64 | None = Field(description="distinct policy versions that generated it, numeric or not")
    version_oldest: Int64 | None = Field(description="oldest numeric policy version that generated it")
    version_newest: Int64 | None = Field(description="newest numeric policy version that generated it")
    cached_tokens: TokenCount | None = Field(description="prompt tokens that the engine's prefix cache had")
    prompt_tokens: TokenCount | None = Field(description="prompt tokens of all its generation calls")
    spec_accepted: TokenCount | None = Field(description="draft tokens that speculative decoding accepted")
    spec_proposed: TokenCount | None = Field(description="draft tokens that speculative decoding proposed")
    spec_verifications: TokenCount | None = Field(description="verification passes of speculative decoding")
    spec_tokens: TokenCount | None = Field(description="tokens generated under speculative decoding")
    non_generation_time: float | None = Field(description="seconds spent outside generation (tools, environment)")
    tool_calls: Int64 | None = Field(description="messages of role tool in its conversation")
    is_repetitive: bool | None = Field(
        description="whether the last 10,000 characters of a longer response compress more than tenfold"
    )
