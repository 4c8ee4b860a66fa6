"""Lengths: of samples, by whether they are correct, and of whole rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.metric_reference.held import tokens_of
from tests.metric_reference.statistics import averaged, described
from tests.reference import Row, ok

if TYPE_CHECKING:
    from tests.metric_reference.held import Held
    from tests.metric_reference.statistics import Found

LENGTHS = {
    "response_length": "response_length",
    "trainable_tokens": "trainable_tokens",
    "response_len": "effective_response_length",
}


def lengths(held: Held) -> Found:
    scored = [sample for sample in held.samples if sample["reward"] is not None]
    passed = {
        "": held.samples,
        "correct/": [sample for sample in scored if held.passes(sample["reward"])],
        "incorrect/": [sample for sample in scored if not held.passes(sample["reward"])],
    }
    found: Found = {}
    for name, column in LENGTHS.items():
        given = bool(held.known(column))
        for prefix, samples in passed.items():
            values = ok(sample[column] for sample in samples)
            found |= described(prefix + name, values, ("mean", "median", "min", "max", "p95"), given=given)
    return found | episode_lengths(held)


def episode_lengths(held: Held) -> Found:
    totals = ok(map(total_length, held.episodes))
    trained = [tokens_of(siblings) for siblings in held.episodes]
    return {
        **described("episode_response_length", trained, ("mean", "median", "max", "min")),
        "episode_total_response_length/mean": averaged(totals) if totals else None,
    }


def total_length(siblings: list[Row]) -> int | None:
    known = [sample["response_length"] for sample in siblings if sample["response_length"] is not None]
    return sum(known) if known else None
