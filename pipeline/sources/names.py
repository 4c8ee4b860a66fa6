"""Which files of a dump directory are rollout dumps, and what their names say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_NUMBERED = re.compile(r"^(?P<eval>eval_)?(?:(?:rollout|step|data|batch)[_-]?)?(?P<eval2>eval_)?(?P<step>-?\d{1,19})$")
_COMPRESSED = (".gz", ".zst", ".zstd")
RECORD_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".ipc", ".feather")
DUMP_SUFFIXES = (".pt", ".pth", ".pkl", *RECORD_SUFFIXES)
OTHER_FOLDERS = frozenset(
    (
        "train_data",
        "dashboard_columns",
        "trajectory",
        "policy_loss_debug",
        "events",
        "tokenizer",
        "processor",
        "dashboard",
    )
)
"""Folders that trainers write beside their rollout dumps."""
ROLLOUT_FOLDER = "rollout_data"


class NameSays(NamedTuple):
    """What a file's name says: split, step (null: nothing), and whether it is named like a rollout dump at all."""

    split: str | None
    step: int | None
    is_dump: bool


def read_name(path: Path) -> NameSays:
    """Return what the name of a file says: `7.pt`, `eval_7.pt`, `rollout_7.jsonl.gz`, or anything else."""
    stem = stem_of(path)
    match = _NUMBERED.match(stem)
    if match is None:
        return NameSays("eval" if stem.startswith("eval") else None, None, is_dump=False)
    is_eval = match["eval"] or match["eval2"]
    return NameSays("eval" if is_eval else "train", int(match["step"]), is_dump=True)


def stem_of(path: Path) -> str:
    """Return a file's name without its endings, compression included."""
    name = path.name
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return name.rsplit(".", 1)[0] if "." in name else name


def has_dump_suffix(path: Path) -> bool:
    """Return whether a file ends like a dump of any known format."""
    name = path.name
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return name.endswith(DUMP_SUFFIXES)


def holds_many_steps(path: Path) -> bool:
    """Return whether a file's format lets it say its steps itself, whatever its name."""
    name = path.name
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return name.endswith(RECORD_SUFFIXES)


def run_name(directory: Path) -> str:
    """Return the run's name of a dump directory: its own, or its parent's where it is the `rollout_data` folder."""
    resolved = directory.resolve()
    return resolved.parent.name if resolved.name == ROLLOUT_FOLDER else resolved.name
