"""Small batches worked by hand, each a fault that others have met, with the figures that are right for it.

The same table is run against the plain-Python reference and against the pipeline. Figures are to six decimals; a figure
that is not given is not asked for. The number is that of the report a case was taken from.
"""

from __future__ import annotations

from typing import Any

from tests.case_checks import Adapter, Case, Expected
from tests.reference import Dump

NOBODY: Adapter = (None, None)
A: Adapter = ("a", 0)
B: Adapter = ("b", 1)

NO_STD: dict[str, Any] = {"grpo_std_normalization": False}
NEVER_DIVIDED: dict[str, Any] = {"advantage_estimator": "reinforce_plus_plus_baseline"}
NAN = float("nan")
INF = float("inf")


def sample(
    reward: object,
    *,
    r: int | None = None,
    i: int | None = None,
    g: int | None = 0,
    ad: Adapter = NOBODY,
    tok: int = 1,
    raw: object = ...,
    **fields: Any,
) -> dict[str, Any]:
    """A sample in short; `tok` is its response length, and `raw` its `metadata.raw_reward` where one is given."""
    return {
        "adapter": None if ad == NOBODY else {"name": ad[0], "slot": ad[1]},
        "rollout_id": r,
        "index": i,
        "group_index": g,
        "reward": reward,
        "metadata": {} if raw is ... else {"raw_reward": raw},
        "response_length": tok,
        "loss_mask": None,
        "remove_sample": False,
        "status": "completed",
        **fields,
    }


def train(*samples: dict[str, Any], run: str = "A", step: int = 0, sizes: list[int] | None = None) -> Dump:
    return Dump(run, "train", step, list(samples), sizes)


def one(case: str, title: str, dump: Dump, expected: Expected, settings: dict[str, Any] | None = None) -> Case:
    return Case(case, title, [(dump, expected)], settings or {})


def rollouts_of(*rewards: object, **fields: Any) -> list[dict[str, Any]]:
    """One rollout of one sample for each reward."""
    return [sample(reward, r=number, **fields) for number, reward in enumerate(rewards)]


# --- the unit is the rollout, and it belongs to an adapter ------------------------------------------------------------

THREE_AND_ONE = [sample(1, r=0), sample(1, r=0), sample(1, r=0), sample(0, r=1)]
TWO_ADAPTERS = [sample(1, r=0, ad=A), sample(1, r=0, ad=A), sample(1, r=0, ad=A), sample(0, r=0, ad=B)]
SHARED_INDEX = [
    sample(1, i=0, ad=A, tok=2),
    sample(0, i=1, ad=A, tok=4),
    sample(1, i=0, ad=B, tok=3),
    sample(0, i=1, ad=B, tok=5),
]
SEATS = [sample(1.6, r=0, ad=A), sample(-1.6, r=0, ad=B), sample(0.4, r=1, ad=A), sample(-0.4, r=1, ad=B)]
MOVED: Adapter = ("a", 1)
WEIGHTS = ("weight_by_rows", "weight_unscoped", "weight_scoped", "weight_macro")

