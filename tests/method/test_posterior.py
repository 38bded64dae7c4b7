from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.anomalies import BUILT_IN, ExponentialOnset, Thinning, Zero
from ew_pipeline.method.noise import NegativeBinomial, NoiseModel, Poisson
from ew_pipeline.method.paper.posterior import (
    drop_probability,
    healthy_probability,
    ideal_healthy_probability,
)

families = st.sampled_from(sorted(BUILT_IN))
shares = st.floats(0.0, 1.0)


def test_two_cells_by_eye() -> None:
    """Rate 3, anomalies sell nothing, half of all pairs are anomalous: a zero is healthy with odds e^-3,
    a sale certainly."""
    f = healthy_probability([0, 2], [3.0, 3.0], 0.0, 0.5, Poisson(), Zero())
    np.testing.assert_allclose(f, [math.exp(-3) / (1 + math.exp(-3)), 1.0])


def test_bayes_with_the_exponential_onset_by_hand() -> None:
    """x = 1, M = 2, alpha = 1/2: Poisson 2 e^-2, geometric 1/4, prior 1/5."""
    healthy, anomalous = 0.8 * 2 * math.exp(-2), 0.2 * 0.25
    f = healthy_probability(1, 2.0, 0.5, 0.2, Poisson(), ExponentialOnset())
    assert float(f) == pytest.approx(healthy / (healthy + anomalous))


def test_f_points_at_healthy_and_not_the_other_way() -> None:
    """Swapping the roles of the two laws must swap the answer: f -> 1 - f."""

    class PoissonOfAlpha:
        def log_pmf(self, counts: object, rates: object) -> object:
            return Thinning().log_pmf(counts, rates, 0.3)  # type: ignore[arg-type]

    class HealthyAsAnomaly(Thinning):
        def log_pmf(self, counts: object, rates: object, alpha: float) -> object:  # type: ignore[override]
            return Poisson().log_pmf(counts, rates)  # type: ignore[arg-type]

    counts, rates = np.arange(12), np.full(12, 5.0)
    f = healthy_probability(counts, rates, 0.3, 0.2, Poisson(), Thinning())
    swapped = healthy_probability(counts, rates, 0.3, 0.8, PoissonOfAlpha(), HealthyAsAnomaly())  # type: ignore[arg-type]
    np.testing.assert_allclose(swapped, 1.0 - f, atol=1e-12)
    assert f[0] < 0.5 < f[-1]


@given(
    family=families,
    count=st.sampled_from([0, 1, 7, 10**4, 2**31 - 1]),
    rate=st.one_of(st.just(0.0), st.floats(-1.0, 1e9)),
    alpha=shares,
    prior=st.one_of(st.sampled_from([0.0, 1.0]), shares),
    size=st.one_of(st.floats(1e-3, 1e9), st.just(math.inf)),
)
def test_f_is_always_a_probability(
    family: str, count: int, rate: float, alpha: float, prior: float, size: float
) -> None:
    noise: NoiseModel = NegativeBinomial(np.array([size, size]))
    f = healthy_probability([count, count], rate, alpha, [prior, prior], noise, BUILT_IN[family])
    assert np.all((f >= 0.0) & (f <= 1.0))
    if prior in (0.0, 1.0):
        assert f.tolist() == [1.0 - prior] * 2


@given(alpha=st.floats(0.01, 0.99), rate=st.floats(0.01, 200.0), prior=st.floats(0.01, 0.99))
def test_more_sales_are_healthier_under_thinning(alpha: float, rate: float, prior: float) -> None:
    f = healthy_probability(np.arange(300), rate, alpha, prior, Poisson(), Thinning())
    assert np.all(np.diff(f) >= -1e-12)


@given(alpha=st.floats(0.01, 1.0), rate=st.floats(0.01, 200.0), prior=st.floats(0.01, 0.99))
def test_more_sales_are_healthier_under_exponential_onset_until_its_tail(
    alpha: float, rate: float, prior: float
) -> None:
    counts = np.arange(int(rate + 1 / alpha - 1) + 1)
    f = healthy_probability(counts, rate, alpha, prior, Poisson(), ExponentialOnset())
    assert np.all(np.diff(f) >= -1e-12)


def test_far_above_the_rate_the_long_tail_of_the_exponential_onset_takes_over() -> None:
    f = healthy_probability([10, 60], 10.0, 0.9, 0.1, Poisson(), ExponentialOnset())
    assert f[1] < 0.01 < 0.9 < f[0]


