"""Settings: how rewards become advantages, and which runs there are."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from schemas.snapshot import SnapshotSettings

NORMALISING_ESTIMATORS = ("grpo", "gspo", "reinforce_plus_plus_baseline")
"""Estimators whose advantage is normalised within the prompt group."""
OTHER_ESTIMATORS = ("ppo", "reinforce_plus_plus", "cispo", "on_policy_distillation", "rloo", "remax", "sft")
"""Known estimators whose advantage is not recomputed here: the reward is given as it is."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1, le=2**31)]


class Settings(BaseModel):
    """How a run's numbers are computed. The names are the trainers' own."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    advantage_estimator: str = Field(
        default="grpo",
        min_length=1,
        description="trainer's --advantage-estimator; grpo, gspo and reinforce_plus_plus_baseline normalise",
    )
    rewards_normalization: bool = Field(
        default=True, description="false: trainer ran with --disable-rewards-normalization"
    )
    grpo_std_normalization: bool = Field(
        default=True, description="divide by the group's standard deviation (grpo and gspo)"
    )
    reward_key: str | None = Field(default=None, description="entry of a dictionary reward that is the reward")
    n_samples_per_prompt: PositiveInt | None = Field(
        default=None, description="rollouts a prompt: finds groups of dumps without identity"
    )
    rollout_batch_size: PositiveInt | None = Field(
        default=None, description="prompts a step: finds groups of dumps without identity"
    )
    sibling_rewards: Literal["mainstream", "shared"] = Field(
        default="mainstream", description="shared: siblings with different rewards refuse the batch"
    )
    reward_weights: dict[str, Finite] | None = Field(
        default=None,
        description="weights of the entries of a dictionary reward, whose weighted sum is the reward: acc=1,fmt=0.2",
    )
    pass_threshold: Finite = Field(default=1.0, description="a rollout passes from this reward on (pass@k, correct)")
    log_reward_category: str | None = Field(
        default=None, description="entry of a dictionary reward that is a category (metrics error_cat/...)"
    )
    metrics: list[str] | None = Field(
        default=None, description="compute only these metrics, by name, family or pattern: episode_*,lengths"
    )

    @field_validator("reward_weights", mode="before")
    @classmethod
    def _weights_of_text(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [part.rpartition("=") for part in value.split(",") if part.strip()]
        return {key.strip(): weight.strip() for key, _, weight in pairs}

    @field_validator("metrics", mode="before")
    @classmethod
    def _names_of_text(cls, value: object) -> object:
        names = value.split(",") if isinstance(value, str) else value
        return sorted({name.strip() for name in names if name.strip()}) if isinstance(names, (list, tuple)) else names

    @model_validator(mode="after")
    def _one_reward(self) -> Self:
        if self.reward_key is not None and self.reward_weights is not None:
            raise ValueError("reward_key and reward_weights exclude each other; give one of them")
        if self.reward_weights is not None and not any(self.reward_weights.values()):
            raise ValueError("reward_weights needs a weight that is not 0")
        return self

    @property
    def normalises(self) -> bool:
        """Return whether advantages are normalised within the prompt group."""
        return self.rewards_normalization and self.advantage_estimator in NORMALISING_ESTIMATORS

    @property
    def divides_by_std(self) -> bool:
        """Return whether a centred reward is divided by the group's standard deviation."""
        return self.normalises and self.grpo_std_normalization and self.advantage_estimator in ("grpo", "gspo")

    @property
    def known_estimator(self) -> bool:
        """Return whether the estimator's name is one that a trainer has."""
        return self.advantage_estimator in (*NORMALISING_ESTIMATORS, *OTHER_ESTIMATORS)

    def as_json(self) -> str:
        """Return the settings as one line of JSON with sorted keys."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))


class RunConfig(BaseModel):
    """One `[[runs]]` entry: where a run's dumps are, and any setting of its own."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(min_length=1)
    source: str | list[str]
    format: str | None = None

    @property
    def sources(self) -> list[str]:
        """Return the sources as a list."""
        return [self.source] if isinstance(self.source, str) else list(self.source)

    @property
    def own_settings(self) -> dict[str, Any]:
        """Return the settings that the run sets for itself."""
        return dict(self.model_extra or {})


class LedgerConfig(BaseModel):
    """A `ledger.toml`: defaults, then runs."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    ledger: str | None = Field(default=None, description="directory of the ledger, relative to this file")
    defaults: dict[str, Any] = Field(default_factory=dict)
    snapshot: SnapshotSettings = Field(default_factory=SnapshotSettings)
    runs: list[RunConfig] = Field(default_factory=list)
