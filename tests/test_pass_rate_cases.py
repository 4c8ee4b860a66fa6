"""Faults that others met with pass@k, by the number of their report: a dump, a recompute, the ledger's right values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.one_batch import Figures, close, figures, recomputed
from tests.worked_cases import rollouts_of, sample


def of_pass(found: Figures) -> Figures:
    return {name: figure for name, figure in found.items() if name.startswith("pass@")}


def test_37_pass_at_k_is_exact(tmp_path: Path) -> None:
    found = of_pass(figures(recomputed(tmp_path, *rollouts_of(1, 0, 0, 0), n_samples_per_prompt=4)))

    assert found == {"pass@1": (0.25, 1), "pass@2": (0.5, 1), "pass@4": (1.0, 1)}


def test_38_k_beyond_n_is_undefined(tmp_path: Path) -> None:
    found = of_pass(figures(recomputed(tmp_path, *rollouts_of(0, 0), n_samples_per_prompt=4)))

    assert found == {"pass@1": (None, 0), "pass@2": (None, 0), "pass@4": (None, 0)}


@pytest.mark.parametrize("settings", [{}, {"n_samples_per_prompt": 1}, {"n_samples_per_prompt": 2}])
def test_38_problems_are_no_attempts(settings: dict[str, Any], tmp_path: Path) -> None:
    samples = [sample(reward, r=number, g=number) for number, reward in enumerate([1, 0, 0])]

    found = of_pass(figures(recomputed(tmp_path, *samples, **settings)))

    if settings == {"n_samples_per_prompt": 2}:
        assert found == {"pass@1": (None, 0), "pass@2": (None, 0)}
    else:
        assert found == {"pass@1": (close(0.333333), 3)}


@pytest.mark.parametrize(
    ("n", "expected", "incomplete", "overfull"),
    [
        (3, {"pass@1": (None, 0), "pass@2": (None, 0)}, 1.0, 0.0),
        (2, {"pass@1": (0.5, 1), "pass@2": (1.0, 1)}, 0.0, 0.0),
        (1, {"pass@1": (None, 0)}, 0.0, 1.0),
    ],
)
def test_39_a_rollout_in_two_rows_is_one_attempt(
    n: int, expected: Figures, incomplete: float, overfull: float, tmp_path: Path
) -> None:
    samples = [sample(1, r=1), sample(1, r=1), sample(0, r=2)]

    found = figures(recomputed(tmp_path, *samples, n_samples_per_prompt=n))

    assert of_pass(found) == expected
    assert found["incomplete_groups"] == (incomplete, 1)
    assert found["overfull_groups"] == (overfull, 1)


def test_41_only_complete_groups_count(tmp_path: Path) -> None:
    whole = rollouts_of(1, 0, 0, 0)
    ragged = [sample(1, r=4, g=1), sample(0, r=5, g=1)]

    found = figures(recomputed(tmp_path, *whole, *ragged, n_samples_per_prompt=4))

    assert of_pass(found) == {"pass@1": (0.25, 1), "pass@2": (0.5, 1), "pass@4": (1.0, 1)}
    assert found["incomplete_groups"] == (1.0, 2)
    assert found["group_size/mean"] == (3.0, 2)


def test_41_a_group_of_more_rollouts_is_told_and_not_trimmed(tmp_path: Path) -> None:
    whole = rollouts_of(1, 0, 0, 0)
    more = [sample(1, r=4 + number, g=1) for number in range(5)]

    found = figures(recomputed(tmp_path, *whole, *more, n_samples_per_prompt=4))

    assert of_pass(found) == {"pass@1": (0.25, 1), "pass@2": (0.5, 1), "pass@4": (1.0, 1)}
    assert found["overfull_groups"] == (1.0, 2)
    assert found["incomplete_groups"] == (0.0, 2)
