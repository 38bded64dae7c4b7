"""Anomaly rates by store and SKU: found where whole lines go wrong, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from ew_pipeline import EntrywiseDetector
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.sampler.chain import SamplerBudget, run_chain
from ew_pipeline.method.sampler.state import CountTable, SamplerState
from ew_pipeline.method.variational import axis_rates
from ew_pipeline.method.variational.axis_rates import (
    EXTRA_RATES,
    AxisRates,
    efficiency,
    find_axes,
    line_scale,
    update_axis,
)
from ew_pipeline.method.variational.fit import _Factors, _update_axes, fit_variational, start_factors
from ew_pipeline.method.variational.theta import Parameters
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance
from ew_pipeline.studies.experiments.instance import InstanceTask
from ew_pipeline.studies.experiments.robustness import CASES

EXPONENTIAL = exposure_family("exponential")
BUDGET = SamplerBudget(20, 30, 5, 4)


def drawn(anomalies="independent", seed=0):
    settings = EnsembleSettings(
        n=50, m=40, rank=2, mean=12.0, observed_share=0.9, anomaly_rate=0.12, alpha=0.3, anomalies=anomalies
    )
    return draw_instance(settings, np.random.default_rng(seed))


def fitted(instance, axes=None):
    data = Observations.of(instance.sales)
    start = start_factors(data, 2, np.random.default_rng(1))
    return data, fit_variational(data, EXPONENTIAL, start, negative_binomial=False, axes=axes)


def found(instance, **how):
    data, fit = fitted(instance)
    return find_axes(data, EXPONENTIAL, fit.cavity_means, fit.cavity_cv2, fit.parameters, **how)


def test_a_pair_is_clear_if_neither_its_store_nor_its_sku_hit_it():
    axes = AxisRates.none((2, 3))
    axes.shares[0][1] = [0.0, 0.0, 0.0, 1.0]  # the second store loses 95 of 100 pairs
    axes.shares[1][2] = [0.5, 0.5, 0.0, 0.0]  # the third SKU: none, or half of them
    np.testing.assert_allclose(EXTRA_RATES, [0.0, 0.5, 0.75, 0.95])
    data = Observations.of(SalesMatrix.from_dense(np.ones((2, 3), dtype=np.int64)))
    np.testing.assert_allclose(axes.clear(data), [1.0, 1.0, 0.75, 0.05, 0.05, 0.0375])


def test_efficiency_and_scale_by_hand():
    """p_A = 0.2, g = 0.5: e = 1 - 0.2 / 2 = 0.9; spared by half: p = 0.6, e = 0.7."""
    np.testing.assert_allclose(efficiency(np.array([1.0, 0.5]), 0.2, 0.5), [0.9, 0.7])
    before, after = AxisRates.none((2, 2)), AxisRates.none((2, 2))
    after.shares[0][1] = [0.0, 1.0, 0.0, 0.0]
    np.testing.assert_allclose(line_scale(before, after, 0, 0.2, 0.5), [1.0, 0.9 / 0.7])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_independent_anomalies_have_one_rate(seed):
    assert found(drawn(seed=seed)) is None


@pytest.mark.parametrize(("anomalies", "active"), [("store", (True, False)), ("sku", (False, True))])
def test_whole_lines_are_noticed_on_their_axis(anomalies, active):
    axes = found(drawn(anomalies))
    assert axes is not None
    assert axes.active == active


def test_where_data_are_doubtful_whole_lines_need_more_evidence(monkeypatch):
    instance = drawn("store")
    assert axis_rates.ACCEPT_NATS_IN_DOUBT > axis_rates.ACCEPT_NATS
    assert found(instance, doubtful=True) is not None  # these stores leave no doubt
    monkeypatch.setattr(axis_rates, "ACCEPT_NATS_IN_DOUBT", 1e6)
    assert found(instance, doubtful=True) is None
    assert found(instance) is not None


def test_a_sparse_chain_of_many_different_stores_has_no_store_that_is_out():
    """What one rank too few leaves unexplained gains 5.6 nats: enough if the data were dense."""
    task = InstanceTask("wide", CASES["wide-30x300"], "default", 60501, 39)
    fit = EntrywiseDetector(random_state=0).fit(task.draw().sales)
    assert fit.store_extra_rate_ is None


def test_one_store_that_lost_most_of_its_sales_stands_out():
    """Rank one, demand 20 everywhere; store 3 sells nothing in nine of ten pairs."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(20.0, (12, 40))
    counts[3] = np.where(rng.random(40) < 0.9, 0, counts[3])
    data = Observations.of(SalesMatrix.from_dense(counts))
    means = np.full((12, 40), 20.0)
    means[3] = counts[3].mean()  # what a factorisation makes of it
    theta = Parameters(0.05, 0.02, 0.0)
    axes = update_axis(
        AxisRates.none((12, 40)), 0, data, EXPONENTIAL, means.ravel(), np.full(480, 0.01), np.ones(480), theta
    )
    extra = 1.0 - axes.spared(0)
    assert extra[3] > 0.7
    assert np.delete(extra, 3).max() < 0.01
    assert axes.gains[0] > 50.0


