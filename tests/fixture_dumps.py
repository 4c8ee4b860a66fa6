"""Reads the fixture dumps without the project's own reader, so that the two cannot share a fault.

A dump is a zip archive with one pickle. Classes in it are replaced with inert ones: nothing of torch, numpy or a
trainer is imported or run, and what they held (tensors, routed experts) is of no interest here.
"""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

from tests.reference import Dump

FIXTURES = Path(__file__).parent / "fixtures"
FIELDS = (
    "rollout_id",
    "index",
    "group_index",
    "reward",
    "metadata",
    "response_length",
    "loss_mask",
    "remove_sample",
    "status",
)
EXTRAS = ("weight_versions", "prefix_cache_info", "spec_info", "non_generation_time", "response", "prompt")
"""Fields that some trainers leave out."""
# Name of the expectation -> the folder with its dumps.
RUNS = {
    "miles_identity_edge": "miles/identity_edge/rollout_data",
    "miles_multilora_fanout_run": "miles/multilora_fanout_run/rollout_data",
    "miles_multilora_run": "miles/multilora_run/rollout_data",
    "miles_single_run": "miles/single_run/rollout_data",
    "slime_compact_run": "slime/compact_run",
    "slime_plain_run": "slime/plain_run/rollout_data",
}


class Inert:
    """Stands for any class or function that a pickle names: takes everything, does nothing."""

    def __init__(self, *_args: object) -> None:
        self.state: dict[str, Any] = {}

    def __setstate__(self, state: object) -> None:
        self.state = state if isinstance(state, dict) else {}

    def __setitem__(self, key: object, value: object) -> None:
        pass


class InertUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return type(global_name, (Inert,), {"__module__": module_name})

    def persistent_load(self, pid: object) -> None:
        """Storages of tensors stay in the archive."""


def load_dump(path: Path, run: str) -> Dump:
    with zipfile.ZipFile(path) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        payload = InertUnpickler(io.BytesIO(archive.read(name))).load()
    split = "eval" if path.stem.startswith("eval_") else "train"
    sizes = (payload.get("metadata") or {}).get("prompt_group_sizes")
    return Dump(run, split, payload["rollout_id"], [plain_sample(sample) for sample in payload["samples"]], sizes)


def plain_sample(sample: dict[str, Any]) -> dict[str, Any]:
    adapter = sample.get("adapter")
    return {
        **{field: sample[field] for field in FIELDS},
        **{field: sample[field] for field in EXTRAS if field in sample},
        "adapter": None if adapter is None else {"name": adapter.state["name"], "slot": adapter.state["slot"]},
    }


def load_run(name: str) -> dict[str, Dump]:
    """The batches of one fixture run, by file stem."""
    return {path.stem: load_dump(path, name) for path in sorted((FIXTURES / RUNS[name]).glob("*.pt"))}


def load_expected(name: str) -> dict[str, Any]:
    """`settings` and, by file stem, the figures of each batch."""
    expected: dict[str, Any] = json.loads((FIXTURES / "expected" / f"{name}.json").read_text())
    return expected
