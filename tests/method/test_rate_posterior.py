"""The posterior of p_A given all else, from likelihood ratios alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from ew_pipeline.method.sampler.rate_posterior import NEGLIGIBLE_RATE, likelihood_ratios, negligible_rate
from ew_pipeline.method.theta import RATE_CAP, RATE_PENALTY


def share(ratios, tilt=0.0):
    below, whole = negligible_rate(np.asarray(ratios, float), tilt)
    return below / whole


def exact(ratios, penalty):
    """By integrating the product over the entries itself."""
    ratios = np.asarray(ratios, float)

    def density(rate):
        return np.exp(np.log1p(rate * (ratios - 1.0)).sum() - penalty * rate)

    below = quad(density, 0.0, NEGLIGIBLE_RATE)[0]
    return below / (below + quad(density, NEGLIGIBLE_RATE, RATE_CAP, limit=200)[0])


@pytest.mark.parametrize("tilt", [0.0, 5.0])
def test_entries_that_say_nothing_leave_the_prior(tilt):
    penalty = RATE_PENALTY - tilt
    prior = np.expm1(-penalty * NEGLIGIBLE_RATE) / np.expm1(-penalty * RATE_CAP)
    assert share(np.ones(50), tilt) == pytest.approx(prior, rel=1e-3)


@pytest.mark.parametrize("tilt", [0.0, 5.0])
@given(
    logs=st.lists(st.floats(-3.0, 6.0), min_size=1, max_size=40),
    times=st.integers(1, 5),
)
def test_any_entries_as_by_integration(tilt, logs, times):
    ratios = np.repeat(np.exp(logs), times)
    assert share(ratios, tilt) == pytest.approx(exact(ratios, RATE_PENALTY - tilt), rel=0.02, abs=1e-6)


def test_healthy_entries_leave_no_anomalies_and_clear_ones_no_doubt():
    assert share(np.full(5000, 0.2)) > 0.99
    assert share(np.r_[np.full(900, 0.2), np.full(100, 50.0)]) < 1e-6


@pytest.mark.parametrize("healthy", [0.0, 1.0])
def test_what_is_certain_is_a_number(healthy):
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        found = share(likelihood_ratios(np.full(20, healthy), np.full(20, 0.9), 0.1))
    assert found == pytest.approx(exact(np.zeros(20), RATE_PENALTY) if healthy else 0.0, abs=1e-3)


def test_ratios_are_those_that_made_f():
    ratio, rate = np.array([0.1, 1.0, 30.0]), 0.07
    healthy = (1.0 - rate) / (1.0 - rate + rate * ratio)
    np.testing.assert_allclose(likelihood_ratios(healthy, np.full(3, 1.0 - rate), rate), ratio)


def test_the_rate_of_a_store_out_as_a_whole_is_given():
    """With q = (1 - p) c the chance to be healthy, the likelihood q + (1 - q) r is one of p again."""
    ratio, clear = np.array([0.1, 1.0, 30.0]), np.array([0.5, 0.9, 0.2])

    def likelihood(rate):
        q = (1.0 - rate) * clear
        return q + (1.0 - q) * ratio

    q = 0.93 * clear
    found = likelihood_ratios(q / likelihood(0.07), q, 0.07)
    for rate in (0.02, 0.3):
        np.testing.assert_allclose(1.0 + rate * (found - 1.0), likelihood(rate) / likelihood(0.0))
