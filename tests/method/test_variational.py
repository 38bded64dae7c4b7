"""The variational factorisation: what it recovers, and that its cavity is a leave-one-out."""

import math

import numpy as np
import pytest
from scipy.special import digamma

from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.variational import _variational_kernels as kernels
from ew_pipeline.method.variational.fit import SHAPE_BOUNDS, fit_variational, gamma_shape, start_factors
from ew_pipeline.method.variational.theta import information_theta
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

EXPONENTIAL = exposure_family("exponential")


def instance(seed=0, **settings):
    settings = {"n": 30, "m": 25, "rank": 1, "mean": 10.0, "observed_share": 1.0, **settings}
    return draw_instance(EnsembleSettings(**settings), np.random.default_rng(seed))


def fit(data, rank=1, family=EXPONENTIAL, seed=1, negative_binomial=False, **options):
    start = start_factors(data, rank, np.random.default_rng(seed))
    return fit_variational(data, family, start, negative_binomial=negative_binomial, **options)


def theta_of(data, result, family=EXPONENTIAL, null_gain=100.0):
    return information_theta(
        data,
        family,
        result.parameters,
        result.cavity_means,
        result.cavity_cv2,
        np.ones(data.counts.size),
        score=result.score,
        null_gain=null_gain,
        converged=result.converged,
    )


def test_a_rank_one_matrix_is_recovered():
    rates = np.outer(np.linspace(1.0, 5.0, 20), np.linspace(2.0, 8.0, 15))
    counts = np.random.default_rng(0).poisson(rates)
    result = fit(Observations.of(SalesMatrix.from_dense(counts)))
    assert result.converged
    assert result.rank == 1
    error = np.abs(result.means.reshape(20, 15) / rates - 1.0)
    assert np.median(error) < 0.06  # the noise itself is 0.2 to 0.7
    np.testing.assert_allclose(result.factors.dense().ravel(), result.means)
    assert result.parameters.anomaly_rate < 0.02
    assert (result.healthy_probability > 0.8).mean() > 0.99


def test_theta_is_recovered_and_anomalies_do_not_drag_the_rates_down():
    drawn = instance(n=60, m=50, anomaly_rate=0.2, alpha=0.2, mean=20.0)
    result = fit(Observations.of(drawn.sales))
    assert result.parameters.anomaly_rate == pytest.approx(0.2, abs=0.03)
    assert result.parameters.alpha == pytest.approx(0.2, abs=0.04)
    ratio = result.means / drawn.truth.rates.ravel()
    assert np.median(ratio) == pytest.approx(1.0, abs=0.03)  # 0.84 if anomalies counted in full


def test_the_dispersion_is_recovered():
    drawn = instance(
        n=60, m=50, mean=20.0, anomaly_rate=0.1, alpha=0.1, noise="negative_binomial", dispersion_size=5.0
    )
    result = fit(Observations.of(drawn.sales), negative_binomial=True)
    assert 1.0 / result.parameters.inverse_size == pytest.approx(5.0, rel=0.25)
    assert fit(Observations.of(drawn.sales)).parameters.inverse_size == 0.0


def test_the_cavity_mean_is_close_to_a_fit_without_the_entry():
    drawn = instance(n=12, m=10, anomaly_rate=0.0, alpha=0.2, mean=8.0)
    data = Observations.of(drawn.sales)
    options = {"anomalies": False, "tolerance": 1e-9}
    result = fit(data, **options)
    entries = np.arange(3, 120, 7)
    without = np.empty(entries.size)
    for k, entry in enumerate(entries):
        mask = np.zeros(120, dtype=bool)
        mask[entry] = True
        without[k] = fit(data, held_out=mask, **options).means[entry]
    from_cavity = np.abs(result.cavity_means[entries] - without)
    in_sample = np.abs(result.means[entries] - without)
    assert from_cavity.mean() < 0.25 * in_sample.mean()
    pull = result.means[entries] - without
    assert np.corrcoef(pull, data.counts[entries] - without)[0, 1] > 0.8  # in-sample follows its own count


@pytest.mark.parametrize("negative_binomial", [False, True])
def test_held_out_counts_do_not_reach_the_fit(negative_binomial):
    drawn = instance(seed=3, rank=2, n=20, m=20, anomaly_rate=0.1, alpha=0.2)
    sales = drawn.sales
    mask = np.zeros(sales.n_observed, dtype=bool)
    mask[::7] = True
    other = np.where(mask, sales.counts + 7, sales.counts)
    changed = SalesMatrix.from_coo(sales.rows, sales.cols, other, sales.shape)
    data = Observations.of(sales)
    start = start_factors(data, 2, np.random.default_rng(0))
    first, second = (
        fit_variational(d, EXPONENTIAL, start, negative_binomial=negative_binomial, held_out=mask)
        for d in (data, Observations.of(changed))
    )
    np.testing.assert_array_equal(first.left, second.left)
    np.testing.assert_array_equal(first.cavity_means[~mask], second.cavity_means[~mask])
    assert first.parameters == second.parameters


