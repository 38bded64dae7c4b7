"""The compiled sums of the regression are the matrix products they stand for, whatever the number of rows."""

from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.backtest.logistic import FARTHEST, Logistic, _newton_sums


@pytest.mark.parametrize("rows", [1, 4, 7, 102])
def test_newton_sums_are_matrix_products(rows):
    rng = np.random.default_rng(rows)
    z, residual, curving = rng.normal(size=(rows, 5)), rng.normal(size=rows), rng.random(rows)
    gradient, curvature = _newton_sums(z, residual, curving)
    design = np.column_stack([np.ones(rows), z])
    np.testing.assert_allclose(gradient, design.T @ residual, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(curvature, np.tril((design.T * curving) @ design), rtol=1e-12, atol=1e-12)


def test_log_odds_are_linear_in_features_held_within_their_limits():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50, 3)) * 10.0
    fitted = Logistic(np.array([1.0, 0.0, -2.0]), np.array([2.0, 1.0, 0.5]), 0.3, np.array([0.5, -1.0, 0.2]))
    held = np.clip((features - fitted.centre) / fitted.scale, -FARTHEST, FARTHEST)
    assert (np.abs(held) == FARTHEST).any()
    expected = 0.3 + held @ fitted.coefficients
    np.testing.assert_allclose(fitted.log_odds(features), expected, rtol=1e-12)
    columns = [features[:, k].copy() for k in range(3)]
    np.testing.assert_array_equal(fitted.log_odds_of(columns), fitted.log_odds(features))
