"""What a batch or one of its adapters holds, counted in each of the units of account."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.reference import NORMALISING, Row, adapter_of, by, episode_key, group_of, ok, rollout_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.reference import Dump


@dataclass(frozen=True)
class Held:
    """The samples of a batch, or of one adapter in it, as the reference has described them.

    `batch` are those of the whole batch, for the few metrics that look beyond an adapter.
    """

    dump: Dump
    settings: Mapping[str, Any]
    scope: str
    samples: list[Row]
    batch: list[Row]

    @cached_property
    def rollouts(self) -> list[list[Row]]:
        """The siblings of each rollout of the normalisation."""
        return by(self.samples, rollout_key)

    @cached_property
    def episodes(self) -> list[list[Row]]:
        """The siblings of each rollout of the episode metrics."""
        return by(self.samples, episode_key)

    @cached_property
    def groups(self) -> list[list[list[Row]]]:
        """The rollouts of each prompt group."""
        return [by(members, rollout_key) for members in by(self.samples, group_of)]

    @cached_property
    def has_status(self) -> bool:
        return any(sample["status"] is not None for sample in self.samples)

    @property
    def is_train(self) -> bool:
        return self.dump.split == "train"

    @property
    def normalises(self) -> bool:
        """Whether the batch's advantages are rewards against those of their group."""
        is_on = self.settings["rewards_normalization"] and self.settings["advantage_estimator"] in NORMALISING
        return self.is_train and bool(is_on)

    def known(self, column: str) -> list[Any]:
        return ok(sample[column] for sample in self.samples)

    def passes(self, reward: float) -> bool:
        return bool(reward >= self.settings["pass_threshold"])


def scopes_of(dump: Dump, samples: list[Row], settings: Mapping[str, Any]) -> list[Held]:
    """The batch and each of its adapters; nothing where there is no sample."""
    if not samples:
        return []
    whole = Held(dump, settings, "batch", samples, samples)
    return [whole, *(Held(dump, settings, "adapter", own, samples) for own in by(samples, adapter_of))]


def was_aborted(siblings: list[Row]) -> bool:
    return any(sample["status"] == "aborted" for sample in siblings)


def tokens_of(siblings: list[Row]) -> int:
    return sum(sample["trainable_tokens"] for sample in siblings)
