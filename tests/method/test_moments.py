from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.method.anomalies import ExponentialOnset, Zero, anomaly_model, mean_scale
from ew_pipeline.method.noise import NegativeBinomial
from ew_pipeline.method.paper.moments import match_moments


def simulate(family: str, alpha: float, rate: float, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts, and rates that carry the scale e(theta) as Step 1's do."""
    rng = np.random.default_rng(seed)
    model = anomaly_model(family)
    M = rng.gamma(2.0, 3.0, size=n)
    counts = np.where(rng.random(n) < rate, model.sample(M, alpha, rng), rng.poisson(M))
    return counts, M * mean_scale(alpha, rate, model)


def test_two_rates_two_moments_by_hand() -> None:
    """All rates are 2 and anomalies sell nothing: P(X = 0) = p + (1 - p) exp(-2 / (1 - p))."""
    p = 0.25
    zeros = round(10_000 * (p + (1 - p) * np.exp(-2 / (1 - p))))
    counts = np.where(np.arange(10_000) < zeros, 0, 3)
    estimate = match_moments(counts, np.full(10_000, 2.0), Zero())
    assert estimate.anomaly_rate == pytest.approx(p, abs=1e-4)
    assert estimate.at_bound == ()


@pytest.mark.parametrize(("family", "alpha", "rate"), [("exponential", 0.1, 0.2), ("thinning", 0.2, 0.25)])
def test_the_truth_is_found_from_many_entries(family: str, alpha: float, rate: float) -> None:
    counts, scaled = simulate(family, alpha, rate, 400_000)
    estimate = match_moments(counts, scaled, anomaly_model(family))
    assert estimate.alpha == pytest.approx(alpha, abs=0.03)
    assert estimate.anomaly_rate == pytest.approx(rate, abs=0.02)
    assert estimate.converged


def test_the_scale_of_the_rates_is_undone() -> None:
    """Rates that are already M*, taken for e(theta) M*, give a different theta."""
    counts, scaled = simulate("exponential", 0.1, 0.25, 100_000)
    wrong = match_moments(counts, scaled / mean_scale(0.1, 0.25, ExponentialOnset()), ExponentialOnset())
    right = match_moments(counts, scaled, ExponentialOnset())
    assert abs(right.anomaly_rate - 0.25) < 0.02 < abs(wrong.anomaly_rate - 0.25)


def test_more_moments_than_parameters_are_used() -> None:
    counts, scaled = simulate("exponential", 0.1, 0.2, 50_000)
    two, six = (match_moments(counts, scaled, ExponentialOnset(), T) for T in (2, 6))
    assert two.alpha != six.alpha
    assert six.alpha == pytest.approx(0.1, abs=0.06)


def test_other_noise_can_be_given() -> None:
    rng = np.random.default_rng(1)
    M = rng.gamma(2.0, 3.0, size=200_000)
    noise = NegativeBinomial(2.0)
    counts = np.where(rng.random(M.size) < 0.1, 0, noise.sample(M, rng))
    assert match_moments(counts, 0.9 * M, Zero(), noise=noise).anomaly_rate == pytest.approx(0.1, abs=0.01)
    assert match_moments(counts, 0.9 * M, Zero()).anomaly_rate > 0.15


def test_too_few_moments_and_fractions_are_refused() -> None:
    with pytest.raises(UsageError, match="1 moments cannot determine 2 parameters"):
        match_moments([1, 2], [1.0, 2.0], ExponentialOnset(), 1)
    with pytest.raises(DataError, match="whole counts"):
        match_moments([1.5, 2], [1.0, 2.0], ExponentialOnset())
