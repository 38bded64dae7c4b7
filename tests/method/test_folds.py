import numpy as np
import pytest

from ew_pipeline.method.folds import rank_curve


def test_scores_are_means_and_the_highest_is_best():
    curve = rank_curve({1: np.full(5, -3.0), 2: np.full(5, -1.0), 3: np.full(5, -2.0)})
    assert curve.ranks == (1, 2, 3)
    assert curve.scores == (-3.0, -1.0, -2.0)
    assert curve.best == 2
    # every entry is alike, so the shortfalls are certain
    assert curve.standard_errors == (0.0, 0.0, 0.0)
    assert curve.one_standard_error == 2


def test_a_smaller_rank_within_one_standard_error_is_named():
    rng = np.random.default_rng(4)
    best = rng.normal(-2.0, 1.0, 400)
    far, near = best - 1.0 - rng.random(400), best - rng.normal(0.001, 1.0, 400)
    near += best.mean() - 0.01 - near.mean()
    curve = rank_curve({1: far, 2: near, 3: best})
    assert curve.best == 3
    assert curve.one_standard_error == 2
    # paired entry by entry: what all ranks share says nothing about which is better
    assert curve.standard_errors[0] == pytest.approx((best - far).std(ddof=1) / 20)
    assert curve.standard_errors[2] == 0.0


def test_the_smaller_rank_wins_a_tie():
    assert rank_curve({2: np.array([-1.0]), 4: np.array([-1.0])}).best == 2
