"""The metric catalogue as a page, with a batch small enough to check every figure of it by hand.

`docs/metrics.md` is what `page` returns.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pipeline.audit import worked_example
from pipeline.audit.arithmetic import NONE, value_of
from pipeline.expressions.catalogue import FAMILIES, METRICS, SCOPES, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from pipeline.audit.worked_example import Figure

_INTRODUCTION = """\
# Metrics

Every metric is one statistic over the things of one unit. The relation `metrics` has it for the whole batch (scope
`batch`) and for each adapter in it (scope `adapter`, by name and slot), as a `value` and a `count`: how many things the
value is made of. Where nothing takes part the value is null and the count 0; only a batch's means of the family
`accounting` are 0 then, as trainers log them. [What every number means](definitions.md) explains the words.

| unit | what is counted once |
| --- | --- |
| sample | a sample: a whole rollout, or one of the segments that it was cut into |
| rollout | a rollout of the normalisation: its prompt group is part of its key |
| episode | a rollout of the episode metrics: its own `group_index` is part of its key |
| prompt_group | the rollouts of one prompt |

The adapter is part of the key of rollouts, episodes and prompt groups. A part of a name in braces stands for several
names: `pass@{k}` is published as `pass@1`, `pass@2`, `pass@4` and so on.

A metric is not in `metrics` where the dump lacks what it takes. The relation `absent_metrics` then has it, with the
reason.

All metrics are computed unless `--metrics`, or the setting `metrics`, selects some by name, family or pattern:
`--metrics "accounting,episode_*"`. `rollout-ledger metrics` lists them, and with `--ledger` says which batches have
which.

