"""theta from bins: against the full likelihood, the truth, and what moves it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.large.binned import MOST_COUNTS, Grid, bin_counts
from ew_pipeline.method.large.theta import binned_theta, calibration, censored_terms, fit_binned
from ew_pipeline.method.noise import Poisson
from ew_pipeline.method.paper.likelihood import maximum_likelihood

EXPONENTIAL = exposure_family("exponential")


def counts_at(means, rng, rate=0.05, alpha=0.25, size=None):
    exposure = np.ones(means.size) if size is None else rng.gamma(size, 1.0 / size, means.size)
    hit = rng.random(means.size) < rate
    exposure[hit] = rng.exponential(alpha, hit.sum())
    return rng.poisson(exposure * means).astype(np.int32)


def binned(counts, means, cv2=None, classes=None, threads=1):
    means = means.astype(np.float32)
    cv2 = np.zeros_like(means) if cv2 is None else cv2.astype(np.float32)
    return bin_counts(counts, means, cv2, Grid.over(means, cv2, classes), threads)


@pytest.fixture(scope="module")
def known():
    rng = np.random.default_rng(4)
    means = rng.gamma(1.5, 4.0, 400_000) + 0.2
    return means, counts_at(means, rng)


@given(seed=st.integers(0, 1000), n=st.integers(1, 400), classes=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_every_entry_is_in_one_bin(seed, n, classes):
    rng = np.random.default_rng(seed)
    means, cv2 = rng.gamma(1.0, 30.0, n) + 1e-3, rng.uniform(0.0, 2.0, n)
    counts = rng.poisson(30.0 * means).astype(np.int32)
    bins = binned(counts, means, cv2, classes)
    assert bins.weights.sum() == n
    assert bins.sold.sum() == counts.sum()
    assert bins.weights.shape[2] <= MOST_COUNTS + 1
    spread = bins.cv2 - bins.grid.width**2 / 12.0
    assert (spread * bins.entries).sum() == pytest.approx(cv2.astype(np.float32).sum(), rel=1e-5, abs=1e-6)


def test_bins_do_not_depend_on_threads(known):
    means, counts = known
    cv2 = np.random.default_rng(0).uniform(0.0, 0.5, means.size)
    one, three = (binned(counts, means, cv2, threads=k) for k in (1, 3))
    np.testing.assert_array_equal(one.weights, three.weights)
    np.testing.assert_array_equal(one.cv2, three.cv2)


def test_theta_is_within_a_thousandth_of_the_full_likelihood(known):
    """Nothing censored, rates that estimate e(theta) M*: the sum over bins against that over all entries."""
    means, counts = known
    means = means * (1.0 - 0.05 * 0.75)
    bins = binned(counts, means)
    terms = censored_terms(bins, np.ones(bins.grid.shape), 4.0)
    scaled = fit_binned(terms, EXPONENTIAL, negative_binomial=False).parameters
    full = maximum_likelihood(
        counts,
        means,
        anomaly_model("exponential"),
        Poisson(),
        rates_are_scaled=True,
    )
    assert scaled.alpha == pytest.approx(full.alpha, abs=1e-3)
    assert scaled.anomaly_rate == pytest.approx(full.anomaly_rate, abs=1e-3)


@pytest.mark.parametrize("size", [None, 10.0])
def test_a_wrong_scale_of_the_predictions_does_not_move_theta(size):
    rng = np.random.default_rng(8)
    means = rng.gamma(1.5, 4.0, 400_000) + 0.2
    counts = counts_at(means, rng, size=size)
    found = []
    for bend in (0.0, 0.1):
        predicted = 0.9 * means ** (1.0 - bend)  # too low, and more so for fast movers
        bins = binned(counts, predicted)
        terms = censored_terms(bins, calibration(bins), 1.0)
        found.append(fit_binned(terms, EXPONENTIAL, negative_binomial=size is not None).parameters)
    for p in found:
        assert p.anomaly_rate == pytest.approx(0.05, rel=0.2)
        assert p.alpha == pytest.approx(0.25, abs=0.07)
    if size is not None:
        assert found[0].inverse_size == pytest.approx(0.1, rel=0.1)


def test_errors_of_the_predictions_are_not_taken_for_noise_or_anomalies():
    """Known answer: predictions a sixth off, as a national fit makes them, noise with s0 = 5."""
    rng = np.random.default_rng(12)
    predicted = rng.gamma(1.5, 4.0, 2_000_000) + 0.2
    cv2 = np.full(predicted.size, 0.03)
    means = predicted * np.maximum(rng.normal(1.0, np.sqrt(cv2)), 0.05)
    bins = binned(counts_at(means, rng, rate=0.04, size=5.0), predicted, cv2)
    terms = censored_terms(bins, calibration(bins), 1.0)
    p = fit_binned(terms, EXPONENTIAL, negative_binomial=True).parameters
    assert p.anomaly_rate == pytest.approx(0.04, rel=0.1)
    assert p.alpha == pytest.approx(0.25, abs=0.04)
    assert p.inverse_size == pytest.approx(0.2, rel=0.03)


def test_counts_far_above_their_mean_do_not_move_the_censored_theta():
    """A heavy upper tail: one count in two hundred is tripled. It moves theta less where it is censored."""
    rng = np.random.default_rng(9)
    means = rng.gamma(1.5, 4.0, 400_000) + 0.2
    counts = counts_at(means, rng, size=5.0)
    counts[rng.random(counts.size) < 0.005] *= 3
    bins = binned(counts, means)
    ratio = calibration(bins)
    near, far = (
        fit_binned(censored_terms(bins, ratio, c), EXPONENTIAL, negative_binomial=True).parameters
        for c in (1.0, 5.0)
    )
    assert abs(near.anomaly_rate - 0.05) < 0.025 < abs(far.anomaly_rate - 0.05)


def test_the_interval_holds_the_truth_and_grows_with_misfit(known):
    means, counts = known
    bins = binned(counts, means)
    ratio = calibration(bins)
    fit = fit_binned(censored_terms(bins, ratio, 1.0), EXPONENTIAL, negative_binomial=True)
    null = fit_binned(fit.terms, EXPONENTIAL, negative_binomial=True, anomalies=False, start=fit.parameters)
    gain = fit.top.log_likelihood - null.top.log_likelihood
    theta = binned_theta(bins, ratio, EXPONENTIAL, fit, gain)
    assert gain > 100.0
    assert theta.identified
    assert theta.anomaly_rate_interval[0] < 0.05 < theta.anomaly_rate_interval[1]
    assert theta.alpha_interval[0] < 0.25 < theta.alpha_interval[1]


def test_without_anomalies_the_null_model_is_as_good():
    rng = np.random.default_rng(10)
    means = rng.gamma(1.5, 4.0, 200_000) + 0.2
    counts = rng.poisson(means).astype(np.int32)
    bins = binned(counts, means)
    fit = fit_binned(censored_terms(bins, calibration(bins), 1.0), EXPONENTIAL, negative_binomial=False)
    null = fit_binned(fit.terms, EXPONENTIAL, negative_binomial=False, anomalies=False)
    assert fit.top.log_likelihood - null.top.log_likelihood < 4.0
