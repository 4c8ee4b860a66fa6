"""The dump that reading is measured on: what a trainer writes of one step, written by the project's writers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.sources.record_writers import write_json_lines
from pipeline.sources.writers import TorchAdapterRef, write_torch_dump

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STEP = 7
ADAPTERS, GROUP = 8, 8
EXPERT_LAYERS, EXPERTS_A_TOKEN = 48, 8
"""Routed experts are 1.5 KB a token."""
_PROMPT = 500
_VOCABULARY, _WORDS_A_TOKEN = 20_000, 0.75


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
    words = vocabulary(draw)
    return [_record(number, shape.tokens, words, draw, numbers) for number in range(shape.samples)]


def vocabulary(draw: random.Random) -> list[str]:
    """Return words of made-up letters, with what follows them."""
    letters, ends = "etaoinshrdlucmfwypvbgk", [" ", " ", " ", " ", ", ", ".\n"]
    return ["".join(draw.choices(letters, k=draw.randint(1, 9))) + draw.choice(ends) for _ in range(_VOCABULARY)]


def text(tokens: int, words: Sequence[str], draw: random.Random) -> str:
    """Return a response; words are drawn as they are in texts, few of them often and most of them seldom.

    It compresses about threefold, as texts do: what says whether one repeats itself looks at that.
    """
    return "".join(words[int(len(words) ** draw.random()) - 1] for _ in range(int(tokens * _WORDS_A_TOKEN)))


def _record(
    number: int, tokens: int, words: Sequence[str], draw: random.Random, numbers: np.random.Generator
) -> dict[str, Any]:
    slot, local = number % ADAPTERS, number // ADAPTERS
    mask = (numbers.random(tokens) < 0.8).astype(int).tolist()  # noqa: PLR2004 -- tool output is not trained on
    return {
        "group_index": local // GROUP,
        "index": number,
        "rollout_id": local,
        "prompt": "What is the sum? " * 20,
        "tokens": numbers.integers(0, 150_000, _PROMPT + tokens).tolist(),
        "response": text(tokens, words, draw),
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