def test_a_rate_of_zero_is_the_limit_of_small_rates() -> None:
    zero, small = (
        healthy_probability([0, 1, 2], m, 0.5, 0.2, Poisson(), ExponentialOnset()) for m in (0.0, 1e-9)
    )
    np.testing.assert_allclose(zero, small, rtol=1e-6)
    assert zero[0] == pytest.approx(0.8)  # nothing expected, nothing sold: the prior
    # x = 1: the laws are M and alpha M, so the odds are 1/alpha times the prior's.
    assert zero[1] == pytest.approx(0.8 / (0.8 + 0.2 * 0.5))


def test_counts_impossible_under_both_laws_leave_the_prior() -> None:
    class OnlySevens(Poisson):
        def log_pmf(self, counts: object, rates: object) -> np.ndarray:  # type: ignore[override]
            return np.where(np.asarray(counts) == 7, 0.0, -np.inf)

    f = healthy_probability([7, 3, 0], 5.0, 0.0, 0.3, OnlySevens(), Zero())
    assert f.tolist() == [1.0, pytest.approx(0.7), 0.0]


def test_ideal_is_calibrated_when_it_knows_the_truth() -> None:
    rng = np.random.default_rng(0)
    M = rng.gamma(2.0, 3.0, size=200_000)
    anomalous = rng.random(M.size) < 0.2
    counts = np.where(anomalous, ExponentialOnset().sample(M, 0.3, rng), rng.poisson(M))
    f = ideal_healthy_probability(counts, M, 0.3, 0.2, Poisson(), ExponentialOnset())
    for low in np.arange(0.0, 1.0, 0.1):
        inside = (f >= low) & (f < low + 0.1)
        assert np.mean(~anomalous[inside]) == pytest.approx(f[inside].mean(), abs=0.03)


def test_results_are_read_only_and_rates_are_checked() -> None:
    f = healthy_probability([1, 2], 3.0, 0.5, 0.2, Poisson(), Thinning())
    with pytest.raises(ValueError, match="read-only"):
        f[0] = 0.0
    with pytest.raises(UsageError, match=r"outside \[0, 1\]"):
        healthy_probability([1], 3.0, 0.5, 1.2, Poisson(), Thinning())


def test_a_known_level_makes_the_drop_yes_or_no() -> None:
    # Half of 4 is 2: at 2 it is a drop, at 3 not; half or less of 3 is 1.
    assert drop_probability([2, 3, 1, 2], [4.0, 4.0, 3.0, 3.0], 0.0).tolist() == [1.0, 0.0, 1.0, 0.0]


def test_an_exponential_level_by_hand() -> None:
    # cv2 = 1 is the exponential distribution: P(level >= 4) = exp(-4 / 2).
    assert float(drop_probability(2, 2.0, 1.0)) == pytest.approx(math.exp(-2.0))
    assert float(drop_probability(2, 2.0, 1.0, drop_fraction=0.25)) == pytest.approx(math.exp(-4.0))


def test_no_sale_of_a_slow_pair_is_no_drop_and_the_rule_can_be_chosen() -> None:
    """A pair that sells once in ten weeks sold nothing this week. Nothing has happened."""
    means, cv2 = np.array([0.0, 0.1, 1.2, 30.0]), 0.05
    default = drop_probability(np.zeros(4), means, cv2)
    assert default[:2].max() < 1e-6
    assert default[2] > 0.7
    assert default[3] > 1 - 1e-9
    literal = drop_probability(np.zeros(4), means, cv2, zero_counts_as=0.0)
    assert literal.tolist() == [1.0, 1.0, 1.0, 1.0]
    any_sale_in_ten_weeks = drop_probability(np.zeros(2), [0.0, 0.3], cv2, zero_counts_as=0.05)
    assert any_sale_in_ten_weeks[0] == 0.0
    assert any_sale_in_ten_weeks[1] > 0.99


@given(
    mean=st.floats(0.0, 1e6),
    cv2=st.one_of(st.just(0.0), st.floats(0.0, 10.0)),
    fraction=st.floats(0.05, 1.0),
)
def test_drop_falls_with_the_count_and_rises_with_the_level(mean: float, cv2: float, fraction: float) -> None:
    counts = np.array([0, 1, 2, 5, 20, 1000, 2**31 - 1])
    p = drop_probability(counts, mean, cv2, fraction)
    assert np.all((p >= 0.0) & (p <= 1.0))
    assert np.all(np.diff(p) <= 1e-9)
    assert np.all(drop_probability(counts, 2 * mean + 0.1, cv2, fraction) >= p - 1e-9)


@pytest.mark.parametrize("wrong", [{"drop_fraction": 0.0}, {"drop_fraction": 1.5}, {"zero_counts_as": -1.0}])
def test_wrong_drop_arguments_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="drop_fraction"):
        drop_probability([1], [2.0], 0.1, **wrong)
    with pytest.raises(UsageError, match="coefficient of variation"):
        drop_probability([1], [2.0], -0.1)
