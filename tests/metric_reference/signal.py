"""Learning signal: how large advantages are, and whose tokens carry them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tests.metric_reference.statistics import averaged
from tests.reference import Row, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.metric_reference.held import Held
    from tests.metric_reference.statistics import Figure, Found


def signal(held: Held) -> Found:
    advantages = [Fraction(advantage) for advantage in held.known("advantage")]
    given = bool(advantages)
    found: Found = {
        "zero_advantage_ratio": averaged(advantage == 0 for advantage in advantages) if given else None,
        "mean_abs_advantage": averaged(map(abs, advantages)) if given else None,
        "token_mean_abs_advantage": by_token(held),
    }
    return found | ({"signal_share": share(held)} if held.scope == "adapter" else {})


def carrying(samples: Iterable[Row]) -> list[Row]:
    return [sample for sample in samples if sample["advantage"] is not None]


def carried(samples: Iterable[Row]) -> Fraction:
    return sum((abs(Fraction(s["advantage"])) * s["trainable_tokens"] for s in carrying(samples)), Fraction(0))


def by_token(held: Held) -> Figure | None:
    own = carrying(held.samples)
    tokens = sum(sample["trainable_tokens"] for sample in own)
    return (nearest(carried(own) / tokens), len(own)) if tokens else None


def share(held: Held) -> Figure | None:
    whole = carried(held.batch)
    return (nearest(carried(held.samples) / whole), len(carrying(held.samples))) if whole else None
