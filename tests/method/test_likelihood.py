"""Step 2 by maximum likelihood, and its intervals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.mixtures import coverage, problem_of, simulate

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.method._grouping import group_entries
from ew_pipeline.method.anomalies import ExponentialOnset, Thinning, Zero, anomaly_model, mean_scale
from ew_pipeline.method.intervals import information_interval, profile_interval, theta_from_draws, to_theta
from ew_pipeline.method.noise import NegativeBinomial, Poisson
from ew_pipeline.method.paper import likelihood
from ew_pipeline.method.paper._scoring import from_unbounded, to_unbounded
from ew_pipeline.method.paper.likelihood import MixtureProblem, ThetaEstimate, maximise, maximum_likelihood


def test_log_likelihood_of_two_cells_by_hand() -> None:
    """Rate 2, anomalies sell nothing, p = 1/4: log(1/4 + 3/4 e^-2) and log(3/4 * 2 e^-2)."""
    cells = MixtureProblem(np.array([0.0, 1.0]), np.full(2, 2.0), Zero(), Poisson(), rates_are_scaled=False)
    by_hand = math.log(0.25 + 0.75 * math.exp(-2)) + math.log(1.5 * math.exp(-2))
    assert cells.log_likelihood(0.0, 0.25) == pytest.approx(by_hand)


def test_without_anomalies_it_is_the_likelihood_of_the_noise() -> None:
    problem = problem_of()
    of_noise = float(np.sum(Poisson().log_pmf(problem.counts, problem.rates)))
    assert problem.log_likelihood(0.3, 0.0) == pytest.approx(of_noise)


def test_a_sale_at_a_zero_rate_costs_a_constant_and_not_the_whole_fit() -> None:
    counts, M = simulate()
    clean = maximum_likelihood(counts, M, ExponentialOnset(), Poisson(), rates_are_scaled=False)
    spoilt = maximum_likelihood(
        np.append(counts, 3.0), np.append(M, 0.0), ExponentialOnset(), Poisson(), rates_are_scaled=False
    )
    assert spoilt.alpha == pytest.approx(clean.alpha, abs=1e-3)
    assert math.isfinite(spoilt.log_likelihood)


@pytest.mark.parametrize(
    ("family", "alpha", "rate", "size"),
    [
        ("exponential", 0.3, 0.15, math.inf),
        ("exponential", 0.1, 0.05, 5.0),
        ("thinning", 0.4, 0.2, math.inf),
        ("uniform", 0.2, 0.1, math.inf),
        ("zero", 0.0, 0.1, 5.0),
    ],
)
@pytest.mark.parametrize("scaled", [False, True])
def test_the_truth_is_found_from_many_entries(
    family: str, alpha: float, rate: float, size: float, scaled: bool
) -> None:
    noise = NegativeBinomial(size)
    counts, M = simulate(family, alpha, rate, 60_000, noise=noise)
    model = anomaly_model(family)
    rates = M * mean_scale(alpha, rate, model) if scaled else M
    estimate = maximum_likelihood(counts, rates, model, noise, rates_are_scaled=scaled)
    assert estimate.alpha == pytest.approx(alpha, abs=0.03)
    assert estimate.anomaly_rate == pytest.approx(rate, abs=0.01)
    assert estimate.converged
    assert estimate.at_bound == ()
    assert estimate.log_likelihood > estimate.log_likelihood_null + 100


@settings(deadline=None, max_examples=15)
@given(
    family=st.sampled_from(["exponential", "thinning", "uniform"]),
    alpha=st.floats(0.05, 0.95),
    rate=st.floats(0.005, 0.35),
    seed=st.integers(0, 1000),
)
@example(family="exponential", alpha=0.05078125, rate=0.0078125, seed=0)  # a second top at alpha = 0
@example(family="thinning", alpha=0.7504234034917354, rate=0.027212247172787505, seed=166)  # a ridge
@example(family="uniform", alpha=0.37859915142034567, rate=0.04139587145172918, seed=27)  # two tops
def test_no_point_of_a_grid_is_more_likely_than_the_estimate(
    family: str, alpha: float, rate: float, seed: int
) -> None:
    problem = problem_of(family, alpha=alpha, rate=rate, seed=seed, n=800)
    top = maximise(problem).log_likelihood
    for a in np.linspace(0.001, 1.0, 15):
        for p in np.geomspace(1e-4, 0.4, 12):
            assert problem.log_likelihood(a, p) < top + 0.05


def test_sizes_per_entry_are_used() -> None:
    rng = np.random.default_rng(3)
    M = rng.gamma(2.0, 4.0, size=6000)
    noise = NegativeBinomial(np.where(np.arange(6000) % 2 == 0, 1.0, math.inf))
    counts = np.where(rng.random(6000) < 0.1, 0, noise.sample(M, rng))
    per_entry = maximum_likelihood(counts, M, Zero(), noise, rates_are_scaled=False)
    pooled = maximum_likelihood(counts, M, Zero(), Poisson(), rates_are_scaled=False)
    assert per_entry.anomaly_rate == pytest.approx(0.1, abs=0.015)
    assert pooled.anomaly_rate > 0.12


def test_healthy_sales_leave_the_rate_on_its_lower_bound_or_the_null_unbeaten() -> None:
    for seed in range(10):
        problem = problem_of("thinning", rate=0.0, seed=seed, n=1000)
        estimate = maximise(problem)
        verdict = to_theta(estimate, information_interval(problem, estimate))
        assert estimate.log_likelihood > estimate.log_likelihood_null - 0.01
        assert verdict.at_bound or not verdict.identified


def test_where_nothing_is_gained_the_answer_is_no_anomalies() -> None:
    """Thinning with alpha = 1 is no anomaly at all: any rate of it fits as well as none."""
    estimate = maximise(problem_of("thinning", rate=0.0), starts=[(1.0, 0.3)])
    assert estimate.anomaly_rate == 1e-4
    assert "anomaly_rate" in estimate.at_bound


def test_a_rate_above_the_cap_ends_on_it_and_says_that_roles_may_be_swapped() -> None:
    problem = problem_of("thinning", alpha=0.1, rate=0.7)
    estimate = maximise(problem)
    assert estimate.at_bound == ("anomaly_rate",)
    assert estimate.anomaly_rate == pytest.approx(0.4, abs=1e-3)
    verdict = to_theta(estimate, information_interval(problem, estimate))
    assert verdict.at_bound
    assert not verdict.identified
    assert "swapped roles" in verdict.reason


def test_a_family_without_a_parameter_has_none_to_be_on_a_bound() -> None:
    problem = problem_of("zero", rate=0.2)
    estimate = maximise(problem)
    assert estimate.alpha == 0.0
    assert estimate.at_bound == ()
    assert information_interval(problem, estimate).alpha == (0.0, 0.0)


def test_grouping_keeps_the_weight_and_hardly_moves_theta(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, M = simulate(n=120_000)
    counts[:3], M[:2] = [300.0, 4.0, 0.0], [290.0, 0.0]
    x, rates, weights = group_entries(counts, M)
    assert weights.sum() == counts.size
    assert x.size < counts.size / 10
    assert weights @ x == pytest.approx(counts.sum())
    assert weights @ rates == pytest.approx(M.sum())
    in_groups = maximum_likelihood(counts, M, ExponentialOnset(), Poisson(), rates_are_scaled=False)
    monkeypatch.setattr(likelihood, "WORTHWHILE", 10**9)
    one_by_one = maximum_likelihood(counts, M, ExponentialOnset(), Poisson(), rates_are_scaled=False)
    assert in_groups.alpha == pytest.approx(one_by_one.alpha, abs=3e-4)
    assert in_groups.anomaly_rate == pytest.approx(one_by_one.anomaly_rate, abs=1e-4)


@given(share=st.floats(0.0, 1.0), low=st.floats(-2.0, 0.5), width=st.floats(0.01, 3.0))
def test_the_unbounded_scale_goes_there_and_back(share: float, low: float, width: float) -> None:
    bounds = (low, low + width)
    value = low + share * width
    assert from_unbounded(to_unbounded(value, bounds), bounds) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("family", "alpha", "rate"), [("thinning", 0.2, 0.1), ("exponential", 0.4, 0.2)])
def test_intervals_cover_the_truth_about_nine_times_in_ten(family: str, alpha: float, rate: float) -> None:
    """Within four standard errors; tests/trials looks closer."""
    covered, identified = coverage(family, alpha, rate, fits=40)
    assert identified > 36
    assert np.all(covered >= 0.9 - 4 * (0.9 * 0.1 / 40) ** 0.5)


def test_the_profile_agrees_with_the_information() -> None:
    problem = problem_of("thinning", alpha=0.2, rate=0.15)
    estimate = maximise(problem)
    information = information_interval(problem, estimate)
    assert information.method == "information"
    profile = profile_interval(problem, estimate)
    for name in ("alpha", "anomaly_rate"):
        low, high = getattr(information, name)
        assert getattr(profile, name) == pytest.approx((low, high), abs=0.25 * (high - low))


def test_on_a_skewed_likelihood_the_profile_takes_over() -> None:
    problem = problem_of("exponential", alpha=0.85, rate=0.05, n=1000)
    estimate = maximise(problem)
    assert estimate.at_bound == ()
    intervals = information_interval(problem, estimate)
    assert intervals == profile_interval(problem, estimate)
    for end in intervals.anomaly_rate:
        best = max(problem.log_likelihood(a, end) for a in np.linspace(0.001, 1.0, 400))
        assert estimate.log_likelihood - best == pytest.approx(1.645**2 / 2, abs=0.05)


def test_on_a_bound_the_profile_takes_over_and_reaches_it() -> None:
    problem = problem_of("thinning", alpha=0.0, rate=0.05, n=1000)
    estimate = maximise(problem)
    assert "alpha" in estimate.at_bound
    intervals = information_interval(problem, estimate)
    assert intervals.method == "profile"
    assert intervals.alpha[0] == 0.001
    assert 0.0 < intervals.anomaly_rate[0] < 0.05 < intervals.anomaly_rate[1] < 0.1


FAR = ThetaEstimate(
    alpha=0.4,
    anomaly_rate=0.1,
    log_likelihood=-100.0,
    log_likelihood_null=-200.0,
    at_bound=(),
    converged=True,
    n_evaluations=1,
    alpha_bounds=(0.0, 1.0),
    rate_bounds=(1e-4, 0.4),
)


def test_the_verdict_says_which_rule_failed() -> None:
    intervals = information_interval(
        problem_of("thinning", alpha=0.2), maximise(problem_of("thinning", alpha=0.2))
    )
    assert to_theta(FAR, intervals).identified
    near_null = replace(FAR, log_likelihood_null=-102.5)  # twice the gain is 5.0, below 5.14
    assert "without anomalies fits as well" in to_theta(near_null, intervals).reason
    assert to_theta(replace(FAR, log_likelihood_null=-102.6), intervals).identified
    fixed_alpha = replace(near_null, alpha_bounds=(0.0, 0.0), alpha=0.0)  # one parameter: 2.71
    assert to_theta(fixed_alpha, replace(intervals, alpha=(0.0, 0.0))).identified
    wide = to_theta(FAR, replace(intervals, alpha=(0.05, 0.9)))
    assert not wide.identified
    assert "alpha could be anything from 0.05 to 0.9" in wide.reason


def test_draws_give_means_quantiles_and_a_verdict() -> None:
    rng = np.random.default_rng(0)
    alphas, rates = rng.normal(0.4, 0.05, 4000).clip(0, 1), rng.normal(0.1, 0.01, 4000)
    good = theta_from_draws(alphas, rates)
    assert good.alpha == pytest.approx(0.4, abs=0.01)
    assert good.anomaly_rate_interval == pytest.approx((0.1 - 0.01645, 0.1 + 0.01645), abs=1e-3)
    assert good.identified
    assert not good.at_bound


def test_draws_that_do_not_identify_theta_say_why() -> None:
    rng = np.random.default_rng(0)
    flat, small = rng.uniform(0, 1, 4000), rng.exponential(0.01, 4000)
    reason = theta_from_draws(flat, small).reason
    assert "no anomalies at all" in reason
    assert "alpha could be anything" in reason
    capped = theta_from_draws(rng.normal(0.4, 0.05, 4000), 0.4 - rng.exponential(0.005, 4000))
    assert capped.at_bound
    assert "swapped roles" in capped.reason
    at_zero = theta_from_draws(rng.exponential(0.005, 4000), rng.normal(0.1, 0.01, 4000))
    assert at_zero.at_bound
    assert at_zero.identified


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({"counts": [1.0, 2.0], "rates": [1.0]}, DataError, "one rate per count"),
        ({"counts": [], "rates": []}, DataError, "at least one entry"),
        ({"counts": [1.0, 2.0], "rates": [1.0, math.nan]}, DataError, r"1 entries .*\(positions 1\)"),
        ({"counts": [1.0], "rates": [1.0], "rate_bounds": (0.0, 0.4)}, UsageError, "rate_bounds"),
        ({"counts": [1.0], "rates": [1.0], "alpha_bounds": (1.5, 2.0)}, UsageError, "nothing is in both"),
        ({"counts": [1.0], "rates": [1.0], "starts": ()}, UsageError, "starts is empty"),
    ],
)
def test_wrong_arguments_are_refused_in_words(call: dict, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        maximum_likelihood(anomaly=Thinning(), noise=Poisson(), rates_are_scaled=False, **call)
    with pytest.raises(UsageError, match="3 draws of alpha and 2"):
        theta_from_draws([0.1, 0.2, 0.3], [0.1, 0.2])