The column *tracker's key* is where trainers log a figure of the same definition. After a key, \\* means that ours
differs from it on purpose: see [below](#where-ours-differs-on-purpose).

This page is made from the records in `pipeline/expressions/catalogue`.
"""
_DIFFERENCES = """\
## Where ours differs on purpose

Each with two figures from the [worked example](#a-worked-example): ours, and what the formula behind the trainers' key
comes to on the same rows.
"""
_EXAMPLE = """\
## A worked example

Step 7 of a run with two adapters ([the file](worked-example/step_7.jsonl)). Adapter `b` numbers its prompts and samples
from 0, as `a` does. Rows 2 and 3 are two segments of one rollout; row 6 was aborted before it was scored.
"""
_COLUMNS = """
Cached: cached of all prompt tokens. Drafts: accepted of proposed ones. Passes: tokens generated in how many
verification passes. Seconds: time outside generation. Tools: messages of role `tool`; empty where the dump has no
conversation.
"""
_ARITHMETIC = """
Every metric of this batch, worked out by hand ([the file](worked-example/arithmetic.toml)); a test compares each with
what the command computes. C(n, k) is the binomial coefficient. `signal_share`, which only adapters have, is that of
`a`.
"""
_OPTIONS = {
    "reward_key": "--reward-key",
    "log_reward_category": "--log-reward-category",
    "n_samples_per_prompt": "--n-samples-per-prompt",
}


def page() -> str:
    """Return the catalogue, the differences from trainers and the worked example as Markdown."""
    figures = worked_example.figures()
    parts = [_INTRODUCTION, *map(_family, FAMILIES), _differences(figures), _example(figures)]
    return "\n".join(parts)


def _family(name: str) -> str:
    metrics = [metric for metric in METRICS if metric.family == name]
    has_versions = any(metric.version != 1 for metric in metrics)
    header = ["name", "unit", "count is", "better", "tracker's key", "meaning", *(["version"] if has_versions else [])]
    rows = [[*_cells(metric), *([str(metric.version)] if has_versions else [])] for metric in metrics]
    return "\n".join([f"## {name}", "", *_table(header, rows), ""])


def _cells(metric: Metric) -> list[str]:
    key = _code(metric.tracker) if metric.tracker else ""
    only = "" if metric.scopes == SCOPES else f" (scope {metric.scopes[0]} only)"
    better = "" if metric.direction == "neutral" else metric.direction
    return [
        _code(metric.name),
        metric.unit,
        metric.count_of,
        better,
        f"{key} \\*" if key and metric.differs else key,
        f"{metric.meaning}{only}",
    ]


def _differences(figures: Sequence[Figure]) -> str:
    rows = [
        [
            _code(figure.metric),
            _code(figure.record.tracker or figure.record.compare or ""),
            str(figure.record.differs),
            _shown(figure.value),
            _of_trainer(figure.trainer),
        ]
        for figure in figures
        if figure.record.differs is not None
    ]
    return "\n".join([_DIFFERENCES, *_table(["ours", "trainers' key", "why", "ours here", "theirs here"], rows), ""])


def _of_trainer(text: str | None) -> str:
    if text is None:
        message = f"{worked_example.ARITHMETIC.name}: a metric that differs from the trainers' needs their figure"
        raise ValueError(message)
    return "not logged" if text == NONE else _shown(value_of(text))


def _example(figures: Sequence[Figure]) -> str:
    rows = [[_code(figure.metric), _arithmetic(figure), _shown(figure.value), str(figure.count)] for figure in figures]
    return "\n".join(
        [
            _EXAMPLE,
            *_batch(worked_example.records()),
            f"```\n{_command()}\n```",
            _ARITHMETIC,
            *_table(["metric", "arithmetic", "value", "count"], rows),
            "",
        ]
    )


def _command() -> str:
    settings = worked_example.SETTINGS.model_dump(exclude_defaults=True)
    options = " ".join(f"{_OPTIONS[name]} {shlex.quote(str(value))}" for name, value in settings.items())
    source = worked_example.BATCH.relative_to(worked_example.FOLDER.parents[1])
    return f"rollout-ledger recompute {source} --ledger example-ledger {options}"


def _arithmetic(figure: Figure) -> str:
    return "nothing takes part" if figure.arithmetic == NONE else _code(figure.arithmetic)


def _batch(samples: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the samples as two tables: what is accounted for, and what else the dump tells."""
    accounted = ["row", "adapter", "group_index", "rollout_id", "index", "reward", "raw_reward", "status", "removed"]
    told = ["row", "response_length", "loss_mask", "versions", "cached", "drafts", "passes", "seconds", "tools"]
    return [
        *_table(accounted, [[str(row), *_accounted(sample)] for row, sample in enumerate(samples)]),
        "",
        *_table(told, [[str(row), *_told(sample)] for row, sample in enumerate(samples)]),
        _COLUMNS,
    ]


def _accounted(sample: Mapping[str, Any]) -> list[str]:
    adapter, reward = sample["adapter"], sample["reward"] or {}
    return [
        f"{adapter['name']} {adapter['slot']}",
        _plain(sample["group_index"]),
        _plain(sample["rollout_id"]),
        _plain(sample["index"]),
        ", ".join(f"{key} {value}" for key, value in reward.items()),
        _plain(sample["metadata"]["raw_reward"]),
        sample["status"],
        "yes" if sample["remove_sample"] else "",
    ]


def _told(sample: Mapping[str, Any]) -> list[str]:
    mask, cache, drafts = sample["loss_mask"], sample["prefix_cache_info"], sample["spec_info"]
    conversation = sample["metadata"].get("messages", sample["prompt"])
    is_conversation = isinstance(conversation, list)
    return [
        _plain(sample["response_length"]),
        "" if mask is None else " ".join(map(str, mask)),
        ", ".join(sample["weight_versions"]),
        f"{cache['cached_tokens']} of {cache['total_prompt_tokens']}",
        f"{drafts['spec_num_correct_drafts']} of {drafts['spec_num_proposed_drafts']}",
        f"{drafts['completion_tokens']} in {drafts['spec_verify_ct']}",
        _plain(sample["non_generation_time"]),
        str(sum(message["role"] == "tool" for message in conversation)) if is_conversation else "",
    ]


def _plain(value: object) -> str:
    return "" if value is None else str(value)


def _shown(value: float | None) -> str:
    return "null" if value is None else f"{value:.6g}"


def _code(text: str) -> str:
    return f"`{text}`"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(header), _line(["---"] * len(header)), *map(_line, rows)]


def _line(cells: Iterable[str]) -> str:
    shown = " | ".join(cell.replace("|", r"\|") for cell in cells)
    return f"| {shown} |"
