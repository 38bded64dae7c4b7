"""The thorough tier: noise and family are what the chains say, not what the exploration guessed."""

from dataclasses import replace

import numpy as np
import pytest

from ew_pipeline import EntrywiseDetector, SalesMatrix
from ew_pipeline.method.sampler import tier
from ew_pipeline.method.sampler.chain import SamplerBudget
from ew_pipeline.method.variational import tier as tiers
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

BUDGET = SamplerBudget(20, 30, 5, 4)


def planned(**settings):
    settings = {
        "n": 40,
        "m": 40,
        "rank": 1,
        "mean": 30.0,
        "observed_share": 1.0,
        "anomaly_rate": 0.15,
        **settings,
    }
    sales = draw_instance(EnsembleSettings(**settings), np.random.default_rng(0)).sales
    return EntrywiseDetector(budget=BUDGET)._plan(sales, None)


def test_anomalies_that_passed_for_overdispersion_are_found_by_the_chains():
    plan = planned(family="thinning", alpha=0.4)
    mistaken = tiers.explore(replace(plan, noise="negative_binomial"))
    assert mistaken.path.negative_binomial
    fit = tier.fit_thorough(plan, mistaken, BUDGET)
    assert fit.noise_ == "poisson"
    assert fit.anomaly_ == "thinning"
    assert fit.theta_.anomaly_rate == pytest.approx(0.15, abs=0.03)
    assert fit.diagnostics_["sampler_runs"] >= 2.0  # a glance, then the fit


def test_overdispersion_stays_overdispersion():
    plan = planned(noise="negative_binomial", dispersion_size=3.0, alpha=0.1)
    found = tiers.explore(plan)
    assert found.path.negative_binomial
    fit = tier.fit_thorough(plan, found, BUDGET)
    assert fit.noise_ == "negative_binomial"
    assert fit.dispersion_size_ == pytest.approx(3.0, rel=0.3)


def test_f_is_averaged_with_the_cavity_estimate_where_that_can_be_trusted(monkeypatch):
    """Everyone healthy by the cavity leaves the chains' share of the suspicion, in f and in M."""
    plan = planned(alpha=0.1)
    found = tiers.explore(plan)

    def fitted():
        return tier.fit_thorough(replace(plan, rng=np.random.default_rng(5)), found, BUDGET)

    average = tiers.average_restarts(plan, found)
    nothing = replace(average.best, left=np.zeros_like(average.best.left))
    cavity = replace(average, kept=(nothing,), healthy=np.ones(1600), means=np.zeros(1600))
    monkeypatch.setattr(tier, "average_restarts", lambda plan, found: cavity)
    fit = fitted()
    monkeypatch.setattr(tier, "CAVITY_WEIGHT", 0.0)
    alone = fitted()
    monkeypatch.undo()
    weight = fit.diagnostics_["weight_of_cavity"]
    assert 0.5 * tier.CAVITY_WEIGHT < weight <= tier.CAVITY_WEIGHT
    share = 1.0 - weight
    np.testing.assert_allclose(fit.anomaly_probability_, share * alone.anomaly_probability_)
    np.testing.assert_allclose(fit.expected_sales_, share * alone.expected_sales_)
    np.testing.assert_allclose(fit.factors_.dense(), share * alone.factors_.dense())


def test_the_cavity_estimate_has_as_much_of_a_say_as_noise_is_known_to_be_poisson(monkeypatch):
    """Chains a quarter of whose draws have next to Poisson noise leave it a quarter of its weight."""
    plan = planned(alpha=0.1)
    found = tiers.explore(plan)
    sampled = tier.sample_families(plan, found, BUDGET)
    sizes = np.where(np.arange(sampled.ensemble.size_draws.size) % 4 == 0, 1000.0, 20.0)
    doubtful = replace(sampled, ensemble=replace(sampled.ensemble, size_draws=sizes))
    monkeypatch.setattr(tier, "_settle_noise", lambda plan, found, budget: (plan, found, doubtful))
    fit = tier.fit_thorough(plan, found, BUDGET)
    assert fit.noise_ == "poisson"
    assert fit.diagnostics_["weight_of_cavity"] == pytest.approx(tier.CAVITY_WEIGHT / 4.0, rel=0.01)


def test_the_cavity_estimate_which_knows_no_uniform_onset_has_no_say_on_one(monkeypatch):
    plan = planned(alpha=0.1)
    found = tiers.explore(plan)
    sampled = replace(tier.sample_families(plan, found, BUDGET), onset_weight=1.0)
    monkeypatch.setattr(tier, "_settle_noise", lambda plan, found, budget: (plan, found, sampled))
    assert tier.fit_thorough(plan, found, BUDGET).diagnostics_["weight_of_cavity"] == 0.0


