"""The built-in anomaly models by value; what all models must keep is in tests/contracts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.anomalies import (
    BUILT_IN,
    ExponentialOnset,
    Thinning,
    UniformOneSided,
    Zero,
    anomaly_model,
    mean_scale,
)


def test_exponential_onset_with_mean_one_halves_at_every_count() -> None:
    # alpha M = 1: geometric with success probability 1/2.
    np.testing.assert_allclose(
        np.exp(ExponentialOnset().log_pmf([0, 1, 2, 3], 2.0, 0.5)), [1 / 2, 1 / 4, 1 / 8, 1 / 16]
    )


def test_alpha_of_the_exponential_onset_is_its_mean_not_its_rate() -> None:
    draws = ExponentialOnset().sample(np.full(20_000, 10.0), 0.2, np.random.default_rng(0))
    assert np.mean(draws) == pytest.approx(2.0, abs=0.1)


def test_thinning_is_poisson_of_the_thinned_rate() -> None:
    np.testing.assert_allclose(
        Thinning().log_pmf([0, 1, 5], [3.0, 4.0, 20.0], 0.25),
        stats.poisson.logpmf([0, 1, 5], [0.75, 1.0, 5.0]),
    )


def test_zero_allows_no_sale() -> None:
    assert Zero().log_pmf([0, 1], [5.0, 5.0], 0.0).tolist() == [0.0, -math.inf]
    assert Zero().sample([5.0, 9.0], 0.0, np.random.default_rng(0)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("count", "rate", "alpha"), [(0, 3.0, 0.3), (2, 3.0, 0.3), (5, 40.0, 0.1), (30, 40.0, 0.5)]
)
def test_uniform_is_the_poisson_averaged_over_the_onset(count: int, rate: float, alpha: float) -> None:
    mean, _ = integrate.quad(lambda e: stats.poisson.pmf(count, e * rate) / (2 * alpha), 0.0, 2 * alpha)
    assert UniformOneSided().log_pmf(count, rate, alpha) == pytest.approx(math.log(mean), rel=1e-9)


def test_uniform_keeps_its_digits_where_the_incomplete_gamma_function_underflows() -> None:
    # Leading term b^x e^-b / (x + 1)! with b = 1; the next is smaller by 1/(x + 2).
    x = 500.0
    leading = -1.0 - math.lgamma(x + 2.0) + math.log1p(1.0 / (x + 2.0))
    assert UniformOneSided().log_pmf(x, 1.0, 0.5) == pytest.approx(leading, rel=1e-8)


def test_uniform_is_continuous_where_it_changes_its_series() -> None:
    rates = np.array([20.0 - 1e-9, 20.0, 20.0 + 1e-9])  # b = 20 against x + 1 = 20
    values = UniformOneSided().log_pmf(19, rates, 0.5)
    assert np.ptp(values) < 1e-8


@pytest.mark.parametrize("name", ["exponential", "thinning", "uniform"])
def test_vanishing_alpha_and_vanishing_rate_leave_only_zero_sales(name: str) -> None:
    model = BUILT_IN[name]
    assert model.log_pmf([0, 3], 5.0, 0.0).tolist() == [0.0, -math.inf]
    assert model.log_pmf([0, 3], [-0.2, -0.2], 0.5).tolist() == [0.0, -math.inf]
    # x = 1 with alpha M -> 0: probability alpha M to first order.
    assert model.log_pmf(1, 1e-12, 0.5) == pytest.approx(math.log(0.5e-12), rel=1e-9)


def test_exponential_keeps_its_digits_at_a_large_mean() -> None:
    # x log(mu/(1+mu)) - log(1+mu) with mu = 1e9 and x = 1e9: -1 - log(1e9).
    assert ExponentialOnset().log_pmf(1e9, 1e9, 1.0) == pytest.approx(-1.0 - math.log(1e9), abs=1e-8)


def test_mean_scale_is_the_expected_share_of_sales_left() -> None:
    assert mean_scale(0.3, 0.1, ExponentialOnset()) == pytest.approx(0.93)
    assert mean_scale(0.0, 0.1, Zero()) == pytest.approx(0.9)


def test_models_are_found_by_name_and_objects_pass_through() -> None:
    assert anomaly_model("uniform") == UniformOneSided()
    mine = Thinning()
    assert anomaly_model(mine) is mine


def test_an_unknown_name_is_answered_with_the_choices() -> None:
    with pytest.raises(UsageError, match="'lognormal'") as caught:
        anomaly_model("lognormal")
    for name in ("exponential", "thinning", "zero", "uniform"):
        assert name in str(caught.value)


def test_an_object_that_is_no_model_is_told_what_it_lacks() -> None:
    with pytest.raises(UsageError, match="no name, alpha_bounds, log_pmf, mean_factor, sample"):
        anomaly_model(object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"pass Zero\(\)"):
        anomaly_model(Zero)  # type: ignore[arg-type]
