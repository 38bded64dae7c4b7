"""Long moves of theta: they leave the mean of sales alone, and reach hills that trajectories do not."""

from dataclasses import replace

import numpy as np
import pytest

from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler import leaps as theta_leaps
from ew_pipeline.method.sampler._theta_kernels import theta_prior
from ew_pipeline.method.sampler.chain import SamplerBudget, run_chain
from ew_pipeline.method.sampler.leaps import ThetaLeaps
from ew_pipeline.method.sampler.state import CountTable, SamplerState
from ew_pipeline.method.variational.fit import fit_variational, start_factors
from ew_pipeline.method.variational.theta import Parameters
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

NB = {"noise": "negative_binomial", "dispersion_size": 5.0}


def observations(seed=0, **settings):
    settings = {"n": 40, "m": 40, "rank": 1, "mean": 4.0, "observed_share": 1.0, **NB, **settings}
    return Observations.of(draw_instance(EnsembleSettings(**settings), np.random.default_rng(seed)).sales)


def variational(data, family="exponential"):
    start = start_factors(data, 1, np.random.default_rng(1))
    return fit_variational(data, exposure_family(family), start, negative_binomial=True)


def state_of(data, family="exponential"):
    state = SamplerState(data, CountTable.of(data), exposure_family(family), variational(data, family))
    current = [np.empty(data.counts.size) for _ in range(3)]
    state.densities(current)
    return state, current


@pytest.mark.parametrize("family", ["exponential", "thinning", "zero", "uniform"])
def test_bands_judge_theta_as_all_entries_do(family):
    """Differences of the log posterior between values of theta, M moving along, to a third of a nat."""
    data = observations(anomaly_rate=0.2, alpha=0.3)
    state, current = state_of(data, family)
    positions = state.t + np.random.default_rng(0).normal(0.0, 0.5, (8, 4)) * [1.0, 1.0, 1.0, 0.0]
    banded = theta_leaps._Given(state, current[0]).log_posteriors(positions)
    exact = []
    for t in positions:
        theta_leaps._move(state, t)
        exact.append(state.densities(current) + theta_prior(t, False, np.empty(4)))
    assert np.ptp(exact) > 20.0
    np.testing.assert_allclose(banded - banded[0], np.array(exact) - exact[0], atol=0.3)


def test_a_leap_leaves_the_mean_of_sales_and_the_prior_of_the_factors():
    data = observations(anomaly_rate=0.2, alpha=0.3)
    state, current = state_of(data)

    def standing():
        state.densities(current)
        e = 1.0 - state.rate * (1.0 - state.alpha)
        return current[0] * e, state.prior_rate * state.factors[0].sum()

    before = standing()
    theta_leaps._move(state, state.t + np.array([0.1, -0.5, 0.8, 0.0]))
    after = standing()
    assert state.rate > 0.2
    np.testing.assert_allclose(after[0], before[0], rtol=1e-9)
    assert after[1] == pytest.approx(before[1], rel=1e-9)


def test_a_hill_that_trajectories_do_not_reach_is_reached(monkeypatch):
    """Many anomalies that keep most of their sales, from a start with few and stronger noise."""
    data = observations(seed=5, n=70, m=70, anomaly_rate=0.25, alpha=0.9)
    start = replace(variational(data), parameters=Parameters(0.1, 0.01, 1.0 / 3.0))

    def rates():
        table, family = CountTable.of(data), exposure_family("exponential")
        budget = SamplerBudget(40, 20, 6, 4)
        return run_chain(data, table, family, start, np.random.default_rng(0), budget).rate_draws

    leaping = rates()
    monkeypatch.setattr(ThetaLeaps, "leap", lambda *given: None)
    walking = rates()
    assert np.median(leaping) == pytest.approx(0.25, abs=0.08)
    assert np.median(walking) < 0.1


def test_beside_the_grid_nothing_is_moved():
    data = observations(anomaly_rate=0.2, alpha=0.3)
    state, current = state_of(data)
    leaps = ThetaLeaps(state, current[0])
    state.t[2] = theta_leaps.RATE_RANGE[1] + 0.5
    before = state.t.copy()
    trial = [np.empty_like(values) for values in current]
    assert leaps.leap(state, current, trial, np.random.default_rng(0)) is None
    np.testing.assert_array_equal(state.t, before)
