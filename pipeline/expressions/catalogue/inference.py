"""Inference: which policy versions generated the samples, and what the engine and the tools did meanwhile."""

from __future__ import annotations

from pipeline.expressions.catalogue.record import Metric, Support
from pipeline.expressions.catalogue.statistics import EXACT_MEAN, MAX, MEAN, MEDIAN, MIN, RATIO

VERSIONS = "versions"
INFERENCE = "inference"
_MILES = "miles, rollout metrics"
_BOTH = "miles and slime, rollout metrics"
_VERSION = Support("version_oldest", "no sample has a numeric policy version")
_TIME = Support("non_generation_time", "no sample tells of time spent outside generation", positive=True)
_PROMPTS = Support("prompt_tokens", "no sample has prefix_cache_info that counts prompt tokens", positive=True)
_TOOLS = Support("tool_calls", "no sample has its conversation as messages")
_STATISTICS = {"mean": MEAN, "median": MEDIAN, "max": MAX, "min": MIN}
_EXACT_STATISTICS = {**_STATISTICS, "mean": EXACT_MEAN}

METRICS: tuple[Metric, ...] = (
    *(
        Metric(
            f"weight_version/{name}",
            VERSIONS,
            "sample",
            statistic,
            "version_oldest",
            meaning=f"{name} of the oldest policy version that generated a sample",
            count_of="samples with a numeric policy version",
            tracker=f"rollout/weight_version/{name}",
            source=_MILES,
            support=_VERSION,
        )
        for name, statistic in _STATISTICS.items()
    ),
    Metric(
        "weight_version/newest",
        VERSIONS,
        "sample",
        MAX,
        "version_newest",
        meaning="newest policy version that generated anything",
        count_of="samples with a numeric policy version",
        support=_VERSION,
    ),
    *(
        Metric(
            f"weight_version/span_{name}",
            VERSIONS,
            "sample",
            statistic,
            "version_span",
            meaning=f"{name} of newest - oldest policy version within a sample",
            count_of="samples with a numeric policy version",
            direction="lower",
            support=_VERSION,
        )
        for name, statistic in (("mean", MEAN), ("max", MAX))
    ),
    *(
        Metric(
            f"staleness/{name}",
            VERSIONS,
            "sample",
            statistic,
            "staleness",
            meaning=f"{name} of the batch's step - oldest policy version of a sample; -1 where versions count from 1",
            count_of="samples with a numeric policy version",
            direction="lower",
            support=_VERSION,
        )
        for name, statistic in (("mean", MEAN), ("max", MAX), ("min", MIN))
    ),
    Metric(
        "weight_version/mixed_version_ratio",
        VERSIONS,
        "sample",
        MEAN,
        "is_of_mixed_versions",
        meaning="share of samples that more than one policy version generated",
        count_of="samples",
        direction="lower",
        tracker="rollout/weight_version/mixed_version_ratio",
        source=_MILES,
        support=_VERSION,
    ),
    Metric(
        "weight_version/coverage",
        VERSIONS,
        "sample",
        MEAN,
        "has_version",
        meaning="share of samples with a numeric policy version",
        count_of="samples",
        direction="higher",
        support=_VERSION,
    ),
    Metric(
        "prefix_cache_hit_rate",
        INFERENCE,
        "sample",
        RATIO,
        "cached_tokens",
        over="prompt_tokens",
        meaning="prompt tokens found in the engine's prefix cache / all prompt tokens, summed first",
        count_of="samples that tell both",
        direction="higher",
        tracker="rollout/prefix_cache_hit_rate",
        source=_BOTH,
        support=_PROMPTS,
    ),
    Metric(
        "avg_cached_tokens_per_sample",
        INFERENCE,
        "sample",
        MEAN,
        "cached_tokens",
        meaning="mean number of prompt tokens found in the engine's prefix cache",
        count_of="samples that tell",
        direction="higher",
        tracker="rollout/avg_cached_tokens_per_sample",
        source=_BOTH,
        support=_PROMPTS,
    ),
    Metric(
        "spec_accept_rate",
        INFERENCE,
        "sample",
        RATIO,
        "spec_accepted",
        over="spec_proposed",
        meaning="draft tokens accepted / draft tokens proposed, summed first",
        count_of="samples that tell both",
        direction="higher",
        tracker="rollout/spec_accept_rate",
        source=_BOTH,
        support=Support("spec_proposed", "no sample has spec_info that counts draft tokens", positive=True),
    ),
    Metric(
        "spec_accept_length",
        INFERENCE,
        "sample",
        RATIO,
        "spec_tokens",
        over="spec_verifications",
        meaning="tokens generated / verification passes of speculative decoding, summed first",
        count_of="samples that tell both",
        direction="higher",
        tracker="rollout/spec_accept_length",
        source=_BOTH,
        support=Support("spec_verifications", "no sample has spec_info that counts verifications", positive=True),
    ),
    *(
        Metric(
            f"non_generation_time/{name}",
            INFERENCE,
            "sample",
            statistic,
            "non_generation_time",
            meaning=f"{name} of the seconds that a sample spent outside generation",
            count_of="samples that tell",
            direction="lower",
            tracker=f"perf/non_generation_time/{name}",
            source="miles and slime, performance metrics",
            support=_TIME,
        )
        for name, statistic in _EXACT_STATISTICS.items()
    ),
    *(
        Metric(
            f"tool_calls/{name}",
            INFERENCE,
            "sample",
            statistic,
            "tool_calls",
            meaning=f"{name} number of tool messages in a sample's conversation",
            count_of="samples with a conversation",
            source="miles, dashboard",
            support=_TOOLS,
        )
        for name, statistic in (("mean", MEAN), ("max", MAX))
    ),
)
"""The records of these two families."""
