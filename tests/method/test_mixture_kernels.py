"""The compiled numerics against scipy, finite differences and quadrature."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import digamma as scipy_digamma
from scipy.special import gammainc, gammaln

from ew_pipeline.method._kernels import fast_math as fast
from ew_pipeline.method._kernels import mixture
from ew_pipeline.method.anomalies import ExponentialOnset, Thinning, UniformOneSided, UniformOnset
from ew_pipeline.method.families import GammaExposure, MixedPoisson, UniformExposure, exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.sampler import _sampler_kernels as sampling
from ew_pipeline.method.sampler import _theta_kernels as theta_kernels
from ew_pipeline.method.sampler._gradient_kernels import (
    CURVE_START,
    GAMMA,
    THINNING,
    UNIFORM,
    ZERO,
    gradient,
)
from ew_pipeline.method.sampler.state import uniform_table
from ew_pipeline.method.theta import RATE_PENALTY
from ew_pipeline.method.variational._variational_kernels import digamma

COUNTS = np.array([0.0, 1.0, 2.0, 7.0, 12.0, 13.0, 60.0, 900.0])
LOG_FACTORIAL = gammaln(COUNTS + 1.0)


def fast_log(values):
    y = np.asarray(values, dtype=np.float32)
    scratch, out = np.empty(y.size, np.int32), np.empty(y.size, np.float32)
    fast.log_into(y.view(np.int32), scratch, scratch.view(np.float32), out, y.size)
    return out.astype(np.float64)


def fast_exp(values):
    y = np.array(values, dtype=np.float32)
    scratch = np.empty(y.size, np.int32)
    fast.exp_inplace(y, scratch, scratch.view(np.float32), y.size)
    return y.astype(np.float64)


def test_fast_log_of_mantissas_is_within_three_millionths():
    y = np.linspace(1.0, 2.0, 200_001, dtype=np.float32)[:-1]
    assert np.abs(fast_log(y) - np.log(y.astype(np.float64))).max() < 3e-6


def test_fast_log_is_exact_at_one_and_holds_over_all_magnitudes():
    assert fast_log([1.0])[0] == 0.0
    y = np.geomspace(1e-30, 1e30, 20_001).astype(np.float32)
    exact = np.log(y.astype(np.float64))
    np.testing.assert_allclose(fast_log(y), exact, rtol=3e-7, atol=3e-6)


def test_fast_exp_polynomial_is_within_single_precision():
    y = np.linspace(-0.34, 0.34, 100_001).astype(np.float32)  # one octave: no scaling by powers of two
    assert np.abs(fast_exp(y) / np.exp(y.astype(np.float64)) - 1.0).max() < 3e-7


def test_fast_exp_holds_over_its_range_and_is_limited_beyond():
    y = np.linspace(-41.0, 41.0, 50_001).astype(np.float32)
    assert np.abs(fast_exp(y) / np.exp(y.astype(np.float64)) - 1.0).max() < 5e-6  # float32 rounding of y
    np.testing.assert_allclose(fast_exp([-500.0, 500.0]), [2.0**-60, 2.0**60], rtol=3e-7)


@pytest.mark.parametrize("size", [0.3, 1.0, 5.0, 1e4, 1e8, 1e15])
def test_log_rising_is_the_sum_of_logarithms(size):
    for x in (0, 1, 5, 12, 13, 200):
        exact = math.fsum(math.log(size + k) for k in range(x))
        assert mixture.log_rising(float(x), size) == pytest.approx(exact, rel=1e-10, abs=1e-10)


def test_digamma_matches_scipy():
    for x in (1e-3, 0.3, 1.0, 5.99, 6.0, 123.4):
        assert digamma(x) == pytest.approx(scipy_digamma(x), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("cv2", "inverse_size"), [(0.0, 0.2), (0.3, 0.0), (0.3, 0.2), (0.0, 2.0)])
@pytest.mark.parametrize("mu", [1e-6, 0.4, 9.0, 5000.0])
def test_healthy_log_pmf_is_negative_binomial_with_both_spreads(mu, cv2, inverse_size):
    out = np.empty(COUNTS.size)
    full = np.full(COUNTS.size, mu)
    mixture.healthy_log_pmf(COUNTS, LOG_FACTORIAL, full, np.full(COUNTS.size, cv2), inverse_size, out)
    size = 1.0 / (cv2 + inverse_size)
    np.testing.assert_allclose(out, stats.nbinom.logpmf(COUNTS, size, size / (size + mu)), rtol=1e-8)


def test_healthy_log_pmf_without_spread_is_poisson():
    out = np.empty(COUNTS.size)
    mixture.healthy_log_pmf(COUNTS, LOG_FACTORIAL, np.full(COUNTS.size, 3.5), np.zeros(COUNTS.size), 0.0, out)
    np.testing.assert_allclose(out, stats.poisson.logpmf(COUNTS, 3.5), rtol=1e-12)


def test_healthy_log_pmf_is_continuous_where_poisson_takes_over():
    values = []
    for inverse_size in (0.9e-9, 1.1e-9):
        out = np.empty(COUNTS.size)
        mixture.healthy_log_pmf(
            COUNTS, LOG_FACTORIAL, np.full(COUNTS.size, 40.0), np.zeros(COUNTS.size), inverse_size, out
        )
        values.append(out)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-6)


@pytest.mark.parametrize("s", [1.0, 2.5, 1e12])
def test_anomalous_log_pmf_and_its_slope_in_alpha(s):
    means = np.full(COUNTS.size, 8.0)

    def terms(alpha):
        log_pmf, slope = np.empty(COUNTS.size), np.empty(COUNTS.size)
        mixture.gamma_exposure_terms(COUNTS, LOG_FACTORIAL, means, alpha, s, log_pmf, slope)
        return log_pmf, slope

    log_pmf, slope = terms(0.3)
    exact = stats.poisson.logpmf(COUNTS, 2.4) if s > 1e9 else stats.nbinom.logpmf(COUNTS, s, s / (s + 2.4))
    np.testing.assert_allclose(log_pmf, exact, rtol=1e-8)
    h = 1e-6
    np.testing.assert_allclose(slope, (terms(0.3 + h)[0] - terms(0.3 - h)[0]) / (2 * h), rtol=1e-5, atol=1e-6)


def mixture_case():
    rng = np.random.default_rng(3)
    counts = rng.poisson(4.0, 40).astype(np.float64)
    return counts, gammaln(counts + 1.0), rng.gamma(3.0, 2.0, 40), np.full(40, 0.05)


def test_mixture_scores_match_finite_differences_and_outer_products():
    counts, log_factorial, means, cv2 = mixture_case()
    weight = np.ones(40)
    weight[5] = 0.0

    def parts(alpha, inverse_size):
        healthy, anomalous, slope = np.empty(40), np.empty(40), np.empty(40)
        mixture.healthy_log_pmf(counts, log_factorial, means, cv2, inverse_size, healthy)
        mixture.gamma_exposure_terms(counts, log_factorial, means, alpha, 1.0, anomalous, slope)
        return healthy, anomalous, slope

    def total(alpha, rate, inverse_size):
        healthy, anomalous, _ = parts(alpha, inverse_size)
        normal = (1.0 - rate) * clear
        return weight * np.logaddexp(np.log(normal) + healthy, np.log1p(-normal) + anomalous)

    clear = np.where(np.arange(40) % 3 == 0, 0.25, 1.0)  # every third pair's store has a rate of its own

    h = 1e-6
    at = (0.3, 0.15, 0.2)
    per_entry = np.array(
        [
            (total(*(np.array(at) + h * np.eye(3)[k])) - total(*(np.array(at) - h * np.eye(3)[k]))) / (2 * h)
            for k in range(3)
        ]
    )
    healthy, anomalous, slope = parts(at[0], at[2])
    slope_healthy = (parts(at[0], at[2] + h)[0] - parts(at[0], at[2] - h)[0]) / (2 * h)
    value, gradient, outer = mixture.mixture_scores(
        healthy, slope_healthy, anomalous, slope, weight, clear, at[1]
    )
    assert value == pytest.approx(total(*at).sum(), rel=1e-12)
    np.testing.assert_allclose(gradient, per_entry.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(outer, per_entry @ per_entry.T, rtol=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    log_healthy=st.floats(-1e6, 0.0),
    log_anomalous=st.floats(-1e6, 0.0),
    rate=st.floats(0.0, 0.4),
)
def test_healthy_share_is_a_probability_and_never_nan(log_healthy, log_anomalous, rate):
    out, score = np.empty(1), np.empty(1)
    mixture.healthy_share(np.array([log_healthy]), np.array([log_anomalous]), np.ones(1), rate, out, score)
    assert 0.0 <= out[0] <= 1.0
    assert math.isfinite(score[0])


def test_healthy_share_is_bayes_rule():
    out, scores = np.empty(2), np.empty(2)
    parts = np.log([0.2, 0.01]), np.log([0.1, 0.3])
    mixture.healthy_share(*parts, np.ones(2), 0.25, out, scores)
    np.testing.assert_allclose(out, [0.15 / 0.175, 0.0075 / 0.0825])
    np.testing.assert_allclose(scores, np.log([0.175, 0.0825]))
    # spared by its store with probability 0.2: healthy with 0.75 x 0.2 = 0.15
    mixture.healthy_share(*parts, np.array([0.2, 1.0]), 0.25, out, scores)
    np.testing.assert_allclose(out, [0.03 / (0.03 + 0.085), 0.0075 / 0.0825])


@pytest.mark.parametrize(("x", "mu"), [(0.0, 6.0), (2.0, 6.0), (9.0, 6.0)])
def test_exposure_weights_are_posterior_means_of_the_exposure(x, mu):
    """tau by quadrature over the exposure: prior Gamma, likelihood Poisson(E mu)."""
    exposure = np.linspace(1e-6, 12.0, 400_001)

    def posterior_mean(shape, mean):
        weight = stats.gamma.pdf(exposure, shape, scale=mean / shape) * stats.poisson.pmf(x, exposure * mu)
        return (weight * exposure).sum() / weight.sum()

    f, level, alpha, s, s0 = 0.7, 3.0, 0.3, 1.5, 4.0
    out = np.empty(1)
    mixture.gamma_exposure_weights(
        np.array([x]), np.array([mu]), np.array([f]), alpha, s, 1.0 / s0, np.array([level]), out
    )
    expected = level * (f * posterior_mean(s0, 1.0) + (1.0 - f) * posterior_mean(s, alpha))
    assert out[0] == pytest.approx(expected, rel=1e-4)


def test_exposure_weights_of_the_limits_are_one_alpha_and_zero():
    def weight(healthy, s, alpha):
        out = np.empty(1)
        one = np.ones(1)
        mixture.gamma_exposure_weights(5 * one, 3 * one, healthy * one, alpha, s, 0.0, 2 * one, out)
        return out[0]

    assert weight(1.0, 1.0, 0.3) == 2.0  # healthy Poisson: exposure 1, times level 2
    assert weight(0.0, 1e12, 0.3) == pytest.approx(0.6)  # thinning: alpha
    assert weight(0.0, 0.0, 0.0) == 0.0  # no sales


@pytest.mark.parametrize(
    ("name", "model", "alpha"),
    [
        ("exponential", ExponentialOnset(), 0.3),
        ("thinning", Thinning(), 0.3),
        ("uniform", UniformOneSided(), 0.3),
        ("uniform_onset", UniformOnset(), 0.5),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_anomaly_model_by_its_likelihood_alone_agrees_with_the_compiled_family(name, model, alpha):
    data = Observations.of(SalesMatrix.from_dense(np.array([[0, 1, 4], [9, 2, 6]])))
    means = np.array([2.0, 5.0, 7.0, 9.0, 3.0, 4.0])
    healthy = np.full(6, 0.4)
    compiled, generic = exposure_family(name), MixedPoisson(model)
    mine, theirs = compiled.terms(data, means, alpha), generic.terms(data, means, alpha)
    np.testing.assert_allclose(theirs[0], mine[0], rtol=1e-9, atol=1e-9)
    if compiled.alpha_free:
        np.testing.assert_allclose(theirs[1], mine[1], rtol=2e-3, atol=2e-3)
    expected = compiled.weights(data, means, healthy, alpha, 0.1)
    uncapped = expected < 0.9  # the generic form limits the exposure of an anomaly
    assert uncapped.sum() >= 4
    np.testing.assert_allclose(
        generic.weights(data, means, healthy, alpha, 0.1)[uncapped], expected[uncapped], rtol=1e-6
    )


def test_a_named_family_is_compiled_and_an_object_is_not():
    assert isinstance(exposure_family("exponential"), GammaExposure)
    assert isinstance(exposure_family("uniform"), UniformExposure)
    assert exposure_family("uniform_onset").alpha_bounds == (0.5, 0.5)
    assert isinstance(exposure_family(ExponentialOnset()), MixedPoisson)


FAMILIES = {
    "exponential": (GAMMA, 1.0),
    "gamma": (GAMMA, 3.0),
    "thinning": (THINNING, 1.0),
    "zero": (ZERO, 1.0),
    "uniform": (UNIFORM, 1.0),
}


class SmallPosterior:
    """Six by five with two pairs missing, a level, and both the exact density and the fast gradient."""

    def __init__(self, family, rank, axes=False):
        rng = np.random.default_rng(11)
        self.code, s = FAMILIES[family]
        counts = rng.poisson(3.0, (6, 5))
        counts[0, 0] = counts[2, 3] = 0
        observed = np.ones((6, 5), dtype=bool)
        observed[1, 4] = observed[5, 0] = False
        self.sales = SalesMatrix.from_dense(counts, observed)
        self.level = rng.uniform(0.5, 2.0, self.sales.n_observed)
        self.kinds, kind = np.unique(self.sales.counts.astype(np.float64), return_inverse=True)
        self.kind = kind.astype(np.int32)
        self.left = rng.gamma(4.0, 0.4, (6, rank))
        self.right = rng.gamma(4.0, 0.4, (5, rank)) / rank
        self.theta = np.array([4.0, 0.0 if self.code == ZERO else 0.35, 0.2, s])  # s0, alpha, p_A, s
        self.log_factorial = gammaln(self.sales.counts + 1.0)
        self.axes = axes
        self.spared = [np.ones(6), np.ones(5)]
        if axes:
            self.spared[0][2], self.spared[1][1] = 0.05, 0.5

    def tables(self, theta):
        exact = np.empty(self.kinds.size), np.empty(self.kinds.size)
        single = [np.zeros(self.kinds.size, np.float32) for _ in range(3)]
        theta_kernels.tables(self.kinds, *theta, self.code, *exact, *single)
        return exact, single

    def log_density(self, left, right, theta):
        exact, _ = self.tables(theta)
        out = [np.empty(self.sales.n_observed) for _ in range(3)]
        total = sampling.densities(
            self.sales.indptr,
            self.sales.cols,
            self.kind,
            self.kinds,
            self.level,
            self.log_factorial,
            left,
            right,
            *self.spared,
            *exact,
            *theta,
            self.code,
            *out,
        )
        return total, out

    def gradient(self):
        _, tables = self.tables(self.theta)
        by_factor = [np.ascontiguousarray(side.T, np.float32) for side in (self.left, self.right)]
        pulls = [np.full_like(side, np.nan) for side in by_factor]
        slopes = gradient(
            self.sales.indptr,
            self.sales.cols,
            self.kind,
            self.sales.counts.astype(np.float32),
            self.level.astype(np.float32),
            *by_factor,
            self.axes,
            *(spared.astype(np.float32) for spared in self.spared),
            *tables,
            uniform_table(self.kinds),
            *self.theta,
            self.code,
            *pulls,
        )
        return pulls, np.array(slopes)

    def differences(self, h=1e-6):
        """Central differences of the exact density in U, V and theta."""
        found = []
        for position, values in enumerate((self.left, self.right, self.theta)):
            slopes = np.zeros(values.shape)
            for index in np.ndindex(values.shape):
                ends = []
                for sign in (1.0, -1.0):
                    point = [self.left, self.right, self.theta]
                    point[position] = values.copy()
                    point[position][index] += sign * h
                    ends.append(self.log_density(*point)[0])
                slopes[index] = (ends[0] - ends[1]) / (2.0 * h)
            found.append(slopes)
        return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("rank", "axes"), [(1, False), (3, False), (4, True), (6, False)])
def test_gradient_kernel_matches_differences_of_the_exact_density(family, rank, axes):
    case = SmallPosterior(family, rank, axes)
    pulls, slopes = case.gradient()
    in_left, in_right, in_theta = case.differences()
    np.testing.assert_allclose(pulls[0].T, in_left, rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(pulls[1].T, in_right, rtol=2e-4, atol=2e-4)
    # alpha is not a parameter of "zero", nor s of any but the Gamma exposure
    free = {ZERO: [0, 2], GAMMA: [0, 1, 2, 3]}.get(case.code, [0, 1, 2])
    np.testing.assert_allclose(slopes[free], in_theta[free], rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("axes", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_exact_density_is_the_mixture_of_scipy(family, axes):
    case = SmallPosterior(family, 2, axes)
    s0, alpha, common, s = case.theta
    rate = 1.0 - (1.0 - common) * np.outer(*case.spared)[case.sales.rows, case.sales.cols]
    total, (means, f, entries) = case.log_density(case.left, case.right, case.theta)
    x = case.sales.counts
    mu = case.level * (case.left @ case.right.T)[case.sales.rows, case.sales.cols]
    healthy = stats.nbinom.pmf(x, s0, s0 / (s0 + mu))
    anomalous = {
        GAMMA: stats.nbinom.pmf(x, s, s / (s + alpha * mu)),
        THINNING: stats.poisson.pmf(x, alpha * mu),
        ZERO: (x == 0).astype(np.float64),
        UNIFORM: gammainc(x + 1.0, 2.0 * alpha * mu) / np.maximum(2.0 * alpha * mu, 1e-12),
    }[case.code]
    density = (1.0 - rate) * healthy + rate * anomalous
    np.testing.assert_allclose(means, mu, rtol=1e-12)
    np.testing.assert_allclose(entries, np.log(density), rtol=1e-9)
    np.testing.assert_allclose(f, (1.0 - rate) * healthy / density, rtol=1e-9)
    assert total == pytest.approx(np.log(density).sum())


@pytest.mark.parametrize("shape_free", [False, True])
def test_theta_prior_slope_matches_differences(shape_free):
    t, h, slope, unused = np.array([0.4, -1.1, 0.8, -0.3]), 1e-6, np.empty(4), np.empty(4)
    theta_kernels.theta_prior(t, shape_free, slope)
    for k in range(4):
        step = h * np.eye(4)[k]
        ends = [theta_kernels.theta_prior(at, shape_free, unused) for at in (t + step, t - step)]
        difference = ends[0] - ends[1]
        assert slope[k] == pytest.approx(difference / (2 * h), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("shape_free", [False, True])
def test_theta_prior_is_the_documented_density_with_its_jacobian(shape_free):
    """log s0 uniform; p(alpha) ~ (1 - alpha)^c; p(p_A) ~ exp(-PENALTY p_A) on (0, 0.4); c = 0.5, or 0.5 + 2 h
    with h = log s / log 200 ~ Beta(0.5, 0.5)."""

    def parameters(t):
        s0, alpha, rate = theta_kernels.theta_of(t, GAMMA)
        return np.array([math.log(s0), alpha, rate, math.log(theta_kernels.shape_of(t)) / math.log(200.0)])

    def documented(t, h=1e-6):
        _, alpha, rate, share = parameters(t)
        power = 0.5 + 2.0 * share if shape_free else 0.5
        value = stats.beta.logpdf(alpha, 1.0, 1.0 + power) - RATE_PENALTY * rate
        if shape_free:
            value += stats.beta.logpdf(share, 0.5, 0.5)
        for k in range(4 if shape_free else 3):
            step = h * np.eye(4)[k]
            value += math.log((parameters(t + step)[k] - parameters(t - step)[k]) / (2.0 * h))
        return value

    a, b = np.array([0.4, -1.1, 0.8, -1.5]), np.array([-1.0, 1.3, -2.0, 0.7])
    change = np.subtract(*(theta_kernels.theta_prior(t, shape_free, np.empty(4)) for t in (a, b)))
    assert change == pytest.approx(documented(a) - documented(b), rel=1e-6)


def test_prior_shape_is_drawn_by_its_likelihood():
    """V ~ Gamma(a, a), U ~ Gamma(a, b): with 4000 factors the draw is next to the truth, 4."""
    rng = np.random.default_rng(0)
    left, right = rng.gamma(4.0, 1.0 / 2.0, 2000), rng.gamma(4.0, 1.0 / 4.0, 2000)
    grid = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    logs = float(np.log(left).sum() + np.log(right).sum())
    for u in (0.01, 0.5, 0.99):
        assert theta_kernels.sample_prior_shape(u, grid, 2000, 2000, logs, float(right.sum()), 2.0) == 4.0


@pytest.mark.parametrize("log_b", [-9.0, -5.9, 0.03, 2.51, 4.9, 9.0])
def test_the_table_of_the_uniform_family_gives_back_the_curve(log_b):
    """Inside the table, below it (constant) and above it (straight): read as the gradient kernel reads it."""
    kinds = np.array([0.0, 3.0, 40.0])
    table = uniform_table(kinds).astype(np.float64)
    at = max((log_b - CURVE_START) * 16.0, 0.0)
    node = min(int(at), table.shape[1] - 2)
    u = at - node
    (v0, d0), (v1, d1) = table[:, node].T, table[:, node + 1].T
    gap = v1 - v0
    inside = v0 + u * (d0 + u * ((3 * gap - 2 * d0 - d1) + u * (d0 + d1 - 2 * gap)))
    found = v1 + (u - 1.0) * d1 if u > 1.0 else inside
    expected = [theta_kernels.uniform_curve(x, math.exp(log_b)) for x in kinds]
    np.testing.assert_allclose(found, expected, atol=4e-3, rtol=1e-4)
