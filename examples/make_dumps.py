"""Makes the dumps of the example: a training run of three LoRA adapters, as the trainer would have dumped it.

    python examples/make_dumps.py examples/three-adapters

Everything is drawn from one seeded generator, so the files come out the same, byte for byte, wherever this runs.

What is in them, all of it seen in real runs:

* 40 training steps and one evaluation. Every step trains `math` in slot 0, `code` in slot 1 and `search` in slot 2.
* Each adapter has a data source of its own, and each source numbers its prompts and rollouts from 0: rollout 0 of
  `math`, rollout 0 of `code` and rollout 0 of `search` are three rollouts with one id.
* A long session is cut into several training samples, all of one rollout. `math` never needs it. `search` needs it more
  and more, up to four samples a rollout late in training, and `search` is the hardest of the three.
* All three get better up to the end. The mean over rows says otherwise, it falls from step 12 on: the longer the
  sessions of `search` become, the more rows of low reward there are.
* The segments of a `search` session may earn different rewards; some samples are truncated, some removed from the loss,
  and some have no reward at all because their scorer failed.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.sources.writers import TorchAdapterRef, write_torch_dump

SEED = 1
STEPS = 40
ROLLOUTS_A_PROMPT = 4
EVAL_PROMPTS = 8
HALF_LEARNT = 3.0
"""Step by which half of what there is to learn has been learnt."""
UNSCORED, TRUNCATED, REMOVED, WEAKER_SEGMENT = 0.03, 0.06, 0.03, 0.2
"""Chances of a rollout without a reward, of an answer that is cut off, and so on."""


@dataclass(frozen=True)
class Task:
    """What one adapter trains on."""

    name: str
    slot: int
    prompts: int
    untrained: float
    trained: float
    points: int
    """Rewards are so many points out of as many: 1 is right or wrong."""
    long_sessions: tuple[float, float]
    """Share of further segments, at the first and at the last step."""

    def skill(self, step: int) -> float:
        """Return the chance of a point at a step."""
        return self.untrained + (self.trained - self.untrained) * step / (step + HALF_LEARNT)

    def length(self, step: int) -> float:
        """Return the chance of each of three further segments at a step."""
        first, last = self.long_sessions
        progress = step / (STEPS - 1)
        return first + (last - first) * progress * progress


TASKS = (
    Task("math", 0, prompts=6, untrained=0.30, trained=0.95, points=1, long_sessions=(0.0, 0.0)),
    Task("code", 1, prompts=5, untrained=0.20, trained=0.80, points=8, long_sessions=(0.05, 0.15)),
    Task("search", 2, prompts=5, untrained=0.05, trained=0.25, points=5, long_sessions=(0.10, 0.95)),
)


def main(directory: Path) -> None:
    """Write the dumps of the whole run."""
    # Nothing but .random() is asked of it: that sequence is the same in every version of Python.
    draw = random.Random(SEED)  # noqa: S311 - nothing drawn here has to be secret
    rollout_data = directory / "rollout_data"
    rollout_data.mkdir(parents=True, exist_ok=True)
    for step in range(STEPS):
        write_torch_dump(rollout_data / f"{step}.pt", train_step(draw, step))
    write_torch_dump(rollout_data / f"eval_{STEPS - 1}.pt", evaluation(draw, STEPS - 1))


def train_step(draw: random.Random, step: int) -> dict[str, Any]:
    """Return the payload of a training step: prompts of every adapter, one after the other."""
    samples: list[dict[str, Any]] = []
    sizes: list[int] = []
    for task in TASKS:
        for prompt in range(task.prompts):
            block = [
                sample
                for execution in range(ROLLOUTS_A_PROMPT)
                for sample in rollout(draw, task, step, prompt, prompt * ROLLOUTS_A_PROMPT + execution)
            ]
            samples += block
            sizes.append(len(block))
    metadata = {
        "prompt_group_sizes": sizes,
        "step_slots": [task.slot for task in TASKS],
        "step_adapter_names": [task.name for task in TASKS],
    }
    return {"rollout_id": step, "metadata": metadata, "samples": samples}


def evaluation(draw: random.Random, step: int) -> dict[str, Any]:
    """Return the payload of an evaluation: one rollout a prompt, and no groups."""
    samples = [
        {**sample, "group_index": None}
        for task in TASKS
        for prompt in range(EVAL_PROMPTS)
        for sample in rollout(draw, task, step, prompt, prompt)[:1]
    ]
    return {"rollout_id": step, "metadata": {}, "samples": samples}


def rollout(draw: random.Random, task: Task, step: int, prompt: int, identity: int) -> list[dict[str, Any]]:
    """Return the samples of one rollout: one, or the segments of a session that was too long for one."""
    segments = 1 + sum(draw.random() < task.length(step) for _ in range(3))
    points = sum(draw.random() < task.skill(step) for _ in range(task.points))
    is_scored = draw.random() >= UNSCORED
    return [
        sample(draw, task, step, (prompt, identity), score=segment_score(draw, task, points) if is_scored else None)
        for _ in range(segments)
    ]


def segment_score(draw: random.Random, task: Task, points: int) -> float:
    """Return what a segment earns: the session's reward, or in `search` now and then a point less."""
    is_weaker = task.name == "search" and draw.random() < WEAKER_SEGMENT
    return max(0, points - is_weaker) / task.points


def sample(draw: random.Random, task: Task, step: int, ids: tuple[int, int], *, score: float | None) -> dict[str, Any]:
    """Return one training sample with the fields of the trainer, in its order."""
    prompt, identity = ids
    prompt_tokens = tokens(draw, 4, 8)
    response = tokens(draw, 4, 24)
    is_truncated = draw.random() < TRUNCATED
    is_removed = draw.random() < REMOVED
    # The answer of a tool stands in the response, but was not written by the model.
    from_tool = int(draw.random() * len(response) / 2) if task.name == "search" else 0
    mask = [0] * from_tool + [1] * (len(response) - from_tool) if from_tool else None
    status = "failed" if score is None else "truncated" if is_truncated else "completed"
    return {
        "group_index": prompt,
        "index": identity,
        "rollout_id": identity,
        "prompt": f"{task.name} problem {step}.{prompt}",
        "tokens": prompt_tokens + response,
        "response": "",
        "response_length": len(response),
        "label": None,
        # An answer that was cut off costs a tenth; the raw reward is what the scorer said.
        "reward": score if score is None or not is_truncated else score - 0.1,
        "loss_mask": mask,
        "weight_versions": [str(step)],
        "rollout_log_probs": None,
        "remove_sample": is_removed,
        "status": status,
        "metadata": {"raw_reward": score, "registration_id": f"{task.slot:02x}"},
        "adapter": TorchAdapterRef(task.name, task.slot),
    }


def tokens(draw: random.Random, shortest: int, longest: int) -> list[int]:
    """Return a few token ids."""
    length = shortest + int(draw.random() * (longest - shortest + 1))
    return [int(draw.random() * 32_000) for _ in range(length)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the dumps of the example.")
    parser.add_argument("directory", type=Path, help="the dump directory to make, examples/three-adapters")
    main(parser.parse_args().directory)
