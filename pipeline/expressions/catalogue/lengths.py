"""Lengths: of samples, in tokens, by whether they are correct; and of whole rollouts, which compaction has cut up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pipeline.expressions.catalogue.record import Metric, Support
from pipeline.expressions.catalogue.statistics import MAX, MEAN, MEDIAN, MIN, P95

if TYPE_CHECKING:
    from pipeline.expressions.catalogue.statistics import Statistic

FAMILY = "lengths"
_STATISTICS: dict[str, tuple[Statistic, str]] = {
    "mean": (MEAN, "mean"),
    "median": (MEDIAN, "median"),
    "min": (MIN, "smallest"),
    "max": (MAX, "largest"),
    "p95": (P95, "95th percentile of the"),
}
_NOT_LOGGED = ("p95",)


class _Length(NamedTuple):
    name: str
    measure: str
    words: str
    tracker: str | None


_LENGTHS = (
    _Length("response_length", "response_length", "response length (masked and unmasked tokens)", None),
    _Length("trainable_tokens", "trainable_tokens", "number of trainable tokens (0 for a removed sample)", None),
    _Length("response_len", "effective_response_length", "number of unmasked tokens (removed samples too)", "rollout/"),
)
_WHICH = {
    "": (None, "samples", ""),
    "correct/": ("is_correct", "samples", " that pass"),
    "incorrect/": ("is_incorrect", "scored samples", " that do not pass"),
}


def _length(length: _Length, prefix: str, name: str) -> Metric:
    where, things, which = _WHICH[prefix]
    statistic, words = _STATISTICS[name]
    is_logged = length.tracker is not None and not prefix and name not in _NOT_LOGGED
    return Metric(
        f"{prefix}{length.name}/{name}",
        FAMILY,
        "sample",
        statistic,
        length.measure,
        where=where,
        meaning=f"{words} {length.words} of {things}{which}",
        count_of=f"{things} of known length{which}",
        tracker=f"rollout/{length.name}/{name}" if is_logged else None,
        source="miles and slime, response_len" if is_logged else "here",
        support=Support(length.measure, "no sample has a response_length"),
    )


_EPISODE = (
    "the trainer logs it only where a batch has one adapter at most; here the adapter is part of the rollout's key"
)

METRICS: tuple[Metric, ...] = (
    *(_length(length, prefix, name) for length in _LENGTHS for prefix in _WHICH for name in _STATISTICS),
    *(
        Metric(
            f"episode_response_length/{name}",
            FAMILY,
            "episode",
            _STATISTICS[name][0],
            "episode_response_length",
            meaning=f"{_STATISTICS[name][1]} number of a rollout's trainable tokens, all its samples together",
            count_of="rollouts",
            tracker=f"rollout/episode_response_length/{name}",
            differs=_EPISODE,
            source="miles, episode response length",
        )
        for name in ("mean", "median", "max", "min")
    ),
    Metric(
        "episode_total_response_length/mean",
        FAMILY,
        "episode",
        MEAN,
        "episode_total_response_length",
        meaning="mean number of a rollout's tokens, masked and unmasked, all its samples together",
        count_of="rollouts of known length",
        tracker="rollout/episode_total_response_length/mean",
        differs=_EPISODE,
        source="miles, episode response length",
        support=Support("episode_total_response_length", "no sample has a response_length"),
    ),
)
"""The records of this family."""