IDENTITY = [
    one(
        "1",
        "fan-out gives long rollouts more votes",
        train(*THREE_AND_ONE),
        Expected(
            metrics={"episode_raw_reward": 0.5, "row_mean_raw_reward": 0.75, "num_training_samples": 4},
            counts={"episode_raw_reward": 2, "row_mean_raw_reward": 4, "num_training_samples": 4},
            batch={"samples": 4, "rollouts": 2, "scored_rollouts": 2, "prompt_groups": 1},
            rollouts={"samples": [3, 1], "raw_reward": [1.0, 0.0]},
        ),
    ),
    one(
        "2",
        "adapters reuse local ids",
        train(*TWO_ADAPTERS),
        Expected(
            metrics={
                "episode_raw_reward": 0.5,
                "unscoped_raw_reward": 0.75,
                "row_mean_raw_reward": 0.75,
                "adapter_macro_raw_reward": 0.5,
            },
            counts={"episode_raw_reward": 2, "unscoped_raw_reward": 1, "adapter_macro_raw_reward": 2},
            adapters={
                A: {
                    "episode_raw_reward": 1.0,
                    "weight_by_rows": 0.75,
                    "weight_unscoped": 0.75,
                    "weight_scoped": 0.5,
                    "weight_macro": 0.5,
                },
                B: {
                    "episode_raw_reward": 0.0,
                    "weight_by_rows": 0.25,
                    "weight_unscoped": 0.25,
                    "weight_scoped": 0.5,
                    "weight_macro": 0.5,
                },
            },
            advantages=[0.0] * 4,
            batch={"rollouts": 2, "scored_rollouts": 2, "prompt_groups": 2, "group_source": "group_index"},
        ),
    ),
    one(
        "2-unscored",
        "only scored samples weigh; an adapter without any weighs 0",
        train(sample(1, r=0, ad=A), sample(None, r=0, ad=A), sample(0, r=0, ad=B), sample(None, r=0, ad=MOVED)),
        Expected(
            metrics={"episode_raw_reward": 0.5, "unscoped_raw_reward": 0.5, "adapter_macro_raw_reward": 0.5},
            counts={"unscoped_raw_reward": 1, "adapter_macro_raw_reward": 2, "row_mean_raw_reward": 2},
            adapters={
                A: dict.fromkeys(WEIGHTS, 0.5),
                B: dict.fromkeys(WEIGHTS, 0.5),
                MOVED: dict.fromkeys(WEIGHTS, 0.0),
            },
            adapter_metrics={
                A: {
                    "num_training_samples": (2, 2),
                    "episode_raw_reward": (1.0, 1),
                    "row_mean_raw_reward": (1.0, 1),
                },
                MOVED: {
                    "num_training_samples": (1, 1),
                    "episode_raw_reward": (None, 0),
                    "row_mean_raw_reward": (None, 0),
                },
            },
            batch={"rollouts": 3, "scored_rollouts": 2},
        ),
    ),
    one(
        "2-slots",
        "the slot is part of the adapter, and no adapter is one of its own",
        train(sample(1, r=0, ad=A), sample(0, r=0, ad=MOVED), sample(0.25, r=0), sample(0.75, r=0)),
        Expected(
            metrics={"episode_raw_reward": 0.5, "unscoped_raw_reward": 0.5, "adapter_macro_raw_reward": 0.5},
            counts={"episode_raw_reward": 3, "unscoped_raw_reward": 1, "adapter_macro_raw_reward": 3},
            adapters={
                A: {"episode_raw_reward": 1.0, "weight_unscoped": 0.25, "weight_scoped": 1 / 3},
                MOVED: {"episode_raw_reward": 0.0, "weight_unscoped": 0.25, "weight_scoped": 1 / 3},
                NOBODY: {"episode_raw_reward": 0.5, "weight_unscoped": 0.5, "weight_scoped": 1 / 3},
            },
            batch={"rollouts": 3, "prompt_groups": 3},
        ),
    ),
    one(
        "3",
        "token totals of two adapters stay apart",
        train(*SHARED_INDEX),
        Expected(
            adapters={
                A: {"trainable_tokens": 6, "samples": 2, "rollouts": 2},
                B: {"trainable_tokens": 8, "samples": 2, "rollouts": 2},
            },
            batch={"rollouts": 4},
            samples={"trainable_tokens": [2, 4, 3, 5], "kind": ["sample"] * 4, "id": [0, 1, 0, 1]},
            rollouts={"mainstream_tokens": [2, 4, 3, 5]},
        ),
    ),
    Case(
        "4",
        "ids restart at 0 in every run",
        [
            (
                train(sample(1, r=0), sample(1, r=1), run="A"),
                Expected(
                    metrics={"episode_raw_reward": 1.0},
                    advantages=[0.0, 0.0],
                    batch={"rollouts": 2, "prompt_groups": 1},
                    groups={"reward_mean": [1.0], "is_constant": [True]},
                ),
            ),
            (
                train(sample(0, r=0), sample(0, r=1), run="B"),
                Expected(
                    metrics={"episode_raw_reward": 0.0},
                    advantages=[0.0, 0.0],
                    batch={"rollouts": 2, "prompt_groups": 1},
                    groups={"reward_mean": [0.0], "is_constant": [True]},
                ),
            ),
        ],
    ),
    one(
        "5",
        "a mean over rollouts is not a mean of group means",
        train(*rollouts_of(1, 1, 1, 1), sample(0, r=4, g=1)),
        Expected(
            metrics={"episode_raw_reward": 0.8},
            counts={"episode_raw_reward": 5},
            groups={"reward_mean": [1.0, 0.0], "rollouts": [4, 1]},
        ),
    ),
    one(
        "10",
        "two players average to zero",
        train(*SEATS),
        Expected(
            metrics={"episode_raw_reward": 0.0},
            adapters={A: {"episode_raw_reward": 1.0}, B: {"episode_raw_reward": -1.0}},
            advantages=[0.6, -0.6, -0.6, 0.6],
        ),
        NO_STD,
    ),
    one(
        "identity-kinds",
        "rollout_id 5, index 5 and row 5 are three rollouts",
        train(*rollouts_of(0, 0, 0), sample(1, r=5), sample(1, i=5), sample(1)),
        Expected(
            metrics={"episode_raw_reward": 0.5},
            batch={"rollouts": 6},
            samples={"kind": ["rollout"] * 4 + ["sample", "position"], "id": [0, 1, 2, 5, 5, 5]},
        ),
    ),
    one(
        "episode-group",
        "an episode's group is the sample's own group_index, whatever the prompt group is",
        train(sample(1, r=0, g=0), sample(0, r=0, g=1), sample(0, r=1, g=None), sample(1, r=1, g=None), sizes=[4]),
        Expected(
            metrics={"episode_raw_reward": 0.5},
            counts={"episode_raw_reward": 3},
            advantages=[0.707106, 0.707106, -0.707106, -0.707106],
            batch={"rollouts": 3, "prompt_groups": 1, "group_source": "explicit"},
            rollouts={
                "samples": [2, 2],
                "group_index": [0, None],
                "mainstream_row": [0, 2],
                "siblings_differ": [True, True],
            },
        ),
    ),
]

