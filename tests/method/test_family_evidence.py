"""The Bayes factor of two anomaly families, where it is known otherwise."""

import math

import numpy as np
import pytest
from scipy import stats

from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler.chain import SamplerBudget, run_chain
from ew_pipeline.method.sampler.family_evidence import FamilyChains, bounds, log_bayes_factor
from ew_pipeline.method.sampler.state import CountTable
from ew_pipeline.method.variational.fit import fit_variational, start_factors
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

BUDGET = SamplerBudget(50, 120, 6, 16)


def drawn(family, **settings):
    settings = {
        "n": 40,
        "m": 30,
        "rank": 1,
        "mean": 12.0,
        "observed_share": 1.0,
        "anomaly_rate": 0.2,
        "family": family,
        **settings,
    }
    return Observations.of(draw_instance(EnsembleSettings(**settings), np.random.default_rng(3)).sales)


def sampled(data, name, *, any_shape=False, seed=0, overdispersed=True):
    family = exposure_family(name)
    family = family.any_shape if any_shape else family
    start = fit_variational(
        data, family, start_factors(data, 1, np.random.default_rng(1)), negative_binomial=False
    )
    table, rng = CountTable.of(data), np.random.default_rng(seed)
    chains = [
        run_chain(data, table, family, start, own, BUDGET, overdispersed=overdispersed)
        for own in rng.spawn(2)
    ]
    return FamilyChains(family, start, chains)


def savage_dickey(data):
    """Of alpha = 1/2 within E ~ U(0, 2 alpha): posterior over prior density there (Dickey 1971)."""
    wide = sampled(data, "uniform")
    alphas = np.concatenate([chain.alpha_draws for chain in wide.chains])
    return wide, math.log(stats.gaussian_kde(alphas)(0.5)[0] / (1.5 * math.sqrt(0.5)))


def test_a_family_within_another_has_the_ratio_of_densities_at_it():
    data = drawn("uniform_onset")
    wide, expected = savage_dickey(data)
    found = log_bayes_factor(data, wide, sampled(data, "uniform_onset"), np.random.default_rng(4))
    assert expected > 1.0
    assert found == pytest.approx(expected, abs=0.5)


def test_it_is_the_other_way_round_for_the_other_way_round():
    data = drawn("uniform_onset")
    first, second = sampled(data, "exponential", any_shape=True), sampled(data, "uniform_onset")
    there = log_bayes_factor(data, first, second, np.random.default_rng(4))
    back = log_bayes_factor(data, second, first, np.random.default_rng(5))
    assert there == pytest.approx(-back, abs=0.5)


def test_chains_of_one_family_are_as_good_as_each_other():
    data = drawn("exponential", alpha=0.3)
    one, other = (sampled(data, "exponential", any_shape=True, seed=seed) for seed in (0, 1))
    assert log_bayes_factor(data, one, other, np.random.default_rng(4)) == pytest.approx(0.0, abs=0.5)


@pytest.mark.parametrize("overdispersed", [True, False])
@pytest.mark.parametrize(("family", "onset"), [("uniform_onset", True), ("exponential", False)])
def test_the_family_that_the_sales_came_from_is_the_likelier(family, onset, overdispersed):
    data = drawn(family, mean=30.0, alpha=0.3)
    first = sampled(data, "exponential", any_shape=True, overdispersed=overdispersed)
    second = sampled(data, "uniform_onset", overdispersed=overdispersed)
    lower, upper = bounds(data, first, second, np.random.default_rng(4))
    assert (lower > 1.0) if onset else (upper < -1.0)
    assert lower < upper + 0.5