def test_the_cavity_of_a_held_out_entry_is_the_prediction_itself():
    """It has not been seen, so there is no residual of its own to take back out."""
    drawn = instance(seed=3, rank=2, n=20, m=20, anomaly_rate=0.1, alpha=0.2)
    data = Observations.of(drawn.sales)
    mask = np.zeros(data.counts.size, dtype=bool)
    mask[::7] = True
    result = fit(data, rank=2, held_out=mask)
    np.testing.assert_allclose(result.cavity_means[mask], result.means[mask])


def test_leave_one_out_takes_the_residual_back_by_its_leverage():
    """M = 4, Var = 1, exposure 1: h = 1/4, own = (1/4)(7 - 4)/(3/4) = 1."""
    out, cv2 = np.empty(1), np.empty(1)
    one = np.ones(1)
    kernels.leave_one_out(7 * one, one, 4 * one, one, out, cv2)
    assert out[0] == pytest.approx(3.0)
    assert cv2[0] == pytest.approx((1.0 / 0.75) / 9.0)


def test_without_anomalies_every_pair_is_healthy_and_the_predictive_is_worse():
    data = Observations.of(instance(anomaly_rate=0.15, alpha=0.1).sales)
    full, null = fit(data), fit(data, anomalies=False)
    assert null.parameters.anomaly_rate == 0.0
    np.testing.assert_array_equal(null.healthy_probability, 1.0)
    assert null.score == pytest.approx(null.null_score)
    assert full.score > null.score + 50.0


def test_scores_are_the_sum_of_the_entries():
    data = Observations.of(instance(anomaly_rate=0.15, alpha=0.1).sales)
    result = fit(data)
    assert result.score == pytest.approx(result.entry_scores.sum())
    assert ((result.healthy_probability >= 0.0) & (result.healthy_probability <= 1.0)).all()


def test_information_theta_covers_the_truth_and_narrows_with_data():
    widths = []
    for n in (20, 80):
        data = Observations.of(instance(n=n, m=n, anomaly_rate=0.15, alpha=0.2, mean=15.0).sales)
        theta = theta_of(data, fit(data))
        for (low, high), value in (
            (theta.alpha_interval, theta.alpha),
            (theta.anomaly_rate_interval, theta.anomaly_rate),
        ):
            assert low < value < high
        widths.append(theta.anomaly_rate_interval[1] - theta.anomaly_rate_interval[0])
        assert theta.identified
        assert not theta.at_bound
    assert widths[1] == pytest.approx(widths[0] / 4.0, rel=0.4)  # sixteen times the entries
    assert theta.anomaly_rate_interval[0] - 0.02 < 0.15 < theta.anomaly_rate_interval[1] + 0.02
    assert theta.alpha_interval[0] - 0.03 < 0.2 < theta.alpha_interval[1] + 0.03


def test_information_theta_of_no_gain_is_not_identified():
    data = Observations.of(instance(anomaly_rate=0.15, alpha=0.2).sales)
    theta = theta_of(data, fit(data), null_gain=0.0)
    assert not theta.identified
    assert "without anomalies" in theta.reason


def test_information_theta_of_the_zero_family_has_no_alpha():
    zero = exposure_family("zero")
    data = Observations.of(instance(anomaly_rate=0.15, family="zero").sales)
    theta = theta_of(data, fit(data, family=zero), zero)
    assert theta.alpha == 0.0
    assert theta.alpha_interval == (0.0, 0.0)
    assert theta.anomaly_rate == pytest.approx(0.15, abs=0.03)
    assert not theta.at_bound


@pytest.mark.parametrize("shape", [0.35, 1.0, 1.9, 30.0])
def test_gamma_shape_solves_its_equation(shape):
    assert gamma_shape(math.log(shape) - digamma(shape)) == pytest.approx(shape, rel=1e-3)


def test_prior_shapes_stay_in_their_bounds():
    result = fit(Observations.of(instance(anomaly_rate=0.05, alpha=0.2).sales))
    for shape in result.prior_shapes:
        assert SHAPE_BOUNDS[0] <= shape <= SHAPE_BOUNDS[1]


def test_start_factors_have_the_scale_of_the_data():
    data = Observations.of(instance(n=200, m=150, anomaly_rate=0.0, mean=7.0).sales)
    left, right = start_factors(data, 3, np.random.default_rng(0))
    assert left.shape == (200, 3)
    assert right.shape == (150, 3)
    assert (left @ right.T).mean() == pytest.approx(data.counts.mean(), rel=0.15)