# --- prompt groups ----------------------------------------------------------------------------------------------------

UNEVEN = [sample(1, r=0), sample(3, r=1), sample(5, r=2, g=1)]
LOST_SIBLING = [sample(1, r=0), sample(0, r=1, g=1), sample(1, r=2, g=1)]
NO_GROUP = [sample(0, r=0, g=1), sample(1, r=1, g=1), sample(2, r=2, g=None), sample(4, r=3, g=None)]
UNGROUPED = [sample(0), sample(1), sample(1), sample(1)]
BLOCKS = [sample(0, g=None), sample(1, g=None), sample(5, g=None), sample(7, g=None)]

GROUPS = [
    one(
        "12",
        "uneven groups do not collapse into one",
        train(*UNEVEN),
        Expected(advantages=[-0.707106, 0.707106, 0.0], batch={"group_source": "group_index"}),
        {"n_samples_per_prompt": 1, "rollout_batch_size": 3},
    ),
    one("12-nostd", "the same, centred only", train(*UNEVEN), Expected(advantages=[-1.0, 1.0, 0.0]), NO_STD),
    one("12-baseline", "never divided", train(*UNEVEN), Expected(advantages=[-1.0, 1.0, 0.0]), NEVER_DIVIDED),
    one(
        "13",
        "a lost sample does not shift later groups",
        train(*LOST_SIBLING),
        Expected(advantages=[0.0, -0.707106, 0.707106], groups={"rollouts": [1, 2]}),
        {"n_samples_per_prompt": 2, "rollout_batch_size": 2},
    ),
    one("13-nostd", "the same, centred only", train(*LOST_SIBLING), Expected(advantages=[0.0, -0.5, 0.5]), NO_STD),
    one(
        "14",
        "two instances of one prompt text stay two groups",
        train(*(sample(value, r=number, g=value, prompt="same") for number, value in enumerate([0, 0, 1, 1]))),
        Expected(advantages=[0.0] * 4, groups={"is_constant": [True, True], "reward_mean": [0.0, 1.0]}),
    ),
    Case(
        "16",
        "one group_index in two steps is two groups",
        [
            (
                train(*rollouts_of(1, 1), step=0),
                Expected(advantages=[0.0, 0.0], groups={"is_constant": [True], "reward_mean": [1.0]}),
            ),
            (
                train(*rollouts_of(0, 0), step=50),
                Expected(advantages=[0.0, 0.0], groups={"is_constant": [True], "reward_mean": [0.0]}),
            ),
        ],
        {"n_samples_per_prompt": 2, "rollout_batch_size": 1},
    ),
    one(
        "50",
        "a null group_index somewhere: the rule does not apply to the batch",
        train(*NO_GROUP),
        Expected(
            advantages=[-1.75, -0.75, 0.25, 2.25],
            batch={"group_source": "whole_batch", "prompt_groups": 1},
            groups={"reward_mean": [1.75]},
        ),
        NO_STD,
    ),
    one(
        "50-fanout",
        "the same with a fan-out that fits",
        train(*NO_GROUP),
        Expected(advantages=[-0.5, 0.5, -1.0, 1.0], batch={"group_source": "fixed_fanout", "prompt_groups": 2}),
        {**NO_STD, "n_samples_per_prompt": 2, "rollout_batch_size": 2},
    ),
    one(
        "explicit",
        "explicit sizes come before group_index; a size of 0 is skipped",
        train(*rollouts_of(0, 1, 5, 7), sizes=[2, 0, 2]),
        Expected(
            advantages=[-0.5, 0.5, -1.0, 1.0],
            batch={"group_source": "explicit", "prompt_groups": 2},
            samples={"prompt_group": [0, 0, 1, 1]},
            findings=[],
        ),
        NO_STD,
    ),
    one(
        "explicit-labels",
        "a label on every sample comes before group_index, wherever equal labels stand",
        train(*(sample(value, r=row, prompt_group=7 - row % 2) for row, value in enumerate([0, 5, 1, 7]))),
        Expected(
            advantages=[-0.5, -1.0, 0.5, 1.0],
            batch={"group_source": "explicit", "prompt_groups": 2},
            samples={"prompt_group": [0, 1, 0, 1]},
            findings=[],
        ),
        NO_STD,
    ),
    one(
        "explicit-mixed",
        "a block with two adapters is two groups and a finding",
        train(sample(0, r=0, ad=A), sample(1, r=1, ad=A), sample(5, r=0, ad=B), sample(7, r=1, ad=B), sizes=[4]),
        Expected(
            advantages=[-0.5, 0.5, -1.0, 1.0],
            samples={"prompt_group": [0, 0, 1, 1]},
            findings=["group_mixes_adapters"],
        ),
        NO_STD,
    ),
    one(
        "explicit-short",
        "sizes that do not add up",
        train(*rollouts_of(0, 1, 5, 7), sizes=[2, 1]),
        Expected(refused=[(None, "prompt_group_sizes")]),
    ),
    one(
        "interleaved",
        "equal group_index wherever it stands",
        train(*(sample(value, r=row, g=row % 2) for row, value in enumerate([0, 5, 1, 7]))),
        Expected(advantages=[-0.5, -1.0, 0.5, 1.0], samples={"prompt_group": [0, 1, 0, 1]}),
        NO_STD,
    ),
    one(
        "fanout",
        "without any identity, blocks of the fixed fan-out",
        train(*BLOCKS),
        Expected(
            advantages=[-0.5, 0.5, -1.0, 1.0],
            batch={"group_source": "fixed_fanout", "rollouts": 4},
            samples={"kind": ["position"] * 4, "id": [0, 1, 2, 3]},
        ),
        {**NO_STD, "n_samples_per_prompt": 2, "rollout_batch_size": 2},
    ),
    one(
        "whole-batch",
        "otherwise one group, every row a rollout of its own",
        train(*BLOCKS),
        Expected(
            advantages=[-3.25, -2.25, 1.75, 3.75],
            batch={"group_source": "whole_batch", "rollouts": 4, "prompt_groups": 1},
        ),
        {**NO_STD, "n_samples_per_prompt": 2, "rollout_batch_size": 3},
    ),
    one(
        "empty",
        "an empty batch",
        train(),
        Expected(
            metrics={
                "num_training_samples": 0.0,
                "episode_raw_reward": 0.0,
                "row_mean_raw_reward": 0.0,
                "unscoped_raw_reward": 0.0,
                "adapter_macro_raw_reward": 0.0,
            },
            counts={"num_training_samples": 0, "episode_raw_reward": 0, "adapter_macro_raw_reward": 0},
            advantages=[],
            batch={
                "samples": 0,
                "rollouts": 0,
                "scored_rollouts": 0,
                "prompt_groups": 0,
                "group_source": "whole_batch",
            },
            findings=[],
        ),
        {"n_samples_per_prompt": 2, "rollout_batch_size": 2},
    ),
]

