"""Policy versions that generated the samples, and what the engine and the tools did meanwhile."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from tests.metric_reference.statistics import averaged, described
from tests.reference import nearest

if TYPE_CHECKING:
    from tests.metric_reference.held import Held
    from tests.metric_reference.statistics import Figure, Found

STEPS = range(-(2**40), 2**40 + 1)


def versions(held: Held) -> Found:
    dated = [sample for sample in held.samples if sample["version_oldest"] is not None]
    oldest = [sample["version_oldest"] for sample in dated]
    newest = [sample["version_newest"] for sample in dated]
    spans = [sample["version_newest"] - sample["version_oldest"] for sample in dated]
    stale = [held.dump.step - version for version in oldest] if held.dump.step in STEPS else []
    mixed = averaged((sample["versions_seen"] or 0) > 1 for sample in held.samples)
    given = bool(dated)
    return {
        **described("weight_version", oldest, ("mean", "median", "max", "min"), given=given),
        "weight_version/newest": (float(max(newest)), len(newest)) if given else None,
        **renamed(described("weight_version", spans, ("mean", "max"), given=given)),
        **described("staleness", stale, ("mean", "max", "min"), given=given),
        "weight_version/mixed_version_ratio": mixed if given else None,
        "weight_version/coverage": averaged(s["version_oldest"] is not None for s in held.samples) if given else None,
    }


def renamed(spans: Found) -> Found:
    return {name.replace("/", "/span_"): found for name, found in spans.items()}


def inference(held: Held) -> Found:
    times, calls = held.known("non_generation_time"), held.known("tool_calls")
    cached = averaged(held.known("cached_tokens"))
    return {
        "prefix_cache_hit_rate": ratio(held, "cached_tokens", "prompt_tokens"),
        "avg_cached_tokens_per_sample": cached if any(held.known("prompt_tokens")) else None,
        "spec_accept_rate": ratio(held, "spec_accepted", "spec_proposed"),
        "spec_accept_length": ratio(held, "spec_tokens", "spec_verifications"),
        **described("non_generation_time", times, ("mean", "median", "max", "min"), given=any(times)),
        **described("tool_calls", calls, ("mean", "max"), given=bool(calls)),
    }


def ratio(held: Held, part: str, whole: str) -> Figure | None:
    """Summed over the samples that tell both; absent where nothing was ever counted."""
    if not any(held.known(whole)):
        return None
    told = [(s[part], s[whole]) for s in held.samples if s[part] is not None and s[whole] is not None]
    total = sum(divisor for _, divisor in told)
    return nearest(Fraction(sum(dividend for dividend, _ in told), total)) if total else None, len(told)
