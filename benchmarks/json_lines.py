"""What reading JSON Lines costs beside `json.loads` of every line of the same file.

    python benchmarks/json_lines.py [--samples 256] [--tokens 3000] [--repeats 9] [--json FILE]

One record a line: prompt, response, its tokens, loss mask and log probabilities, and the fields of the contract. The
peer keeps nothing of what it parses; ours goes on to canonical samples. Both and the tolerant path alone (what a line
costs that needs it) run in turns, so that what else the machine does falls on all of them; medians are told.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.suite.dumps import text, vocabulary  # noqa: E402 -- a script's path is its own folder
from pipeline.sources import json_lines  # noqa: E402
from pipeline.sources.batch import SourceFile  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROMPT, GROUP = 400, 8
LEAST = 3.0


def record(number: int, tokens: int, draw: random.Random, words: Sequence[str]) -> dict[str, Any]:
    """Return a sample."""
    length = draw.randint(tokens // 3, tokens * 5 // 3)
    return {
        "step": 7,
        "index": number,
        "rollout_id": number,
        "group_index": number // GROUP,
        "prompt": "What is the sum of these? " * 20,
        "tokens": [draw.randrange(150_000) for _ in range(PROMPT + length)],
        "response": text(length, words, draw),
        "response_length": length,
        "loss_mask": [int(draw.random() < 0.8) for _ in range(length)],  # noqa: PLR2004 -- tool output is masked
        "rollout_log_probs": [-(draw.random() ** 3) for _ in range(length)],
        "reward": draw.random(),
        "status": "completed",
        "remove_sample": False,
        "adapter": {"name": f"adapter-{number % GROUP}", "slot": number % GROUP},
        "metadata": {"raw_reward": draw.random(), "turns": 3},
        "weight_versions": ["6", "7"],
        "prefix_cache_info": {"cached_tokens": 64, "total_prompt_tokens": PROMPT},
        "non_generation_time": draw.random(),
    }


def write(path: Path, samples: int, tokens: int, seed: int = 3) -> None:
    draw = random.Random(seed)
    words = vocabulary(draw)
    with path.open("w", encoding="utf-8") as file:
        for number in range(samples):
            file.write(json.dumps(record(number, tokens, draw, words)) + "\n")


def ours(path: Path) -> None:
    (batch,) = json_lines.read(SourceFile(path, "bench"))
    if batch.refused:
        raise SystemExit(str(batch.findings))


def tolerant(path: Path) -> None:
    with patch.object(json_lines, "fields", return_value=None):
        ours(path)


def loads(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def seconds(way: Callable[[], None]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def measure(path: Path, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of every way, measured in turns after one turn that counts for nothing."""
    ways = {"ours": partial(ours, path), "json.loads": partial(loads, path), "tolerant": partial(tolerant, path)}
    turns = [{name: seconds(way) for name, way in ways.items()} for _ in range(repeats + 1)][1:]
    return {name: [turn[name] for turn in turns] for name in ways}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=3_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-json-lines-") as directory:
        path = Path(directory) / "7.jsonl"
        write(path, options.samples, options.tokens)
        size = path.stat().st_size
        measured = measure(path, options.repeats)
    own, peer, slow = (statistics.median(measured[name]) for name in ("ours", "json.loads", "tolerant"))
    each = sorted(b / a for a, b in zip(measured["ours"], measured["json.loads"], strict=True))
    print(f"{options.samples} samples of about {options.tokens:,} tokens, {size / 2**20:.0f} MiB", end="; ")
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"read {own:.3f} s, json.loads {peer:.3f} s, the tolerant path alone {slow:.3f} s")
    print(f"reading is {peer / own:.2f} x as fast as json.loads (turns: {each[0]:.2f} to {each[-1]:.2f})")
    if options.json:
        facts = {"samples": options.samples, "bytes": size, "machine": platform.machine(), "seconds": measured}
        options.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if peer / own >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