# --- siblings ---------------------------------------------------------------------------------------------------------

SIBLINGS = [sample(0, r=0, tok=2), sample(2, r=1, tok=1), sample(6, r=1, tok=3)]
TIE = [sample(2, r=1, tok=3), sample(6, r=1, tok=3), sample(0, r=0)]
REMOVED_FIRST = [
    sample(6, r=1, tok=9, remove_sample=True),
    sample(2, r=1, tok=3, loss_mask=[1, 0, 0]),
    sample(0, r=0, tok=1),
]
ALL_REMOVED = [sample(value, r=r, tok=t, remove_sample=True) for value, r, t in [(2, 1, 3), (6, 1, 9), (0, 0, 1)]]

FANOUT = [
    one(
        "20",
        "several sibling rewards, one vote a rollout",
        train(*SIBLINGS),
        Expected(
            metrics={"episode_raw_reward": 2.0, "row_mean_raw_reward": 8 / 3},
            advantages=[-0.707107, 0.707107, 0.707107],
            row_advantages=[-0.872871, -0.218218, 1.091089],
            samples={"is_mainstream": [True, False, True]},
            groups={"reward_mean": [3.0], "reward_std": [4.242641], "scored_rollouts": [2], "samples": [3]},
            rollouts={
                "mainstream_row": [0, 2],
                "mainstream_reward": [0.0, 6.0],
                "mainstream_tokens": [2, 3],
                "reward_min": [0.0, 2.0],
                "reward_max": [0.0, 6.0],
                "raw_reward": [0.0, 4.0],
                "siblings_differ": [False, True],
                "advantage": [-0.707107, 0.707107],
            },
        ),
    ),
    one(
        "20-nostd",
        "the same, centred only",
        train(*SIBLINGS),
        Expected(advantages=[-3.0, 3.0, 3.0], row_advantages=[-8 / 3, -2 / 3, 10 / 3]),
        NO_STD,
    ),
    one(
        "20-shared",
        "siblings that share one reward",
        train(*THREE_AND_ONE),
        Expected(
            metrics={"episode_raw_reward": 0.5},
            advantages=[0.5, 0.5, 0.5, -0.5],
            row_advantages=[0.25, 0.25, 0.25, -0.75],
            groups={"reward_mean": [0.5]},
        ),
        {**NO_STD, "sibling_rewards": "shared"},
    ),
    one(
        "21",
        "a tie in tokens: the first by row",
        train(*TIE),
        Expected(
            advantages=[1.0, 1.0, -1.0],
            samples={"is_mainstream": [True, False, True]},
            rollouts={"mainstream_reward": [2.0, 0.0], "siblings_differ": [True, False]},
        ),
        NO_STD,
    ),
    one(
        "21-shared",
        "siblings that differ where they must not",
        train(*TIE),
        Expected(refused=[(1, "reward")]),
        {"sibling_rewards": "shared"},
    ),
    one(
        "21-shared-missing",
        "a sibling without a reward does not differ",
        train(sample(2, r=1), sample(None, r=1), sample(0, r=0)),
        Expected(advantages=[1.0, 1.0, -1.0], rollouts={"siblings_differ": [False, False]}),
        {**NO_STD, "sibling_rewards": "shared"},
    ),
    one(
        "removed",
        "a removed sample counts 0 tokens: its shorter sibling stands for the rollout",
        train(*REMOVED_FIRST),
        Expected(
            advantages=[1.0, 1.0, -1.0],
            samples={"trainable_tokens": [0, 1, 1], "is_mainstream": [False, True, True]},
        ),
        NO_STD,
    ),
    one(
        "all-removed",
        "where all are removed the first still votes",
        train(*ALL_REMOVED),
        Expected(
            metrics={"num_training_samples": 3},
            advantages=[1.0, 1.0, -1.0],
            samples={"is_mainstream": [True, False, True]},
        ),
        NO_STD,
    ),
    one(
        "mainstream-unscored",
        "the mainstream sample has no reward: the rollout has none, though its sibling has",
        train(sample(None, r=1, tok=3), sample(6, r=1, tok=1), sample(0, r=0), sample(2, r=2)),
        Expected(
            advantages=[None, None, -1.0, 1.0],
            row_advantages=[None, 10 / 3, -8 / 3, -2 / 3],
            groups={"rollouts": [3], "scored_rollouts": [2], "reward_mean": [1.0]},
            rollouts={
                "mainstream_reward": [None, 0.0, 2.0],
                "scored_samples": [1, 1, 1],
                "raw_reward": [6.0, 0.0, 2.0],
            },
        ),
        NO_STD,
    ),
    one(
        "mainstream-truncated",
        "the longest segment was cut off",
        train(
            sample(1, r=0, tok=3, status="truncated"),
            sample(1, r=0, tok=2),
            sample(0, r=1, tok=2, status="truncated"),
            sample(0, r=1, tok=3),
        ),
        Expected(rollouts={"mainstream_truncated": [True, False]}),
    ),
    one(
        "32",
        "a removed sample keeps its vote",
        train(sample(1, r=0), sample(1, r=1, remove_sample=True), sample(0, r=2), sample(0, r=3)),
        Expected(advantages=[0.866024, 0.866024, -0.866024, -0.866024]),
    ),
    one(
        "33",
        "finalised rows and tokens that train are two counts",
        train(
            sample(1, r=0, tok=5),
            sample(1, r=1, tok=3, loss_mask=[0, 0, 0]),
            sample(0, r=2, tok=4),
            sample(0, r=2, tok=4, remove_sample=True),
        ),
        Expected(
            metrics={"num_training_samples": 4, "episode_raw_reward": 2 / 3},
            samples={"trainable_tokens": [5, 0, 4, 0]},
        ),
    ),
]

