"""Batches for property tests: small, and full of the coincidences that have broken reward accounting.

Each batch first draws small pools (adapters, ids, rewards, lengths) and then its samples from them, so that colliding
local ids, tied token counts and equal rewards are the rule rather than luck. Everything drawn obeys the input contract,
except from `broken_dumps`.

Nothing overflows float64: the largest magnitude is half the largest double, so that no difference of two rewards and no
spread leaves its range. Near equality of huge values is drawn on purpose (`tame=True` leaves both out).
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.extra_fields import telling
from tests.reference import Dump

if TYPE_CHECKING:
    from collections.abc import Callable

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NORTH, NORTH_MOVED = {"name": "north", "slot": 0}, {"name": "north", "slot": 1}
SOUTH, SOUTH_IN_NORTHS_SLOT = {"name": "south", "slot": 1}, {"name": "south", "slot": 0}
# Names that a sentinel or a joined key might be confused with.
ODD_NAMES = [{"name": "", "slot": 0}, {"name": "None", "slot": -1}, {"name": "north#0", "slot": INT64_MIN}]
ADAPTER_POOLS: list[list[dict[str, Any] | None]] = [
    [None],
    [NORTH],
    [NORTH, SOUTH],
    [None, NORTH],
    [NORTH, NORTH_MOVED],
    [NORTH, SOUTH_IN_NORTHS_SLOT, SOUTH],
    [None, *ODD_NAMES],
]
ID_POOLS: list[list[int | None]] = [
    [None],
    [0],
    [0, 1],
    [None, 0, 1],
    [0, 1, 2, 3, 4, 5],
    [-1, 0],
    [None, INT64_MIN, INT64_MAX, INT64_MAX - 1],
]
STATUSES = ["completed", "truncated", "aborted", "failed", "pending", "halted", "", None]
STEPS = [0, 1, 2, 9, 10, 1000]

TAME_FLOATS = [0.0, 1.0, 0.5, -1.0, 0.1, 0.7, 0.35, 0.95, -0.0, 0.1 + 0.2, 0.3]
WILD_FLOATS = [1.0 + 2**-52, 1e16, 1e16 + 2, 1e300, -1e300, 8.9e307, -8.9e307, 5e-324, 1e-300, 1e-7, 2e-7]
NOT_FINITE = [math.nan, math.inf, -math.inf]
BIG_INTEGERS = [10**400, -(10**400), 2**63, 2**53 + 1]
TEXTS = ["1.0", "nan", ""]
LISTS: list[list[Any]] = [[], [1.0], [1, 0]]

ESTIMATORS = ["grpo", "gspo", "reinforce_plus_plus_baseline", "ppo", "reinforce_plus_plus", "on_policy_distillation"]
REWARD_KEYS = [None, "acc", "score"]
# 0.1 + 0.2 is not 0.3, a weight of 0 leaves its entry out whatever it is, and 1e10 overflows with the largest rewards.
WEIGHTS = [1.0, 0.1, 0.2, 0.0, -1.0, 0.5, 1e10]


def finite_floats(*, tame: bool = False) -> st.SearchStrategy[float]:
    chosen = st.sampled_from(TAME_FLOATS if tame else TAME_FLOATS + WILD_FLOATS)
    return st.one_of(
        st.sampled_from(TAME_FLOATS), chosen, st.integers(-10_000, 10_000).map(lambda number: number / 1000)
    )


def scalars(*, columnar: bool = False, tame: bool = False) -> st.SearchStrategy[Any]:
    """Rewards without a dictionary around them, in every state; `columnar` keeps those that a float column can hold."""
    unscored: list[Any] = [None, *NOT_FINITE]
    if columnar:
        return st.one_of(finite_floats(tame=tame), finite_floats(tame=tame), st.sampled_from(unscored))
    integers: list[Any] = [0, 1, True, False, -1, 3]
    other: list[Any] = [*TEXTS, *LISTS]
    return st.one_of(
        finite_floats(tame=tame),
        st.sampled_from(integers if tame else integers + BIG_INTEGERS),
        st.sampled_from(unscored + other),
    )


def rewards(*, columnar: bool = False, tame: bool = False) -> st.SearchStrategy[Any]:
    """Scalars and, except in columns, dictionaries with and without the usual keys."""
    scalar = scalars(columnar=columnar, tame=tame)
    if columnar:
        return scalar
    dictionaries = st.dictionaries(st.sampled_from(["acc", "score", "format"]), scalar, max_size=2)
    nested = st.builds(lambda value: {"acc": {"acc": value}}, scalar)
    return st.one_of(scalar, scalar, dictionaries, nested)


@cache
def reward_palettes(*, columnar: bool, tame: bool) -> st.SearchStrategy[list[Any]]:
    """The few rewards of one batch. Most have two numbers at least, or advantages would hardly ever differ from 0."""
    numbers = st.lists(finite_floats(tame=tame), min_size=2, max_size=3)
    anything = st.lists(rewards(columnar=columnar, tame=tame), min_size=1, max_size=3)
    return st.one_of(numbers, anything, st.builds(list.__add__, numbers, anything))


def settings(dump: Dump | None = None) -> st.SearchStrategy[dict[str, Any]]:
    """Settings, some keys left to their defaults. Given a batch, a fixed fan-out often fits its number of samples."""
    return settings_for(len(dump.samples) if dump is not None else 12)


@cache
def settings_for(rows: int) -> st.SearchStrategy[dict[str, Any]]:
    divisors = [size for size in range(1, rows + 1) if rows % size == 0] or [1]
    fitting = st.sampled_from([{"n_samples_per_prompt": n, "rollout_batch_size": max(1, rows // n)} for n in divisors])
    any_size = st.sampled_from([None, 1, 2, 3, 4])
    free = st.fixed_dictionaries({"n_samples_per_prompt": any_size, "rollout_batch_size": any_size})
    keys: list[dict[str, Any]] = [{}, *({"reward_key": key} for key in REWARD_KEYS)]
    opening = st.one_of(st.sampled_from(keys), weights().map(lambda chosen: {"reward_weights": chosen}))
    switches: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {},
        optional={
            "advantage_estimator": st.sampled_from(ESTIMATORS),
            "rewards_normalization": st.sampled_from([True, True, True, False]),
            "grpo_std_normalization": st.booleans(),
            "pass_threshold": st.sampled_from([1.0, 0.5, 0.0, -1.0, 0.3]),
            "log_reward_category": st.sampled_from(["acc", "format"]),
            # Rarely: most batches with siblings would be refused.
            "sibling_rewards": st.sampled_from(["mainstream"] * 7 + ["shared"]),
        },
    )
    sizes: st.SearchStrategy[dict[str, Any]] = st.one_of(st.just({}), fitting, free)
    return st.builds(lambda one, two, three: one | two | three, switches, opening, sizes)


def weights() -> st.SearchStrategy[dict[str, float]]:
    keys = st.sampled_from(["acc", "score", "format", "style"])
    return st.dictionaries(keys, st.sampled_from(WEIGHTS), min_size=1, max_size=3).filter(lambda w: any(w.values()))


# A sample is drawn as numbers only and reads its fields off the batch's pools: strategies made anew for each batch
# would cost more time than all the rest. 60 is divisible by the length of nearly every pool.
PICKS = st.tuples(*[st.integers(0, 59)] * 11)
PLANS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "samples": st.one_of(st.lists(PICKS, max_size=12), st.lists(PICKS, min_size=3, max_size=12)),
        "adapter": st.sampled_from(ADAPTER_POOLS),
        "rollout_id": st.sampled_from(ID_POOLS),
        "index": st.sampled_from(ID_POOLS),
        "group_index": st.sampled_from(ID_POOLS),
        "remove_sample": st.sampled_from([[False], [False, True], [True]]),
        "response_length": st.sampled_from([[1], [0, 1, 2, 3], [3], [0], [2, 2**40 - 1]]),
        "loss_mask": st.sampled_from([[False], [False, True], [True]]),
        "raw_reward": st.sampled_from(["none", "all", "first", "all but first", "some"]),
        "explicit": st.sampled_from([False, False, True]),
        "split": st.sampled_from(["train", "train", "train", "eval"]),
        "step": st.sampled_from(STEPS),
    }
)
MASKS = [[1, 1, 1], [0, 0, 0], [1, 0, 1], [0, 1, 0]]
METADATA: list[dict[str, Any] | None] = [None, {}, {"suite": "a"}]


@st.composite
def dumps(
    draw: st.DrawFn,
    /,
    *,
    run: str = "run",
    split: str | None = None,
    step: int | None = None,
    columnar: bool = False,
    labels: bool = False,
    empty: bool = True,
    tame: bool = False,
    extras: bool = False,
    max_samples: int = 12,
) -> Dump:
    """One valid batch.

    `labels`: explicit groups, where there are any, are a `prompt_group` on every sample instead of sizes beside them.
    `columnar`: what a table of plain columns can hold. Implies `labels` and not `empty`; rewards are floats or null,
    and a raw reward is never an explicit null. `tame`: no huge, tiny or nearly equal values.
    `extras`: samples may also tell of policy versions, caches, drafts, tools and their text.
    """
    plan = draw(PLANS)
    plan["reward"] = draw(reward_palettes(columnar=columnar, tame=tame))
    raw_palette = draw(reward_palettes(columnar=columnar, tame=tame))
    plan["raw"] = [value for value in raw_palette if not columnar or value is not None] or [1.0]
    picked = plan["samples"][:max_samples]
    if not picked and (columnar or not empty):
        picked = [draw(PICKS)]
    samples = [one_sample(plan, row, picks) for row, picks in enumerate(picked)]
    samples = draw(telling(samples)) if extras else samples
    sizes = draw(group_sizes(len(samples))) if plan["explicit"] else None
    if sizes is not None and (labels or columnar):
        for sample, label in zip(samples, draw(group_labels(len(samples))), strict=True):
            sample["prompt_group"] = label
        sizes = None
    return Dump(run, plan["split"] if split is None else split, plan["step"] if step is None else step, samples, sizes)


def one_sample(plan: dict[str, Any], row: int, picks: tuple[int, ...]) -> dict[str, Any]:
    names = ("adapter", "rollout_id", "index", "group_index", "reward", "remove_sample", "response_length")
    sample = {name: plan[name][pick % len(plan[name])] for name, pick in zip(names, picks, strict=False)}
    mask, status, metadata, raw = picks[len(names) :]
    masked = plan["loss_mask"][mask % len(plan["loss_mask"])] and sample["response_length"] <= len(MASKS[0])
    sample["loss_mask"] = MASKS[mask // 2 % len(MASKS)][: sample["response_length"]] if masked else None
    sample["status"] = STATUSES[status % len(STATUSES)]
    sample["metadata"] = METADATA[metadata % len(METADATA)]
    if has_raw_reward(plan["raw_reward"], row, raw):
        sample["metadata"] = {**(sample["metadata"] or {}), "raw_reward": plan["raw"][raw // 2 % len(plan["raw"])]}
    # Copied, since samples of one batch would share the dictionaries and lists of its pools.
    return copy.deepcopy(sample)


def has_raw_reward(presence: str, row: int, pick: int) -> bool:
    """On none, all, the first only, all but the first, or some."""
    return {"none": False, "all": True, "first": row == 0, "all but first": row > 0, "some": pick % 2 == 0}[presence]


@cache
def group_sizes(rows: int) -> st.SearchStrategy[list[int]]:
    """Block sizes that add up to the batch; equal cuts make blocks of 0."""
    cuts = st.lists(st.integers(0, rows), max_size=3)
    return cuts.map(lambda inner: [end - start for start, end in pairwise([0, *sorted(inner), rows])])


@cache
def group_labels(rows: int) -> st.SearchStrategy[list[int]]:
    """Explicit group of each sample: in blocks, interleaved, or with labels at the ends of their range."""
    pool = st.sampled_from([[0, 1], [7, 3, 5], [INT64_MIN, -1, INT64_MAX]])
    interleaved = pool.flatmap(lambda few: st.lists(st.sampled_from(few), min_size=rows, max_size=rows))
    return st.one_of(interleaved, interleaved.map(sorted))


@st.composite
def accounts(draw: st.DrawFn, /, **restrictions: Any) -> tuple[Dump, dict[str, Any]]:
    """A batch and settings made for it; `restrictions` are those of `dumps`."""
    dump = draw(dumps(**restrictions))
    return dump, draw(settings(dump))


@st.composite
def runs(draw: st.DrawFn, /, *, max_batches: int = 4, max_samples: int = 6, **restrictions: Any) -> list[Dump]:
    """Several batches of one run, each with its own (split, step); `restrictions` are those of `dumps`."""
    places = st.tuples(st.sampled_from(["train", "train", "eval"]), st.sampled_from(STEPS))
    chosen = draw(st.lists(places, min_size=1, max_size=max_batches, unique=True))
    return [draw(dumps(split=split, step=step, max_samples=max_samples, **restrictions)) for split, step in chosen]


# --- what breaks the contract -----------------------------------------------------------------------------------------

FAULTS: list[tuple[str, Any]] = [
    ("rollout_id", 2**63),
    ("rollout_id", "7"),
    ("index", INT64_MIN - 1),
    ("index", 1.5),
    ("group_index", "a"),
    ("group_index", 2**64),
    ("response_length", -1),
    ("response_length", 2**40),
    ("response_length", None),
    ("response_length", "3"),
    ("loss_mask", "mask"),
    ("loss_mask", [None]),
    ("loss_mask", [1] * 50),
    ("metadata", [1]),
    ("metadata", "raw_reward"),
    ("status", 3),
    ("adapter", "north"),
    ("adapter", {"name": 5, "slot": 0}),
    ("adapter", {"name": "north", "slot": "0"}),
]
SIZE_FAULTS: list[Callable[[int], Any]] = [
    lambda rows: [rows + 1],
    lambda rows: [rows + 1, -1],
    lambda rows: [1] * (rows + 3),
]


@st.composite
def broken_dumps(draw: st.DrawFn, /, **restrictions: Any) -> tuple[Dump, str]:
    """A batch with one fault, and the name of the field that has it."""
    dump = draw(dumps(empty=False, **restrictions))
    if draw(st.sampled_from([False] * 5 + [True])):
        return replace(
            dump, prompt_group_sizes=draw(st.sampled_from(SIZE_FAULTS))(len(dump.samples))
        ), "prompt_group_sizes"
    field, value = draw(st.sampled_from(FAULTS))
    row = draw(st.integers(0, len(dump.samples) - 1))
    dump.samples[row][field] = value
    if (field, value) == ("loss_mask", [None]):
        dump.samples[row]["response_length"] = 1
    if (field, value) == ("response_length", None):
        # A mask would tell the length.
        dump.samples[row]["loss_mask"] = None
    return dump, field
