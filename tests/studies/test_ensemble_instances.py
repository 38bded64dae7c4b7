"""The generator has the moments it promises, and its truth is what a pencil gives on two cells."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.studies import ensemble
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

FAMILIES = ("exponential", "thinning", "zero", "uniform_onset", "uniform")
MEAN_FACTOR = {"exponential": 0.3, "thinning": 0.3, "zero": 0.0, "uniform_onset": 0.5, "uniform": 0.3}


def draw(seed: int = 0, **overrides) -> ensemble.SyntheticInstance:
    return draw_instance(EnsembleSettings(**overrides), np.random.default_rng(seed))


def test_parameters_come_from_the_paper_ranges():
    instances = [draw(seed, n=12, m=12) for seed in range(400)]
    truths = [instance.truth for instance in instances]
    ranks = np.array([truth.rank for truth in truths])
    assert set(ranks) == set(range(1, 11))
    for values, low, high in (
        ([truth.rates.mean() for truth in truths], 1, 10),
        ([truth.observed_share for truth in truths], 0.5, 1),
        ([truth.anomaly_rate for truth in truths], 0, 0.3),
        ([truth.alpha for truth in truths], 0, 1),
    ):
        assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > 0.001
    costs = np.concatenate([np.r_[i.costs_false_alarm, i.costs_missed] for i in instances[:40]])
    assert stats.kstest(costs, stats.uniform(0, 10).cdf).pvalue > 0.001


def test_fixing_one_parameter_leaves_the_others_as_drawn():
    free, fixed = draw(3).truth, draw(3, alpha=0.25).truth
    assert fixed.alpha == 0.25
    assert (fixed.rank, fixed.anomaly_rate, fixed.observed_share) == (
        free.rank,
        free.anomaly_rate,
        free.observed_share,
    )
    np.testing.assert_array_equal(fixed.rates, free.rates)


@pytest.mark.parametrize("rank", [1, 3, 10])
def test_rates_have_the_rank_and_exactly_the_mean(rank):
    rates = draw(1, n=40, m=30, rank=rank, mean=4.5).truth.rates
    assert np.linalg.matrix_rank(rates) == rank
    assert rates.mean() == pytest.approx(4.5, rel=1e-12)
    assert rates.min() > 0


def test_rank_one_rates_are_products_of_exponentials():
    # Gamma(1, .) is the exponential distribution: with r = 1 a column is proportional to U, cv 1.
    column = draw(2, n=20000, m=2, rank=1).truth.rates[:, 0]
    assert column.std() / column.mean() == pytest.approx(1.0, abs=0.04)


def test_observed_and_anomalous_shares():
    instance = draw(4, n=300, m=300, observed_share=0.7, anomaly_rate=0.1)
    assert instance.sales.density == pytest.approx(0.7, abs=0.006)  # 4 standard errors
    assert instance.truth.anomalous.mean() == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("family", FAMILIES)
def test_anomalous_sales_have_the_mean_factor_of_their_family(family):
    truth_rate = 6.0
    instance = draw(
        5, n=300, m=300, rank=1, mean=truth_rate, observed_share=1, anomaly_rate=1, alpha=0.3, family=family
    )
    ratio = instance.sales.counts.sum() / instance.truth.rates.sum()
    assert ratio == pytest.approx(MEAN_FACTOR[family], abs=0.02)
    assert instance.truth.alpha == MEAN_FACTOR[family]


def test_exponential_onset_has_mean_alpha_not_rate_alpha():
    exposure = ensemble._draw_exposure("exponential", 0.2, 50_000, np.random.default_rng(0))
    assert exposure.mean() == pytest.approx(0.2, rel=0.03)


def test_negative_binomial_noise_has_variance_mean_plus_mean_squared_over_size():
    instance = draw(
        6,
        n=400,
        m=400,
        rank=2,
        mean=5,
        observed_share=1,
        anomaly_rate=0,
        noise="negative_binomial",
        dispersion_size=4.0,
    )
    rates = instance.truth.rates.ravel()
    squared_z = (instance.sales.counts - rates) ** 2 / (rates + rates**2 / 4)
    assert squared_z.mean() == pytest.approx(1.0, abs=0.03)


def test_poisson_noise_has_variance_mean():
    instance = draw(6, n=400, m=400, rank=2, mean=5, observed_share=1, anomaly_rate=0)
    rates = instance.truth.rates.ravel()
    assert ((instance.sales.counts - rates) ** 2 / rates).mean() == pytest.approx(1.0, abs=0.03)


def test_healthy_probability_of_two_cells_by_hand():
    # M = 2, p_A = 1/2, nothing sold when anomalous: x = 0 gives e^-2/(e^-2 + 1), x = 1 must be healthy.
    f = ensemble._healthy_probability(np.array([0, 1]), np.array([2.0, 2.0]), 0.5, 0.0, "zero", None)
    assert f[0] == pytest.approx(np.exp(-2) / (np.exp(-2) + 1), rel=1e-12)
    assert f[1] == 1.0
    # Exponential onset, alpha M = 1: geometric, P(0) = 1/2, P(1) = 1/4; healthy P(0) = e^-2, P(1) = 2 e^-2.
    f = ensemble._healthy_probability(np.array([0, 1]), np.array([2.0, 2.0]), 0.2, 0.5, "exponential", None)
    healthy = 0.8 * np.array([np.exp(-2), 2 * np.exp(-2)])
    np.testing.assert_allclose(f, healthy / (healthy + 0.2 * np.array([0.5, 0.25])), rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_anomalous_distribution_matches_integration_over_the_exposure(family):
    x, M = np.arange(30), 4.0
    alpha = MEAN_FACTOR[family]
    got = np.exp(ensemble._log_pmf_anomalous(x, np.full(30, M), alpha, family))
    density, top = {
        "exponential": (lambda e: np.exp(-e / alpha) / alpha, 20.0),
        "uniform": (lambda e: 1 / (2 * alpha), 2 * alpha),
        "uniform_onset": (lambda e: 1.0, 1.0),
    }.get(family, (None, 0.0))
    if density is None:
        want = stats.poisson.pmf(x, alpha * M)
    else:
        want = [
            integrate.quad(lambda e, k=k: density(e) * stats.poisson.pmf(k, e * M), 0, top, limit=200)[0]
            for k in x
        ]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-12)


def test_negative_binomial_truth_uses_the_negative_binomial():
    x, M = np.arange(20), np.full(20, 3.0)
    got = ensemble._log_pmf_healthy(x, M, 2.0)
    np.testing.assert_allclose(got, stats.nbinom.logpmf(x, 2.0, 2 / (2 + 3)), rtol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("noise", ["poisson", "negative_binomial"])
def test_healthy_probability_is_calibrated(family, noise):
    size = 3.0 if noise == "negative_binomial" else None
    truths = [
        draw(
            seed,
            observed_share=0.9,
            anomaly_rate=0.2,
            alpha=0.3,
            family=family,
            noise=noise,
            dispersion_size=size,
        )
        for seed in range(8)
    ]
    f = np.concatenate([i.truth.healthy_probability for i in truths])
    healthy = ~np.concatenate([i.truth.anomalous for i in truths])
    for low in (0.0, 0.25, 0.5, 0.75):
        inside = (f >= low) & (f <= low + 0.25)
        if inside.sum() > 500:
            error = 4 * np.sqrt(0.25 / inside.sum())
            assert abs(healthy[inside].mean() - f[inside].mean()) < error


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    family=st.sampled_from(FAMILIES),
    rate=st.sampled_from([0.0, 1e-6, 0.3, 1.0]),
    alpha=st.sampled_from([0.0, 1e-9, 0.5, 1.0]),
    mean=st.sampled_from([1e-3, 5.0, 1e5]),
    size=st.sampled_from([None, 1e-2, 5.0]),
)
def test_healthy_probability_is_always_a_probability(seed, family, rate, alpha, mean, size):
    noise = "poisson" if size is None else "negative_binomial"
    truth = draw(
        seed,
        n=6,
        m=5,
        mean=mean,
        anomaly_rate=rate,
        alpha=alpha,
        family=family,
        noise=noise,
        dispersion_size=size,
        observed_share=1,
    ).truth
    assert np.all((truth.healthy_probability >= 0) & (truth.healthy_probability <= 1))
    if rate == 0:
        assert np.all(truth.healthy_probability == 1)


def test_same_seed_same_instance_other_seed_another():
    first, again, other = draw(7), draw(7), draw(8)
    np.testing.assert_array_equal(first.sales.counts, again.sales.counts)
    np.testing.assert_array_equal(first.costs_missed, again.costs_missed)
    np.testing.assert_array_equal(first.truth.healthy_probability, again.truth.healthy_probability)
    assert first.sales.n_observed != other.sales.n_observed


def test_noise_and_family_share_everything_but_the_counts():
    poisson = draw(9)
    other = draw(9, family="uniform_onset", noise="negative_binomial", dispersion_size=5.0)
    np.testing.assert_array_equal(poisson.truth.rates, other.truth.rates)
    np.testing.assert_array_equal(poisson.truth.anomalous, other.truth.anomalous)
    np.testing.assert_array_equal(poisson.sales.cols, other.sales.cols)
    np.testing.assert_array_equal(poisson.costs_missed, other.costs_missed)
    assert np.any(poisson.sales.counts != other.sales.counts)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(2, 40),
    m=st.integers(2, 40),
    share=st.floats(0.02, 1.0),
)
def test_block_missing_keeps_every_row_and_column(seed, n, m, share):
    rng = np.random.default_rng(seed)
    if share < 1 / min(n, m):
        with pytest.raises(UsageError, match="observed_share"):
            ensemble._draw_blocks(n, m, share, rng)
        return
    observed = ensemble._draw_blocks(n, m, share, rng)
    assert observed.any(axis=0).all()
    assert observed.any(axis=1).all()


def test_block_missing_is_made_of_blocks_with_the_expected_share():
    rng = np.random.default_rng(0)
    patterns = [ensemble._draw_blocks(23, 57, 0.634, rng) for _ in range(400)]
    assert np.mean(patterns) == pytest.approx(0.634, abs=0.005)
    # Every block is lost with the same probability: no corner of the matrix is safer than another.
    assert np.abs(np.mean(patterns, axis=0) - 0.634).max() < 0.12
    square = ensemble._draw_blocks(100, 100, 0.5, rng).reshape(10, 10, 10, 10)
    assert np.all(square.all(axis=(1, 3)) | ~square.any(axis=(1, 3)))
    assert square.mean() == 0.5


@pytest.mark.parametrize("pattern", ["store", "sku", "both"])
def test_correlated_anomalies_concentrate_on_hot_axes_at_the_same_overall_rate(pattern):
    truths = [draw(seed, anomalies=pattern, anomaly_rate=0.12, observed_share=1).truth for seed in range(60)]
    anomalous = np.array([truth.anomalous.reshape(100, 100) for truth in truths])
    hot = np.array([truth.hot_stores[:, None] | truth.hot_skus[None, :] for truth in truths])
    assert anomalous.mean() == pytest.approx(0.12, abs=0.004)
    assert anomalous[hot].mean() == pytest.approx(0.9, abs=0.01)
    assert anomalous[hot].sum() / anomalous.sum() == pytest.approx(0.5, abs=0.03)
    assert np.any([truth.hot_stores.any() for truth in truths]) == (pattern != "sku")
    assert np.any([truth.hot_skus.any() for truth in truths]) == (pattern != "store")


def test_correlated_truth_is_the_per_cell_ideal():
    truth = draw(0, anomalies="store", anomaly_rate=0.2, alpha=0.0, observed_share=1).truth
    # alpha = 0: a pair that sold something is healthy for sure, in a hot store or not.
    sold = draw(0, anomalies="store", anomaly_rate=0.2, alpha=0.0, observed_share=1).sales.counts > 0
    assert np.all(truth.healthy_probability[sold] == 1)
    zero = ~sold
    healthy = 0.8 * np.exp(-truth.rates.ravel()[zero])
    np.testing.assert_allclose(truth.healthy_probability[zero], healthy / (healthy + 0.2), rtol=1e-10)


def test_truth_is_read_only_and_absent_from_the_sales():
    instance = draw(0)
    for array in (
        instance.truth.rates,
        instance.truth.anomalous,
        instance.truth.healthy_probability,
        instance.costs_missed,
        instance.costs_false_alarm,
    ):
        assert not array.flags.writeable
    held = {id(value) for value in vars(instance.sales).values()}
    assert not held & {id(value) for value in vars(instance.truth).values() if isinstance(value, np.ndarray)}
    assert instance.sales.n_observed == instance.truth.anomalous.size == instance.costs_missed.size


def test_tiny_share_keeps_the_shape_and_nothing_observed_is_an_error():
    assert draw(0, n=50, m=50, observed_share=0.005).sales.shape == (50, 50)
    with pytest.raises(DataError):
        draw(0, observed_share=0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n": 0},
        {"rank": 0},
        {"rank": 101},
        {"mean": 0.0},
        {"anomaly_rate": 1.1},
        {"alpha": float("nan")},
        {"noise": "negative_binomial"},
        {"dispersion_size": 5.0},
        {"family": "exponentiel"},
        {"omega": "blocks"},
        {"anomalies": "region"},
        {"cost_high": -1.0},
    ],
)
def test_wrong_settings_are_refused_and_named(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong)).split("_")[0]):
        EnsembleSettings(**wrong)


def test_rate_too_high_to_be_concentrated_is_refused():
    with pytest.raises(UsageError, match="hot_rate"):
        draw(0, anomalies="store", anomaly_rate=0.95)


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EnsembleSettings().n = 3  # type: ignore[misc]