# --- rewards ----------------------------------------------------------------------------------------------------------

UNSCORED_GROUPS = [
    sample(None, r=0),
    sample(None, r=1),
    sample({"lp": 1}, r=2, g=1),
    sample({"lp": 2}, r=3, g=1),
    sample(1, r=4, g=2),
    sample(1, r=5, g=2),
]
MIXED_TYPES = rollouts_of(1.0, {"acc": 1.0}, "1.0", True, None)

REWARDS = [
    one(
        "11",
        "no score is not a score of 0",
        train(*rollouts_of(1.0, None, 0.5)),
        Expected(
            metrics={"episode_raw_reward": 0.75},
            counts={"episode_raw_reward": 2, "num_training_samples": 3},
            batch={"rollouts": 3, "scored_rollouts": 2, "reward_missing": 1, "raw_reward_missing": 1},
        ),
    ),
    one(
        "25",
        "rewards that a bfloat16 mean would round away",
        train(*rollouts_of(1, 1, 1, 1.0078125)),
        Expected(
            advantages=[-0.499872, -0.499872, -0.499872, 1.499616],
            groups={"reward_mean": [1.001953], "reward_std": [0.003906], "is_constant": [False]},
        ),
    ),
    one(
        "26",
        "None and NaN neither poison nor fake a mean",
        train(*rollouts_of(1.0, 0.0, None, NAN)),
        Expected(
            metrics={"episode_raw_reward": 0.5},
            counts={"episode_raw_reward": 2},
            advantages=[0.707106, -0.707106, None, None],
            row_advantages=[0.707106, -0.707106, None, None],
            batch={"rollouts": 4, "scored_rollouts": 2, "reward_missing": 1, "reward_nan": 1, "reward_inf": 0},
            samples={"reward_state": ["ok", "ok", "missing", "nan"], "reward": [1.0, 0.0, None, None]},
            groups={"rollouts": [4], "scored_rollouts": [2], "reward_mean": [0.5], "reward_std": [0.707107]},
        ),
    ),
    one(
        "28",
        "the unbiased spread, plus 1e-6",
        train(*rollouts_of(1.0, 1.001)),
        Expected(advantages=[-0.706108, 0.706108]),
    ),
    one(
        "29",
        "normalised on the reward, averaged on the raw reward",
        train(sample(0.0, r=0, raw=0), sample(-0.5, r=1, raw=0)),
        Expected(
            metrics={"episode_raw_reward": 0.0},
            counts={"episode_raw_reward": 2},
            advantages=[0.707105, -0.707105],
            groups={"is_constant": [False], "reward_std": [0.353553]},
        ),
    ),
    one(
        "30",
        "dictionaries and None make no group constant",
        train(*UNSCORED_GROUPS),
        Expected(
            metrics={"episode_raw_reward": 1.0},
            advantages=[None, None, None, None, 0.0, 0.0],
            batch={"reward_missing": 2, "reward_other": 2, "prompt_groups": 3, "scored_rollouts": 2},
            groups={
                "scored_rollouts": [0, 0, 2],
                "is_constant": [False, False, True],
                "reward_mean": [None, None, 1.0],
                "reward_std": [None, None, 0.0],
            },
        ),
    ),
    one(
        "30-key",
        "a dictionary without the key is missing",
        train(*UNSCORED_GROUPS),
        Expected(batch={"reward_missing": 4, "reward_other": 0}, advantages=[None, None, None, None, 0.0, 0.0]),
        {"reward_key": "acc"},
    ),
    one(
        "52",
        "numbers, dictionaries, text and booleans in one column",
        train(*MIXED_TYPES),
        Expected(
            metrics={"episode_raw_reward": 1.0},
            counts={"episode_raw_reward": 3},
            advantages=[0.0, 0.0, None, 0.0, None],
            batch={"reward_missing": 1, "reward_other": 1, "scored_rollouts": 3},
            samples={
                "reward": [1.0, 1.0, None, 1.0, None],
                "reward_state": ["ok", "ok", "other", "ok", "missing"],
            },
        ),
        {"reward_key": "acc"},
    ),
    one(
        "52-no-key",
        "the same without a reward_key",
        train(*MIXED_TYPES),
        Expected(samples={"reward_state": ["ok", "other", "other", "ok", "missing"]}, batch={"reward_other": 2}),
    ),
    one(
        "states",
        "what is no number, and what no float64 can hold",
        train(*rollouts_of(INF, -INF, 10**400, [1.0], {}, -0.0)),
        Expected(
            metrics={"episode_raw_reward": 0.0},
            counts={"episode_raw_reward": 1},
            advantages=[None, None, None, None, None, 0.0],
            batch={"reward_inf": 3, "reward_other": 2},
            samples={"reward_state": ["inf", "inf", "inf", "other", "other", "ok"]},
        ),
    ),
    one(
        "raw-partial",
        "raw rewards from the metadata, absent on some samples",
        train(sample(0, r=0, raw=3.0), sample(0, r=1), sample(1, r=2, raw=None), sample(1, r=3, raw=1)),
        Expected(
            metrics={"episode_raw_reward": 2.0},
            counts={"episode_raw_reward": 2},
            batch={"raw_reward_missing": 2, "reward_missing": 0},
            samples={"raw_reward": [3.0, None, None, 1.0]},
            findings=["raw_reward_partial"],
        ),
    ),
    one(
        "raw-siblings",
        "a rollout's raw reward and its siblings' rewards are two things",
        train(sample(0, r=0, raw=3.0), sample(None, r=0, raw=1.0), sample(1, r=1, raw=NAN)),
        Expected(
            metrics={"episode_raw_reward": 2.0, "row_mean_raw_reward": 2.0},
            counts={"episode_raw_reward": 1, "row_mean_raw_reward": 2},
            batch={"raw_reward_nan": 1, "reward_missing": 1, "reward_nan": 0, "scored_rollouts": 1},
            groups={"scored_rollouts": [2]},
            rollouts={"scored_samples": [2, 0], "raw_reward": [2.0, None], "reward_max": [0.0, 1.0]},
        ),
    ),
    one(
        "raw-not-on-first",
        "the first sample decides: the others' raw rewards are not read",
        train(sample(0, r=0), sample(1, r=1, raw=7)),
        Expected(metrics={"episode_raw_reward": 0.5}, findings=["raw_reward_partial"]),
    ),
    one(
        "raw-null-first",
        "an explicit null on the first sample is present",
        train(sample(0, r=0, raw=None), sample(1, r=1, raw=7)),
        Expected(metrics={"episode_raw_reward": 7.0}, counts={"episode_raw_reward": 1}, findings=[]),
    ),
    one(
        "raw-key",
        "reward_key opens the reward, not the raw reward",
        train(sample({"acc": 0.5}, r=0, raw={"acc": 1.0}), sample({"acc": 1.5}, r=1, raw=2.0)),
        Expected(
            metrics={"episode_raw_reward": 2.0},
            advantages=[-0.5, 0.5],
            batch={"raw_reward_other": 1, "reward_other": 0},
        ),
        {**NO_STD, "reward_key": "acc"},
    ),
    one(
        "56",
        "the sum of nothing is not a score",
        train(sample(None, r=0), sample(None, r=0)),
        Expected(
            metrics={"episode_raw_reward": 0.0, "adapter_macro_raw_reward": 0.0, "num_training_samples": 2},
            counts={"episode_raw_reward": 0, "row_mean_raw_reward": 0, "unscoped_raw_reward": 0},
            adapters={
                NOBODY: {
                    "episode_raw_reward": None,
                    "scored_rollouts": 0,
                    "rollouts": 1,
                    "weight_by_rows": None,
                    "weight_unscoped": None,
                    "weight_scoped": None,
                    "weight_macro": None,
                }
            },
            advantages=[None, None],
            batch={"rollouts": 1, "scored_rollouts": 0},
            groups={"rollouts": [1], "scored_rollouts": [0], "reward_mean": [None], "is_constant": [False]},
            rollouts={"raw_reward": [None], "scored_samples": [0], "advantage": [None]},
        ),
    ),
    one(
        "56-masks",
        "an empty mask is 0 tokens, no mask is the response length",
        train(sample(1, r=0, tok=0, loss_mask=[]), sample(1, r=1, tok=7), sample(1, r=2, tok=2, loss_mask=[1, 0])),
        Expected(samples={"trainable_tokens": [0, 7, 1]}),
    ),
    one(
        "56-null-mask",
        "a null inside a mask is broken input",
        train(sample(1, r=0), sample(1, r=1, loss_mask=[None])),
        Expected(refused=[(1, "loss_mask")]),
    ),
    one(
        "56-one",
        "one scored rollout: no spread, no advantage",
        train(sample(0.25, r=0)),
        Expected(advantages=[0.0], groups={"reward_std": [None], "reward_mean": [0.25], "is_constant": [True]}),
    ),
    one(
        "57",
        "NaN is neither the largest nor a member of the group",
        train(*rollouts_of(1.0, NAN)),
        Expected(
            advantages=[0.0, None],
            groups={"reward_min": [1.0], "reward_max": [1.0], "scored_rollouts": [1], "is_constant": [True]},
        ),
    ),
    one(
        "constant",
        "seven times 0.7 is a constant group, whatever the rounding of its mean",
        train(*rollouts_of(*[0.7] * 7)),
        Expected(advantages=[0.0] * 7, groups={"reward_mean": [0.7], "reward_std": [0.0], "is_constant": [True]}),
    ),
    one(
        "huge",
        "sums beyond float64, means within",
        train(*rollouts_of(1e308, 1e308, 0.0)),
        Expected(
            metrics={"episode_raw_reward": 6.666666666666667e307},
            advantages=[0.577350, 0.577350, -1.154701],
            groups={"reward_mean": [6.666666666666667e307], "reward_std": [5.773502691896258e307]},
        ),
    ),
    one(
        "huge-nostd",
        "the same, centred only",
        train(*rollouts_of(1e308, 1e308, 0.0)),
        Expected(advantages=[3.333333333333333e307, 3.333333333333333e307, -6.666666666666667e307]),
        NO_STD,
    ),
    one(
        "other-estimator",
        "no normalisation: the sample's own reward",
        train(*SIBLINGS),
        Expected(
            advantages=[0.0, 2.0, 6.0],
            row_advantages=[0.0, 2.0, 6.0],
            rollouts={"advantage": [0.0, 6.0]},
        ),
        {"advantage_estimator": "ppo"},
    ),
    one(
        "normalisation-off",
        "the same by the switch",
        train(*SIBLINGS),
        Expected(advantages=[0.0, 2.0, 6.0], row_advantages=[0.0, 2.0, 6.0]),
        {"rewards_normalization": False},
    ),
    Case(
        "47",
        "an evaluation batch of the same step: its own figures, no advantages",
        [
            (
                train(*rollouts_of(0, 0)),
                Expected(metrics={"episode_raw_reward": 0.0}, advantages=[0.0, 0.0]),
            ),
            (
                Dump("A", "eval", 0, rollouts_of(1, 0.5)),
                Expected(
                    metrics={"episode_raw_reward": 0.75},
                    advantages=[None, None],
                    row_advantages=[None, None],
                    samples={"is_mainstream": [True, True], "prompt_group": [0, 0]},
                    groups={"reward_mean": [0.75], "rollouts": [2]},
                    rollouts={"advantage": [None, None]},
                ),
            ),
        ],
    ),
]


