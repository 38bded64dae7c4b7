"""History as an offset: rates = level x low rank."""

import numpy as np
import pytest

from ew_pipeline import EntrywiseDetector, SalesMatrix
from ew_pipeline.backtest.metrics import auc
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler.chain import SamplerBudget, run_chain
from ew_pipeline.method.sampler.state import CountTable
from ew_pipeline.method.variational.fit import fit_variational, start_factors

BUDGET = SamplerBudget(20, 30, 5, 4)


def detector(mode, **options):
    return EntrywiseDetector(mode, **{"budget": BUDGET, "random_state": 0, **options})


@pytest.fixture(scope="module")
def week():
    """Levels that no low rank explains, times store and SKU effects; a tenth of the pairs sells a tenth."""
    rng = np.random.default_rng(0)
    n, m = 30, 25
    level = rng.lognormal(1.5, 1.0, (n, m))
    rates = level * np.outer(rng.gamma(8.0, 1.0 / 8.0, n), rng.gamma(8.0, 1.0 / 8.0, m))
    anomalous = rng.random((n, m)) < 0.1
    counts = rng.poisson(np.where(anomalous, 0.1, 1.0) * rates)
    return SalesMatrix.from_dense(counts), level.ravel(), rates.ravel(), anomalous.ravel()


@pytest.mark.parametrize("mode", ["thorough", "variational", "fast"])
def test_a_known_level_makes_detection_much_better(week, mode):
    sales, level, rates, anomalous = week
    known, unknown = detector(mode).fit(sales, level=level), detector(mode).fit(sales)
    with_level = auc(known.anomaly_probability_, anomalous)
    assert with_level > 0.85
    assert with_level > auc(unknown.anomaly_probability_, anomalous) + 0.05
    busy = rates > 3.0
    assert np.median(np.abs(known.expected_sales_ / rates - 1.0)[busy]) < 0.15


@pytest.mark.parametrize("mode", ["paper", "paper-practical"])
def test_a_level_does_not_distort_the_modes_of_the_paper(week, mode):
    """They factor the sales themselves: the level is refused or left aside, never multiplied on top."""
    sales, level, _, _ = week
    try:
        fit = detector(mode, rank=1).fit(sales, level=level)
    except UsageError:
        return
    np.testing.assert_array_equal(fit.expected_sales_, detector(mode, rank=1).fit(sales).expected_sales_)


@pytest.mark.parametrize("mode", ["thorough", "variational", "fast", "paper", "paper-practical"])
def test_a_level_of_ones_is_no_level(week, mode):
    sales = week[0]
    ones = detector(mode, rank=2).fit(sales, level=np.ones(sales.n_observed))
    none = detector(mode, rank=2).fit(sales)
    if mode == "fast":  # another summation order
        np.testing.assert_allclose(ones.anomaly_probability_, none.anomaly_probability_, atol=1e-3)
    else:
        np.testing.assert_array_equal(ones.anomaly_probability_, none.anomaly_probability_)
        np.testing.assert_array_equal(ones.expected_sales_, none.expected_sales_)


@pytest.mark.parametrize("mode", ["thorough", "variational", "fast"])
@pytest.mark.parametrize("factor", [0.02, 50.0])
def test_the_unit_of_the_level_does_not_matter(week, mode, factor):
    sales, level, _, _ = week
    fit, scaled = (detector(mode, rank=1).fit(sales, level=c * level) for c in (1.0, factor))
    p, q = fit.anomaly_probability_, scaled.anomaly_probability_
    assert np.corrcoef(p, q)[0, 1] > 0.99
    assert ((p > 0.5) == (q > 0.5)).mean() > 0.98
    assert np.median(np.abs(scaled.expected_sales_ / fit.expected_sales_ - 1.0)) < 0.03


def test_expected_sales_carry_the_level_and_the_factors_do_not(week):
    sales, level, _, _ = week
    data = Observations.of(sales, level)
    family = exposure_family("exponential")
    start = start_factors(data, 1, np.random.default_rng(0))
    fit = fit_variational(data, family, start, negative_binomial=False)
    np.testing.assert_allclose(fit.means, level * fit.factors.rates_at(sales))
    ratio = fit.cavity_means / fit.means
    assert np.median(ratio) == pytest.approx(1.0, abs=0.05)


def test_the_sampler_carries_the_level(week):
    sales, level, rates, _ = week
    data = Observations.of(sales, level)
    family = exposure_family("exponential")
    start = start_factors(data, 1, np.random.default_rng(0))
    fit = fit_variational(data, family, start, negative_binomial=False)
    chain = run_chain(data, CountTable.of(data), family, fit, np.random.default_rng(0), BUDGET)
    kept = np.mean(
        [left @ right.T for left, right in zip(chain.kept_left, chain.kept_right, strict=True)], axis=0
    )
    np.testing.assert_allclose(chain.means, level * kept.ravel(), rtol=0.25)
    assert np.median(np.abs(chain.means / rates - 1.0)) < 0.15
