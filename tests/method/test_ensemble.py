"""Averaging over ranks: weights that are what they claim, and a diagnostic with known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler.chain import SamplerBudget
from ew_pipeline.method.sampler.ensemble import (
    NEGLIGIBLE_RATE,
    _hidden,
    _strength,
    _systematic,
    anomalies_exist,
    blend,
    doubted,
    sample_ensemble,
    split_r_hat,
    stacking_weights,
)
from ew_pipeline.method.selection import rank_path
from ew_pipeline.method.theta import RATE_CAP, RATE_PENALTY
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

SHORT = SamplerBudget(20, 30, 5, 4)


def objective(weights, log_densities, prior):
    stacked = np.log(np.asarray(weights) @ np.exp(log_densities))
    return stacked.sum() + prior * np.log(weights).sum()


def test_stacking_weights_maximise_their_objective():
    rng = np.random.default_rng(0)
    log_densities = rng.normal([[-1.0], [-1.2], [-2.5]], 1.0, (3, 60))
    prior = 5.0
    weights = np.array(stacking_weights(log_densities, prior))

    def loss(z):
        w = np.exp(z - z.max())
        return -objective(w / w.sum(), log_densities, prior)

    best = minimize(loss, np.zeros(3))
    expected = np.exp(best.x - best.x.max())
    np.testing.assert_allclose(weights, expected / expected.sum(), atol=1e-3)
    assert objective(weights, log_densities, prior) == pytest.approx(-best.fun, abs=1e-3)


def test_identical_models_share_the_weight_equally():
    densities = np.tile(np.random.default_rng(0).normal(size=50), (4, 1))
    np.testing.assert_allclose(stacking_weights(densities), 0.25)


def test_a_model_that_always_predicts_better_takes_what_the_prior_leaves():
    """100 entries, two models, 5 pseudo-entries each: 105 / 110."""
    densities = np.array([np.full(100, -1.0), np.full(100, -200.0)])
    assert stacking_weights(densities, 5.0) == pytest.approx([105 / 110, 5 / 110], abs=1e-4)


def test_impossible_densities_do_not_make_nan():
    densities = np.array([[-1.0, -5000.0, -2.0], [-3000.0, -1.0, -2.0]])
    weights = stacking_weights(densities)
    assert np.isfinite(weights).all()
    assert sum(weights) == pytest.approx(1.0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 10_000))
def test_stacking_weights_are_a_distribution(n_models, n_entries, seed):
    weights = stacking_weights(np.random.default_rng(seed).normal(0.0, 3.0, (n_models, n_entries)))
    assert min(weights) > 0.0
    assert sum(weights) == pytest.approx(1.0)


def test_r_hat_of_chains_of_one_law_is_one():
    rng = np.random.default_rng(0)
    assert split_r_hat([rng.normal(size=2000), rng.normal(size=2000)]) == pytest.approx(1.0, abs=0.01)


def test_r_hat_by_hand():
    """Halves (0, 2), (0, 2), (4, 6), (4, 6): W = 2, B/n = var(1, 1, 5, 5) = 16/3, so
    sqrt((2 / 2 + 16/3) / 2)."""
    chains = [np.array([0.0, 2.0, 0.0, 2.0]), np.array([4.0, 6.0, 4.0, 6.0])]
    assert split_r_hat(chains) == pytest.approx(np.sqrt((1.0 + 16.0 / 3.0) / 2.0))


def test_r_hat_sees_chains_apart_and_a_trend_within_one():
    rng = np.random.default_rng(0)
    assert split_r_hat([rng.normal(0.0, 1.0, 200), rng.normal(3.0, 1.0, 200)]) > 1.5
    trend = np.linspace(0.0, 5.0, 200) + rng.normal(0.0, 0.5, 200)
    assert split_r_hat([trend, trend.copy()]) > 1.5


def test_r_hat_of_a_constant_is_one():
    assert split_r_hat([np.zeros(30), np.zeros(30)]) == 1.0


def test_noise_is_strong_where_its_size_is_small():
    sizes = (np.inf, 5.0, 4.0, 2.5, 0.5)
    assert [_strength(size, (2.5, 4.0)) for size in sizes] == pytest.approx([0.0, 0.0, 0.0, 1.0, 1.0])
    assert _strength(np.sqrt(10.0), (2.5, 4.0)) == pytest.approx(0.5)


def ensemble(blind, ranks=(1, 2, 3), family="exponential", caution=1.0, n_threads=1, rate_tilt=0.0, **drawn):
    drawn = {"n": 20, "m": 20, "rank": 2, "mean": 10.0, "observed_share": 0.8, "anomaly_rate": 0.1, **drawn}
    instance = draw_instance(EnsembleSettings(**drawn), np.random.default_rng(0))
    data = Observations.of(instance.sales)
    law = exposure_family(family)
    rng = np.random.default_rng(0)
    path = rank_path(data, law, ranks, rng, negative_binomial=False)
    return data, sample_ensemble(
        data,
        law,
        path,
        rng,
        SHORT,
        blind=blind,
        caution=caution,
        n_threads=n_threads,
        rate_tilt=rate_tilt,
    )


@pytest.mark.parametrize("blind", [False, True])
def test_the_ensemble_covers_every_entry(blind):
    data, fit = ensemble(blind, alpha=0.2)
    assert fit.healthy_probability.shape == (data.counts.size,)
    assert np.isfinite(fit.healthy_probability).all()
    assert (fit.means > 0.0).all()
    assert sum(fit.weights.values()) == pytest.approx(1.0)
    assert (fit.held_out_curve is not None) == blind
    if blind:
        assert fit.held_out_curve.ranks == tuple(fit.weights)
    assert fit.caution == 1.0  # not asked for
    assert fit.r_hat >= 0.9


def test_anomalies_exist_as_far_as_the_posterior_of_the_rate_leaves_zero():
    """Savage-Dickey: even odds where the posterior is the prior, none where p_A = 0 holds all of it."""

    def prior(penalty):
        return np.expm1(-penalty * NEGLIGIBLE_RATE) / np.expm1(-penalty * RATE_CAP)

    own, flatter = prior(RATE_PENALTY), prior(3.0)
    assert anomalies_exist(own) == pytest.approx(0.5)
    assert anomalies_exist(0.0) == 1.0
    assert anomalies_exist(own, odds=0.5) == pytest.approx(1.0 / 3.0)
    assert anomalies_exist(1.0) == pytest.approx(own / (1.0 + own))
    assert anomalies_exist(flatter, penalty=3.0) == pytest.approx(0.5)
    assert anomalies_exist(flatter) > 0.6  # less next to zero than the prior it is compared with
    # where noise hides p_A, the ratio is not asked to halve what is believed anyway
    sizes = [anomalies_exist(own, size) for size in (100.0, 5.0, 3.2, 2.4, 1.0)]
    assert sizes[:2] == [anomalies_exist(own)] * 2
    assert sizes[1] < sizes[2] < sizes[3] == sizes[4]
    assert sizes[4] == pytest.approx(30.0 / 31.0)
    assert anomalies_exist(own, 1.0, odds=0.1) == sizes[4]
    assert anomalies_exist(own, 3.2, odds=0.1) < sizes[2]


def test_draws_are_chosen_in_proportion_to_their_weights():
    np.testing.assert_array_equal(_systematic(np.full(4, 0.25), 4), [0, 1, 2, 3])
    np.testing.assert_array_equal(_systematic(np.array([0.5, 0.0, 0.25, 0.25]), 8), [0, 0, 0, 0, 2, 2, 3, 3])
    np.testing.assert_array_equal(_systematic(np.full(5, 0.2), 1), [2])


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(1, 200), st.integers(0, 10_000))
def test_no_draw_is_chosen_more_or_less_often_than_its_weight_by_one(n_draws, count, seed):
    weights = np.random.default_rng(seed).random(n_draws)
    chosen = np.bincount(_systematic(weights, count), minlength=n_draws)
    assert chosen.sum() == count
    assert (np.abs(chosen - count * weights / weights.sum()) < 1.0 + 1e-6).all()


def test_a_doubted_f_has_smaller_odds_of_an_anomaly_and_certainty_stays():
    """Odds of 3 to 1 for an anomaly, halved: 1.5 to 1."""
    np.testing.assert_allclose(doubted(np.array([0.25, 0.5]), 0.5), [0.4, 2.0 / 3.0])
    np.testing.assert_array_equal(doubted(np.array([0.0, 1.0]), 0.2), [0.0, 1.0])
    f = np.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(doubted(f, 1.0), f)


@pytest.mark.parametrize(
    ("size", "rates", "hidden"),
    [
        (2.0, (0.05, 0.35), 1.0),  # strong noise, and p_A may be anything
        (2.0, (0.20, 0.30), 0.0),  # strong noise, but p_A is known
        (5.0, (0.05, 0.35), 0.0),  # weaker noise
        (2.0, (0.05, 0.21), 0.5),
        (2.0, (0.13, 0.38), 0.0),  # strong noise, but p_A is surely not small
        (2.0, (0.105, 0.35), 0.5),
    ],
)
def test_noise_hides_anomalies_where_it_is_strong_and_their_number_is_unknown(size, rates, hidden):
    draws = np.repeat(rates, 100)
    assert _hidden(draws, np.full(200, size)) == pytest.approx(hidden)


@pytest.mark.parametrize(("strong", "hidden"), [(60, 1.0), (40, 0.0)])
def test_noise_that_may_well_be_strong_hides_anomalies(strong, hidden):
    """By the lower quartile of s0, of 200 draws."""
    sizes = np.repeat([2.0, 6.0], [strong, 200 - strong])
    assert _hidden(np.repeat([0.05, 0.35], 100), sizes) == hidden


def test_caution_doubts_the_same_draws():
    _, plain = ensemble(False, ranks=(2,), alpha=0.2)
    _, few = ensemble(False, ranks=(2,), alpha=0.2, caution=0.3)
    assert (plain.caution, few.caution) == (1.0, 0.3)
    np.testing.assert_allclose(few.healthy_probability, doubted(plain.healthy_probability, 0.3))
    np.testing.assert_array_equal(few.rate_draws, plain.rate_draws)


def test_a_flatter_prior_of_the_rate_is_said_and_finds_more():
    _, own = ensemble(False, ranks=(2,), alpha=0.6, mean=3.0)
    _, flatter = ensemble(False, ranks=(2,), alpha=0.6, mean=3.0, rate_tilt=5.0)
    assert (own.rate_penalty, flatter.rate_penalty) == (RATE_PENALTY, RATE_PENALTY - 5.0)
    assert flatter.healthy_probability.mean() < own.healthy_probability.mean()
    assert flatter.rate_draws.mean() > own.rate_draws.mean()


def test_sampled_data_without_anomalies_speak_for_none_and_clear_ones_for_them():
    _, clear = ensemble(False, ranks=(2,), alpha=0.05, mean=20.0)
    _, healthy = ensemble(False, ranks=(2,), anomaly_rate=0.0, mean=20.0, n=40, m=40)
    assert anomalies_exist(clear.negligible) > 0.99
    assert anomalies_exist(healthy.negligible) < 0.3


def test_a_blend_is_the_weighted_average_of_two_families():
    data, first = ensemble(False, ranks=(2,), alpha=0.2)
    _, second = ensemble(False, ranks=(2,), alpha=0.2, family="uniform_onset")
    both = blend(first, second, 0.25)
    expected = 0.75 * first.healthy_probability + 0.25 * second.healthy_probability
    np.testing.assert_allclose(both.healthy_probability, expected)
    np.testing.assert_allclose(both.means, 0.75 * first.means + 0.25 * second.means)
    np.testing.assert_allclose(
        both.factors.rates_at(data.sales),
        0.75 * first.factors.rates_at(data.sales) + 0.25 * second.factors.rates_at(data.sales),
    )
    assert np.mean(both.alpha_draws == 0.5) == pytest.approx(0.25, abs=0.02)  # the uniform onset's alpha
    assert both.r_hat == max(first.r_hat, second.r_hat)


def test_the_number_of_threads_changes_nothing():
    _, one = ensemble(True, alpha=0.2)
    _, two = ensemble(True, alpha=0.2, n_threads=2)
    np.testing.assert_array_equal(one.healthy_probability, two.healthy_probability)
    np.testing.assert_array_equal(one.rate_draws, two.rate_draws)
    assert one.weights == two.weights


def test_the_mean_factors_are_the_posterior_mean_of_the_rates():
    """From a few kept draws, so only close to the mean over all of them."""
    data, fit = ensemble(False, ranks=(2,), alpha=0.2)
    ratio = fit.factors.rates_at(data.sales) / fit.means
    assert np.median(ratio) == pytest.approx(1.0, abs=0.05)
    assert np.quantile(np.abs(ratio - 1.0), 0.9) < 0.3
    assert fit.factors.left.shape[1] == 2 * 2 * SHORT.kept  # rank x chains x kept draws


def test_draws_are_pooled_by_weight():
    _, fit = ensemble(True, alpha=0.2)
    heaviest = max(fit.weights.values())
    # each chain gives round(4 w length) draws: all weights together about 4 x 2 chains x 30 draws
    assert fit.rate_draws.size == pytest.approx(240, abs=6)
    assert 0.0 < heaviest < 1.0
    assert fit.rate_draws.size == fit.alpha_draws.size == fit.size_draws.size == fit.shape_draws.size