ADAPTER_A: Adapter = ("adapter-a", 0)
ADAPTER_B: Adapter = ("adapter-b", 1)
BROADCAST = [
    one(
        "scoped",
        "one rollout_id under two adapters",
        train(*(sample(1.0, r=10, ad=ADAPTER_A) for _ in range(3)), sample(0.0, r=10, ad=ADAPTER_B)),
        Expected(
            metrics={"episode_raw_reward": 0.5, "num_training_samples": 4, "unscoped_raw_reward": 0.75},
            adapters={ADAPTER_A: {"episode_raw_reward": 1.0}, ADAPTER_B: {"episode_raw_reward": 0.0}},
        ),
    ),
    one(
        "std-broadcast",
        "siblings of unequal number get their rollout's advantage",
        train(
            sample(1.0, r=0, tok=4),
            sample(1.0, r=0, tok=2),
            sample(0.0, r=1, tok=3),
            sample(0.0, r=2, tok=1),
            sample(0.0, r=2, tok=1),
            sample(0.0, r=2, tok=1),
        ),
        Expected(
            advantages=[1.154699, 1.154699, -0.577349, -0.577349, -0.577349, -0.577349],
            groups={"reward_mean": [1 / 3], "rollouts": [3], "samples": [6]},
        ),
    ),
]

CASES = [*IDENTITY, *GROUPS, *FANOUT, *REWARDS, *BROADCAST]
