"""The compiled sweeps against the same formulas in numpy, on dense and sparse lines alike."""

import platform

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma

from ew_pipeline.core.kernels import FAST_MATH
from ew_pipeline.method.families import GammaExposure, exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.variational import _sweep_kernels as kernels
from ew_pipeline.method.variational._scoring_kernels import moved_in_logits, scoring_direction
from ew_pipeline.method.variational.fit import _Factors
from ew_pipeline.method.variational.theta import Parameters

SHARES = [0.9, 0.12]  # above and below one pair in SPREAD_FROM


class Case:
    """9 x 14 with a level; the first pair held out."""

    def __init__(self, observed_share, rank=3):
        rng = np.random.default_rng(5)
        self.observed = rng.random((9, 14)) < observed_share
        self.observed[:, 0] = self.observed[0] = True
        if observed_share < 0.5:
            self.observed[0, 3:] = self.observed[3:, 0] = False
            self.observed[4, 5] = self.observed[7, 9] = True
        self.counts = rng.poisson(4.0, (9, 14))
        self.level = rng.uniform(0.5, 2.0, (9, 14))
        self.healthy = rng.random((9, 14))
        self.data = Observations.of(
            SalesMatrix.from_dense(self.counts, self.observed), self.level[self.observed]
        )
        self.left = rng.gamma(4.0, 0.25, (9, rank))
        self.right = rng.gamma(4.0, 0.25, (14, rank))
        self.seen = np.ones(self.data.counts.size, np.float32)
        self.seen[0] = 0.0
        self.seen_dense = self.dense(self.seen)

    def dense(self, values):
        out = np.zeros(self.observed.shape)
        out[self.observed] = values
        return out


def reference_sweep(case, left, right, geo_left, geo_right, exposed, shape=1.0):
    """One sweep by the formulas: rows, then columns; all arrays dense, unobserved pairs at zero."""
    counts = np.where(exposed > 0.0, case.counts, 0.0)
    b = shape / left.mean()
    new_shape = shape + geo_left * ((counts / (geo_left @ geo_right.T)) @ geo_right)
    rate = b + exposed @ right
    left, geo_left = new_shape / rate, np.exp(digamma(new_shape)) / rate
    b = shape / right.mean()
    new_shape = shape + geo_right * ((counts / (geo_left @ geo_right.T)).T @ geo_left)
    rate = b + exposed.T @ left
    return left, new_shape / rate, geo_left, np.exp(digamma(new_shape)) / rate


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("rank", [1, 3])
def test_sweeps_with_exposures_as_they_are(share, rank):
    case = Case(share, rank)
    factors = _Factors(case.left, case.right)
    exposed = case.data.level32 * case.seen
    factors.sweep(case.data, exposed, case.seen, 2)
    state = case.left, case.right, case.left, case.right
    for _ in range(2):
        state = reference_sweep(case, *state, case.dense(case.data.level) * case.seen_dense)
    for found, expected in zip((*factors.mean, *factors.geo), state, strict=True):
        np.testing.assert_allclose(found.T, expected, rtol=5e-6)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", ["exponential", "thinning", "zero", "uniform"])
def test_exposures_follow_the_family_before_each_sweep(share, name):
    case, family = Case(share), exposure_family(name)
    theta = Parameters(0.0 if name == "zero" else 0.3, 0.1, 0.2)
    factors = _Factors(case.left, case.right)
    exposed = np.empty(case.data.counts.size, np.float32)
    healthy = case.healthy[case.observed]
    sweeps = 2 if isinstance(family, GammaExposure) else 1
    factors.sweep_and_weigh(case.data, exposed, case.seen, healthy, family, theta, sweeps)
    state = case.left, case.right, case.left, case.right
    for _ in range(sweeps):
        means = (state[0] @ state[1].T)[case.observed] * case.data.level
        weights = family.weights(case.data, means, healthy, theta.alpha, theta.inverse_size)
        state = reference_sweep(case, *state, case.dense(weights) * case.seen_dense)
    np.testing.assert_allclose(exposed, weights * case.seen, rtol=2e-5, atol=1e-12)
    for found, expected in zip((*factors.mean, *factors.geo), state, strict=True):
        np.testing.assert_allclose(found.T, expected, rtol=2e-5)


@pytest.mark.parametrize("share", SHARES)
def test_side_variance_is_the_quadratic_form_in_the_inverse_information(share):
    case = Case(share)
    sales, data = case.data.sales, case.data
    each = np.random.default_rng(0).uniform(0.1, 2.0, data.counts.size).astype(np.float32)
    variance = np.zeros(data.counts.size)
    right = np.ascontiguousarray(case.right.T, np.float32)
    kernels.side_variance(sales.indptr, sales.cols, data.row_entry, each, right, 0.4, variance)
    expected = np.zeros(case.observed.shape)
    for i, weights in enumerate(case.dense(each)):
        inverse = np.linalg.inv(case.right.T @ (weights[:, None] * case.right) + 0.4 * np.eye(3))
        expected[i] = np.einsum("ja,ab,jb->j", case.right, inverse, case.right)
    np.testing.assert_allclose(variance, expected[case.observed], rtol=1e-4)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="looks at x86-64 code")
def test_vector_kernels_divide_and_do_not_estimate():
    """Estimates of reciprocals differ between processors, and from what a scalar loop makes."""

    def divide(numerator, denominator, out):
        for t in range(out.size):
            out[t] = numerator[t] / denominator[t]

    arrays = [np.ones(64, np.float32) for _ in range(3)]
    code = []
    for fastmath in (True, FAST_MATH):
        compiled = numba.njit(fastmath=fastmath, error_model="numpy")(divide)
        compiled(*arrays)
        code.append("".join(compiled.inspect_asm().values()))
    assert "rcpps" in code[0]  # else there is nothing to guard against
    assert "rcpps" not in code[1]
    assert "divps" in code[1]


@given(st.floats(0.3, 1e6), st.floats(0.01, 100.0))
def test_geometric_mean_of_a_gamma_variable(shape, rate):
    factors = np.array([shape], np.float32), np.array([rate], np.float32)
    mean, geo = np.empty(1, np.float32), np.empty(1, np.float32)
    kernels._mean_and_geo(*factors, mean, geo)
    assert mean[0] == pytest.approx(shape / rate, rel=1e-6)
    assert geo[0] == pytest.approx(np.exp(digamma(shape)) / rate, rel=4e-6)


def test_scoring_direction_solves_for_the_free_parameters_alone():
    values, lows, highs = np.array([0.3, 0.1, 0.5]), np.zeros(3), np.array([1.0, 0.4, 4.0])
    slopes = values * (highs - values) / highs
    outer = np.array([[9.0, 2.0, np.inf], [2.0, 5.0, np.inf], [np.inf, np.inf, np.inf]])
    gradient = np.array([1.0, -2.0, np.inf])
    free = np.array([True, True, False])
    found = scoring_direction(gradient, outer, values, lows, highs, free, 0.01)
    system = outer[:2, :2] * np.outer(slopes[:2], slopes[:2]) + 0.01 * np.eye(2)
    expected = np.clip(np.linalg.solve(system, gradient[:2] * slopes[:2]), -1.5, 1.5)
    np.testing.assert_allclose(found, [*expected, 0.0])
    moved = moved_in_logits(values, lows, highs, free, np.array([0.5, 0.0, 9.0]))
    odds = 0.3 / 0.7 * np.exp(0.5)
    np.testing.assert_allclose(moved, [odds / (1.0 + odds), 0.1, 0.5])
