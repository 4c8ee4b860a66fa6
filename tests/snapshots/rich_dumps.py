"""Dumps in which every known fault of the accounting moves something: collisions, ties, unscored samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.sources.record_writers import write_json_lines
from tests.worked_cases import NAN, A, B, sample

if TYPE_CHECKING:
    from pathlib import Path

Sample = dict[str, Any]


def with_raw(samples: list[Sample], shift: float) -> list[Sample]:
    """Give every sample a raw reward of its own, some of them missing or NaN."""
    for place, one in enumerate(samples):
        raw = {6: None, 17: None, 7: NAN, 12: NAN}.get(place, round(shift + 0.137 * place, 3))
        one["metadata"] = {"raw_reward": raw}
    return samples


def first_step() -> list[Sample]:
    """Two adapters with the same local ids, siblings that tie and differ, both kinds of id, a constant group."""
    return with_raw(
        [
            sample(1.0, r=0, g=0, ad=A, tok=3),
            sample(0.25, r=0, g=0, ad=A, tok=5, status="truncated"),
            sample(0.5, r=0, g=0, ad=A, tok=5),
            sample(0.1, r=1, g=0, ad=A, tok=2),
            sample(0.75, r=2, g=0, ad=A, tok=9, remove_sample=True),
            sample(0.15, r=2, g=0, ad=A, tok=1),
            sample(None, r=3, g=0, ad=A, tok=2),
            sample(NAN, r=4, g=0, ad=A, tok=2),
            sample(0.35, r=5, g=0, ad=A, tok=6, loss_mask=[1, 0, 0, 0, 0, 0]),
            sample(0.95, r=5, g=0, ad=A, tok=2),
            sample(0.6, i=5, g=0, ad=A, tok=3),
            sample(0.2, r=0, g=0, ad=B, tok=2),
            sample(0.9, r=1, g=0, ad=B, tok=3),
            sample(0.85, r=1, g=0, ad=B, tok=1),
            sample(0.45, r=2, g=0, ad=B, tok=2),
            sample(3.1, r=0, g=1, ad=A, tok=2),
            sample(8.7, r=1, g=1, ad=A, tok=2),
            sample(5.3, r=2, i=8, g=1, ad=A, tok=2),
            sample(6.1, i=1, g=1, ad=A, tok=4),
            sample(0.7, r=6, g=2, ad=B, tok=2),
            sample(0.7, r=7, g=2, ad=B, tok=2),
            sample(0.7, r=8, g=2, ad=B, tok=2),
        ],
        0.4,
    )


def second_step() -> list[Sample]:
    """No raw rewards, no adapter beside one, rollouts without an id, an adapter without a score."""
    return [
        sample(1, r=0, g=0),
        sample(0, r=0, g=0, tok=2),
        sample(0.3, r=1, g=0),
        sample(0.8, g=0),
        sample(0.4, g=0, tok=3),
        sample(0.1, r=0, g=0, ad=A),
        sample(0.6, r=1, g=0, ad=A, tok=2),
        sample(0.9, r=1, g=0, ad=A, tok=2),
        sample(None, r=0, g=1, ad=B),
        sample(None, r=1, g=1, ad=B),
    ]


def evaluation() -> list[Sample]:
    """An evaluation of the second step, which shares its number."""
    return [sample(0.2, r=0, g=0), sample(0.4, r=1, g=0), sample(0.6, r=1, g=0), sample(None, r=2, g=0)]


FILES = {"0.jsonl": first_step, "1.jsonl": second_step, "eval_1.jsonl": evaluation}


def write(directory: Path) -> Path:
    """Write the dumps of one run."""
    directory.mkdir(parents=True)
    for name, samples in FILES.items():
        write_json_lines(directory / name, samples())
    return directory