@pytest.mark.parametrize(("onset_weight", "noise"), [(0.9, "auto"), (0.1, "negative_binomial")])
def test_overdispersed_chains_go_to_the_path_for_noise_unless_they_favour_the_onset(
    monkeypatch, onset_weight, noise
):
    plan = planned(alpha=0.1)
    found = tiers.explore(plan)
    assert not found.path.negative_binomial
    sampled = tier.sample_families(plan, found, BUDGET)
    sizes = np.full_like(sampled.ensemble.size_draws, 20.0)
    noisy = replace(sampled, ensemble=replace(sampled.ensemble, size_draws=sizes), onset_weight=onset_weight)
    monkeypatch.setattr(tier, "sample_families", lambda plan, found, budget: noisy)
    settled, _, _ = tier._settle_noise(plan, found, BUDGET)
    assert settled.noise == noise


@pytest.mark.parametrize(
    "settings", [{"noise": "negative_binomial", "dispersion_size": 3.0}, {"observed_share": 0.1}]
)
def test_the_cavity_estimate_has_no_say_on_overdispersed_or_sparse_data(settings):
    plan = planned(alpha=0.1, **settings)
    fit = tier.fit_thorough(plan, tiers.explore(plan), BUDGET)
    assert fit.diagnostics_["weight_of_cavity"] == 0.0


@pytest.mark.parametrize(("size", "cautious"), [(1.5, True), (8.0, False)])
def test_f_is_taken_cautiously_where_noise_is_too_strong_to_know_the_rate(size, cautious):
    plan = planned(noise="negative_binomial", dispersion_size=size, alpha=0.5, mean=4.0, anomaly_rate=0.02)
    fit = tier.fit_thorough(plan, tiers.explore(plan), BUDGET)
    assert (fit.diagnostics_["caution"] < 1.0) == cautious


def test_f_is_taken_cautiously_where_data_are_few():
    """By how many pairs a line has of the twelve it needs."""
    plan = planned(observed_share=0.1)
    fit = tier.fit_thorough(plan, tiers.explore(plan), BUDGET)
    assert fit.diagnostics_["caution"] == pytest.approx(plan.sales.n_observed / 80 / 12.0)


def test_what_is_asked_for_is_not_settled_by_chains():
    plan = replace(planned(family="thinning", alpha=0.4), noise="negative_binomial", anomaly="exponential")
    fit = tier.fit_thorough(plan, tiers.explore(plan), BUDGET)
    assert fit.noise_ == "negative_binomial"
    assert fit.anomaly_ == "exponential"
    assert fit.diagnostics_["posterior_shape"] == 1.0


@pytest.mark.parametrize("family", ["exponential", "thinning"])
def test_the_shape_of_anomalies_is_learnt(family):
    plan = planned(family=family, alpha=0.4)
    found = tiers.explore(replace(plan, anomaly="exponential"))
    sampled = tier.sample_families(plan, found, BUDGET)
    assert sampled.family == family
    shape = np.median(sampled.ensemble.shape_draws)
    assert shape > tier.MIDDLE_SHAPE if family == "thinning" else shape < 2.0


def test_no_chain_is_spent_on_an_onset_that_is_out_of_the_question():
    plan = planned(alpha=0.9)
    found = tiers.explore(plan)
    assert found.family_scores["uniform_onset"] < found.family_scores["exponential"] + tier.ONSET_HOPELESS
    sampled = tier.sample_families(plan, found, BUDGET)
    assert sampled.onset_weight == 0.0
    assert sampled.ensemble.alpha_draws.max() != 0.5  # the onset's alpha


def test_widened_draws_keep_their_median_and_their_range():
    draws = np.random.default_rng(0).uniform(0.05, 0.2, 401)
    wide = tier._widened(draws, 0.0, 0.4, 1.5)
    assert np.median(wide) == pytest.approx(np.median(draws))
    assert np.ptp(wide) > np.ptp(draws)
    assert ((wide > 0.0) & (wide < 0.4)).all()
    np.testing.assert_allclose(tier._widened(draws, 0.0, 0.4, 1.0), draws)


def test_noise_around_a_level_from_history_is_not_questioned(monkeypatch):
    def questioned(plan):
        raise AssertionError(f"explored again with noise {plan.noise}")

    monkeypatch.setattr(tier, "explore", questioned)
    rng = np.random.default_rng(4)
    level = rng.gamma(3.0, 10.0, (40, 60))
    wrong = rng.random(level.shape) < 0.04
    demand = level * np.where(wrong, 0.2, 1.0) * rng.gamma(13.0, 1 / 13.0, level.shape)  # s0 = 13: mild
    fit = EntrywiseDetector("thorough", random_state=0).fit(
        SalesMatrix.from_dense(rng.poisson(demand)), level=level.ravel()
    )
    assert fit.noise_ == "negative_binomial"
    assert fit.converged_
    assert fit.theta_.anomaly_rate == pytest.approx(0.04, abs=0.02)
