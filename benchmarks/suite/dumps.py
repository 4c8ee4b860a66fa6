"""The dump that reading is measured on: what a trainer writes of one step, written by the project's writers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.sources.record_writers import write_json_lines
from pipeline.sources.writers import TorchAdapterRef, write_torch_dump

if TYPE_CHECKING:
    from pathlib import Path

STEP = 7
ADAPTERS, GROUP = 8, 8
EXPERT_LAYERS, EXPERTS_A_TOKEN = 4, 8
_PROMPT = 500
_WORDS = ("so ", "the ", "sum ", "is ", "x ", "then ", "we ", "add ", "two ", "and ", "get ", "it.\n")


@dataclass(frozen=True)
class Shape:
    """How much a dump holds; `tokens` are those of a response."""

    samples: int
    tokens: int

    @property
    def words(self) -> str:
        """Return it in words."""
        return f"{self.samples} x {self.tokens:,} tokens"


def records(shape: Shape, seed: int = 3) -> list[dict[str, Any]]:
    """Return the samples of a step in the field names of a miles sample, `adapter` a dictionary."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    return [_record(number, shape.tokens, draw, numbers) for number in range(shape.samples)]


def _record(number: int, tokens: int, draw: random.Random, numbers: np.random.Generator) -> dict[str, Any]:
    slot, local = number % ADAPTERS, number // ADAPTERS
    mask = (numbers.random(tokens) < 0.8).astype(int).tolist()  # noqa: PLR2004 -- tool output is not trained on
    return {
        "group_index": local // GROUP,
        "index": number,
        "rollout_id": local,
        "prompt": "What is the sum? " * 20,
        "tokens": numbers.integers(0, 150_000, _PROMPT + tokens).tolist(),
        "response": "".join(draw.choices(_WORDS, k=tokens)),
        "response_length": tokens,
        "label": str(number),
        "reward": float(draw.random() < 0.5) if slot % 2 == 0 else draw.gauss(0, 1),  # noqa: PLR2004
        "loss_mask": mask,
        "weight_versions": [str(STEP - 1), str(STEP)],
        "rollout_log_probs": numbers.normal(-1, 0.5, tokens).tolist(),
        "remove_sample": number % 50 == 0,
        "status": "truncated" if number % 16 == 0 else "completed",
        "metadata": {"source": "benchmark", "turns": draw.randrange(9)},
        "adapter": {"name": f"adapter-{slot}", "slot": slot},
        "non_generation_time": draw.random() * 9,
    }


def write_pt(path: Path, samples: list[dict[str, Any]], *, experts: bool = False) -> None:
    """Write samples as a trainer's `.pt`, with the experts that every token was routed to where that is asked for."""
    numbers = np.random.default_rng(5)
    dumped = []
    for sample in samples:
        own = {**sample, "adapter": TorchAdapterRef(**sample["adapter"])}
        if experts:
            routed = (len(sample["tokens"]) - 1, EXPERT_LAYERS, EXPERTS_A_TOKEN)
            own["rollout_routed_experts"] = numbers.integers(0, 128, routed, dtype=np.int32)
        dumped.append(own)
    write_torch_dump(path, {"rollout_id": STEP, "samples": dumped, "metadata": {}})


def write_jsonl(path: Path, samples: list[dict[str, Any]]) -> None:
    """Write samples as JSON Lines."""
    write_json_lines(path, samples)