def test_the_factorisation_sees_the_demand_behind_a_store_that_is_out():
    instance = drawn("store")
    hot = instance.truth.hot_stores
    data, plain = fitted(instance)
    _, aware = fitted(instance, found(instance))
    assert (1.0 - aware.axes.spared(0)[hot]).min() > 0.4
    assert (1.0 - aware.axes.spared(0)[~hot]).mean() < 0.05
    truth = instance.truth.rates[data.sales.rows, data.sales.cols]
    in_hot = hot[data.sales.rows]
    errors = [np.abs(np.log(fit.means / truth))[in_hot].mean() for fit in (plain, aware)]
    assert errors[1] < 0.6 * errors[0]


def test_the_demand_of_a_line_moves_along_with_its_rate():
    """Factors and rates at the entries stay one and the same, and the line's average sales stay put."""
    instance = drawn("store")
    data, fit = fitted(instance)
    factors = _Factors(fit.left, fit.right)
    before = np.empty(data.counts.size)
    factors.rates(data, before)
    means, cavity = before.copy(), fit.cavity_means.copy()
    blank = AxisRates.none(instance.sales.shape)
    theta = fit.parameters
    axes = _update_axes(
        data, factors, EXPONENTIAL, blank, theta, np.ones(means.size), means, cavity, fit.cavity_cv2
    )
    by = line_scale(blank, axes, 0, theta.anomaly_rate, theta.alpha)
    assert by.max() > 1.5
    after = np.empty(means.size)
    factors.rates(data, after)
    np.testing.assert_allclose(after, means, rtol=1e-6)  # factors are in single precision
    ratio = by[data.sales.rows] * line_scale(blank, axes, 1, theta.anomaly_rate, theta.alpha)[data.sales.cols]
    np.testing.assert_allclose(means / before, ratio, rtol=1e-6)
    np.testing.assert_allclose(cavity / fit.cavity_means, ratio)


def test_moves_of_lines_leave_densities_as_they_are_computed_afresh():
    instance = drawn("both")
    data, fit = fitted(instance)
    blank = replace(fit, axes=AxisRates.none(instance.sales.shape))
    state = SamplerState(data, CountTable.of(data), EXPONENTIAL, blank)
    current = [np.empty(data.counts.size) for _ in range(3)]
    state.densities(current)
    before = [at.copy() for at in state.at]
    rng = np.random.default_rng(0)
    for _ in range(20):
        likelihood = state.move_axes(current, rng)
    assert any((old != new).any() for old, new in zip(before, state.at, strict=True))
    for side in (0, 1):
        np.testing.assert_allclose(state.spared[side], 1.0 - EXTRA_RATES[state.at[side]])
        np.testing.assert_allclose(state.spared32[side], state.spared[side], rtol=1e-6)
    fresh = [np.empty(data.counts.size) for _ in range(3)]
    assert state.densities(fresh) == pytest.approx(likelihood, rel=1e-10)
    for mine, theirs in zip(current, fresh, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-8)


def test_the_chain_finds_the_stores_from_a_start_that_does_not_know_them():
    instance = drawn("store")
    data, fit = fitted(instance)
    axes = found(instance)
    assert (axes.spared(0) == 1.0).all()
    blank = replace(fit, axes=axes)
    result = run_chain(data, CountTable.of(data), EXPONENTIAL, blank, np.random.default_rng(0), BUDGET)
    hot = instance.truth.hot_stores[data.sales.rows]
    suspicion = 1.0 - result.healthy_probability
    assert suspicion[hot].mean() > 0.7
    assert suspicion[~hot].mean() < 0.2


@pytest.mark.parametrize("mode", ["thorough", "variational"])
@pytest.mark.parametrize("with_level", [False, True])
def test_the_detector_names_the_stores_that_are_out(mode, with_level):
    instance = drawn("store")
    level = np.random.default_rng(5).uniform(0.4, 1.0, instance.sales.n_observed)
    sales = instance.sales
    if with_level:  # of Poisson(E M) sales a share is kept: Poisson(E M level)
        counts = np.random.default_rng(6).binomial(sales.counts, level)
        sales = SalesMatrix.from_coo(sales.rows, sales.cols, counts, sales.shape)
    fit = EntrywiseDetector(mode, budget=BUDGET).fit(sales, level=level if with_level else None)
    hot = instance.truth.hot_stores
    assert fit.sku_extra_rate_ is None
    assert fit.store_extra_rate_[hot].mean() > 0.5
    assert fit.store_extra_rate_[~hot].mean() < 0.05
    assert any("stores seem to have gone wrong" in words for words in fit.warnings_)
    suspicion = fit.posterior_
    assert suspicion[instance.truth.anomalous].mean() > suspicion[~instance.truth.anomalous].mean() + 0.4


def test_without_lines_that_are_out_there_are_no_extra_rates():
    fit = EntrywiseDetector("variational").fit(drawn().sales)
    assert fit.store_extra_rate_ is None
    assert fit.sku_extra_rate_ is None
    assert not any("as a whole" in words for words in fit.warnings_)
