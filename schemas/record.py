"""The input contract of one sample: what every source, whatever its format, must be able to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from schemas.table import Int64, TokenCount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import TypeIs


class MaskSummary(NamedTuple):
    """What is needed of a loss mask: how many positions it has, and how many tokens reach the loss."""

    length: int
    total: int


class Totalled(Protocol):
    """A sequence of numbers that knows its own exact sum (numbers that were never turned into Python objects)."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int | float]: ...

    def total(self) -> int | float:
        """Return the exact sum."""
        ...


def _is_totalled(value: object) -> TypeIs[Totalled]:
    # Asking a protocol for all of its members takes as long as counting the mask.
    return callable(getattr(type(value), "total", None))


def summarise_mask(value: object) -> MaskSummary | None:
    """Return length and sum of a loss mask given as a list, an array or an inert run of numbers.

    Raises:
        PydanticCustomError: an entry is not a whole number of 0 or more, or the mask is no sequence.
    """
    if value is None or isinstance(value, MaskSummary):
        return value
    if isinstance(value, (list, tuple)):
        return MaskSummary(len(value), sum(_whole(entry) for entry in value))
    if _is_totalled(value):
        # A total alone would not show that -1 and 2 are in it; only what is not plain 0 and 1 is looked at one by one.
        ones = getattr(value, "ones", lambda: None)()
        return MaskSummary(len(value), sum(_whole(entry) for entry in value) if ones is None else ones)
    raise PydanticCustomError("mask_type", "a loss mask should be a list of 0 and 1")


def _whole(entry: object) -> int:
    if isinstance(entry, (bool, int)) and entry >= 0:
        return int(entry)
    if isinstance(entry, float) and entry >= 0 and entry.is_integer():
        return int(entry)
    raise PydanticCustomError("mask_entry", "loss mask entries should be whole numbers of 0 or more")


LossMask = Annotated[MaskSummary | None, BeforeValidator(summarise_mask)]


def no_adapter(value: object) -> object:
    """Turn an adapter whose parts are all null, as columnar files write "no adapter", into null."""
    is_empty = isinstance(value, dict) and value.get("name") is None and value.get("slot") is None
    return None if is_empty else value


class AdapterRef(BaseModel):
    """Identity of a LoRA adapter: name and slot, both together."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    name: str
    slot: Int64 | None = None


class SampleRecord(BaseModel):
    """One sample as a trainer writes it, in the field names of a miles sample.

    `loss_mask` is the mask from before `remove_sample` zeroes it; `trainable_tokens` may stand for it.
    Reward states are data: any `reward` is taken. Unknown fields are ignored.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    run: str | None = None
    split: Literal["train", "eval"] | None = None
    step: Int64 | None = None
    adapter: Annotated[AdapterRef | None, BeforeValidator(no_adapter)] = None
    adapter_name: str | None = None
    adapter_slot: Int64 | None = None
    rollout_id: Int64 | None = None
    index: Int64 | None = None
    group_index: Int64 | None = None
    prompt_group: Int64 | None = Field(default=None, description="label of an explicit prompt group")
    reward: Any = None
    metadata: dict[Any, Any] | None = None
    raw_reward: Any = Field(default=None, description="metadata.raw_reward, where the file has no metadata")
    has_raw_reward: bool | None = Field(
        default=None, description="whether raw_reward is there; default: whether it is set"
    )
    response_length: TokenCount | None = None
    loss_mask: LossMask = None
    trainable_tokens: TokenCount | None = None
    remove_sample: bool | None = None
    status: str | None = None
    # What is beside the contract refuses nothing: `pipeline.sources.extras` makes of it what it can.
    weight_versions: Any = Field(default=None, description="policy versions: of each generation call, or of its spans")
    legacy_weight_versions: Any = Field(default=None, description="policy versions, where weight_versions has none")
    prefix_cache_info: Any = Field(default=None, description="cached_tokens and total_prompt_tokens")
    spec_info: Any = Field(default=None, description="counts of speculative decoding")
    non_generation_time: Any = Field(default=None, description="seconds spent outside generation")
    response: Any = Field(default=None, description="text of the response")
    prompt: Any = Field(default=None, description="text, or the messages of a conversation")

    @model_validator(mode="after")
    def _lengths_fit(self) -> Self:
        mask, length = self.loss_mask, self.response_length
        if mask is not None and length is not None and mask.length != length:
            message = "the loss mask has {length} entries; expected response_length = {expected}"
            raise PydanticCustomError("mask_length", message, {"length": mask.length, "expected": length})
        if mask is None and length is None and self.trainable_tokens is None:
            raise PydanticCustomError("no_length", "one of response_length, loss_mask, trainable_tokens is required")
        return self

    @model_validator(mode="after")
    def _slot_has_name(self) -> Self:
        if self.adapter is None and self.adapter_name is None and self.adapter_slot is not None:
            raise PydanticCustomError("slot_without_name", "an adapter_slot needs an adapter_name")
        return self

    @property
    def adapter_key(self) -> tuple[str | None, int | None]:
        """Return (name, slot), both null for no adapter."""
        if self.adapter is not None:
            return self.adapter.name, self.adapter.slot
        return self.adapter_name, self.adapter_slot

    @property
    def mask_tokens(self) -> int | None:
        """Return the tokens that the mask lets through; null where neither mask nor count was dumped."""
        return self.loss_mask.total if self.loss_mask is not None else self.trainable_tokens

    @property
    def length(self) -> int | None:
        """Return response_length, or the mask's own length where it was not dumped."""
        if self.response_length is None and self.loss_mask is not None:
            return self.loss_mask.length
        return self.response_length

    @property
    def raw(self) -> tuple[bool, Any]:
        """Return (whether the sample has a raw reward, the raw reward); an explicit null is one."""
        present = self.metadata is not None and "raw_reward" in self.metadata
        value = self.metadata["raw_reward"] if present and self.metadata is not None else self.raw_reward
        present = present or "raw_reward" in self.model_fields_set
        return (present if self.has_raw_reward is None else self.has_raw_reward), value

    @property
    def registration(self) -> str | None:
        """Return metadata.registration_id where it is text."""
        value = (self.metadata or {}).get("registration_id")
        return value if isinstance(value, str) else None
