"""The reference that knows the ensemble: what its draws are weighted by, and what they say."""

from dataclasses import replace

import numpy as np
import pytest

from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler.chain import SamplerBudget, run_chain
from ew_pipeline.method.sampler.state import CountTable
from ew_pipeline.method.selection import rank_path
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance
from ew_pipeline.studies.experiments.near_bayes import ensemble_weights, near_bayes, weighted_sums

THINNED = EnsembleSettings(
    n=30, m=25, rank=2, mean=6.0, observed_share=0.9, family="thinning", alpha=0.2, anomaly_rate=0.2
)


def short_chain(settings):
    drawn = draw_instance(settings, np.random.default_rng(3))
    data, family, rng = (
        Observations.of(drawn.sales),
        exposure_family(settings.family),
        np.random.default_rng(4),
    )
    noisy = settings.noise == "negative_binomial"
    start = rank_path(data, family, (settings.rank,), rng, negative_binomial=noisy).best
    budget = SamplerBudget(warm_up=10, draws=20, leapfrog=4, kept=20)
    return drawn, run_chain(data, CountTable.of(data), family, start, rng, budget, overdispersed=noisy)


@pytest.mark.parametrize(
    "settings",
    [
        THINNED,
        replace(THINNED, family="exponential", noise="negative_binomial", dispersion_size=5.0),
        replace(THINNED, family="uniform_onset", alpha=None),
    ],
    ids=["thinning", "overdispersed", "onset"],
)
def test_with_equal_weights_the_draws_say_what_the_chain_says(settings):
    drawn, chain = short_chain(settings)
    draws = len(chain.rate_draws)
    healthy, rates = weighted_sums(drawn, anomaly_model(settings.family), chain, np.ones(draws))
    np.testing.assert_allclose(healthy / draws, chain.healthy_probability, atol=0.01)  # Poisson: s0 = 2000
    np.testing.assert_allclose((rates / draws)[drawn.sales.rows, drawn.sales.cols], chain.means, rtol=1e-4)


def test_draws_of_rates_the_ensemble_does_not_have_count_nothing_and_rare_ones_more():
    _, chain = short_chain(THINNED)
    chain = replace(chain, rate_draws=np.array([0.05, 0.15, 0.35]), alpha_draws=np.array([0.0, 0.0, 0.0]))
    weights = ensemble_weights(chain)
    assert weights[2] == 0.0
    assert weights[1] / weights[0] == pytest.approx(
        np.exp(8 * 0.1)
    )  # the prior it is freed from: exp(-8 p_A)
    high = replace(chain, rate_draws=np.array([0.31, 0.35, 0.39]))
    np.testing.assert_array_equal(ensemble_weights(high) > 0, [True, False, False])


def test_it_finds_thinned_sales_and_gives_m_of_every_pair():
    drawn = draw_instance(THINNED, np.random.default_rng(5))
    healthy, rates = near_bayes(drawn, 1)
    assert healthy.shape == (drawn.sales.n_observed,)
    assert rates.shape == drawn.sales.shape
    truth = drawn.truth
    assert np.abs(healthy - truth.healthy_probability).mean() < 0.06  # of all healthy: 0.2
    assert abs(rates.mean() / truth.rates.mean() - 1.0) < 0.1


def test_told_of_thinning_it_flags_healthy_sales_too():
    """Pairs that keep nearly all their sales look healthy: who counts on such anomalies flags both."""
    exponential = replace(THINNED, family="exponential", anomaly_rate=0.0)
    healthy_week = draw_instance(exponential, np.random.default_rng(5))
    healthy, _ = near_bayes(healthy_week, 1, "thinning")
    own, _ = near_bayes(healthy_week, 1)
    assert (1.0 - healthy).mean() > 2.0 * (1.0 - own).mean()
