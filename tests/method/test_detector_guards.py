"""Data at the edge and wrong arguments: a finite answer or a clear error, never a silent wrong one."""

import numpy as np
import pytest

from ew_pipeline import Costs, EntrywiseDetector, SalesMatrix
from ew_pipeline.core.errors import DataError, FitError, UsageError
from ew_pipeline.method.sampler.chain import SamplerBudget
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

BUDGET = SamplerBudget(20, 30, 5, 4)
MODES = ("auto", "variational", "fast", "paper", "paper-practical")
EQUAL = Costs(false_alarm=1.0, missed=1.0)


def detector(mode="auto", **options):
    return EntrywiseDetector(mode, **{"budget": BUDGET, "random_state": 0, **options})


def counts(n=15, m=12, mean=6.0, seed=0):
    rng = np.random.default_rng(seed)
    demand = np.outer(rng.gamma(4.0, 1.0, n), rng.gamma(4.0, 1.0, m))
    return rng.poisson(demand * mean / demand.mean())


def check(fit):
    size = fit.sales.n_observed
    for values in (fit.anomaly_probability_, fit.expected_sales_, fit.expected_cv_, fit.drop_probability()):
        assert values.shape == (size,)
        assert np.isfinite(values).all()
    assert fit.anomaly_probability_.min() >= 0.0
    assert fit.anomaly_probability_.max() <= 1.0
    assert np.isfinite(fit.theta_.alpha)
    assert fit.decide(EQUAL).shape == (size,)
    assert fit.decide_rate(0.1).shape == (size,)
    return fit


def with_zero_row():
    x = counts()
    x[4] = 0
    return SalesMatrix.from_dense(x)


def with_zero_column():
    x = counts()
    x[:, 7] = 0
    return SalesMatrix.from_dense(x)


def with_unobserved_lines():
    observed = np.ones((15, 12), dtype=bool)
    observed[3] = False
    observed[:, 0] = observed[:, 11] = False
    return SalesMatrix.from_dense(counts(), observed)


def with_single_entries():
    """A store and a SKU with one observed pair each."""
    observed = np.ones((15, 12), dtype=bool)
    observed[14, 1:] = False
    observed[1:, 11] = False
    return SalesMatrix.from_dense(counts(), observed)


def with_one_huge_count():
    x = counts()
    x[2, 2] = 2_000_000
    return SalesMatrix.from_dense(x)


EDGES = {
    "one row": lambda: SalesMatrix.from_dense(counts(1, 30)),
    "one column": lambda: SalesMatrix.from_dense(counts(30, 1)),
    "two by two": lambda: SalesMatrix.from_dense(np.array([[3, 0], [5, 9]])),
    "three pairs": lambda: SalesMatrix.from_dense(np.array([[3, 0, 5]])),
    "wide": lambda: SalesMatrix.from_dense(counts(4, 60)),
    "tall": lambda: SalesMatrix.from_dense(counts(60, 4)),
    "all equal": lambda: SalesMatrix.from_dense(np.full((10, 8), 5)),
    "nearly nothing sold": lambda: SalesMatrix.from_dense(np.eye(12, 10, dtype=np.int64)),
    "a zero row": with_zero_row,
    "a zero column": with_zero_column,
    "unobserved lines": with_unobserved_lines,
    "single entries": with_single_entries,
    "one huge count": with_one_huge_count,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("edge", EDGES)
def test_edges_give_finite_probabilities(edge, mode):
    check(detector(mode).fit(EDGES[edge]()))


@pytest.mark.parametrize("mode", ["auto", "thorough", "variational"])
def test_a_zero_among_good_sellers_is_above_a_whole_row_of_zeros(mode):
    """A store that sells nothing at all has low expected sales; one missing pair stands out."""
    x = counts(20, 15, mean=15.0)
    x[4] = 0
    x[9, 3] = 0
    fit = check(detector(mode).fit(SalesMatrix.from_dense(x)))
    probability = fit.sales.to_dense(fit.anomaly_probability_)
    assert probability[9, 3] > 0.8
    assert probability[9, 3] > probability[4].mean()


@pytest.mark.parametrize("mode", ["thorough", *MODES])
def test_nothing_sold_anywhere_is_refused(mode):
    with pytest.raises(FitError, match="sold zero"):
        detector(mode).fit(SalesMatrix.from_dense(np.zeros((6, 5), dtype=np.int64)))


@pytest.mark.parametrize("mode", ["thorough", *MODES])
def test_two_pairs_are_too_few(mode):
    with pytest.raises(FitError, match="only 2 pairs"):
        detector(mode).fit(SalesMatrix.from_dense(np.array([[3, 5]])))


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "bayes"},
        {"noise": "gaussian"},
        {"probability": "score"},
        {"anomaly": "lognormal"},
        {"anomaly": 42},
        {"rank": 13},  # the matrix is 15 x 12
        {"rank": 0},
        {"rank": -1},
        {"rank": 2.5},
        {"rank": True},
        {"rank": "best"},
        {"max_rank": 0},
        {"n_threads": 0},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused_when_fitting(options):
    wrong = detector(**options)  # the constructor only stores
    with pytest.raises(UsageError):
        wrong.fit(SalesMatrix.from_dense(counts()))


@pytest.mark.parametrize("drop_fraction", [0.0, -0.5, 1.5, float("nan")])
def test_a_drop_fraction_that_is_none_is_refused(drop_fraction):
    wrong = detector("variational", probability="drop", drop_fraction=drop_fraction)
    sales = SalesMatrix.from_dense(counts())
    with pytest.raises(UsageError):
        wrong.fit(sales).decide(EQUAL)


def test_a_level_of_the_wrong_length_is_refused():
    sales = SalesMatrix.from_dense(counts())
    with pytest.raises(DataError, match="180 observed pairs"):
        detector().fit(sales, level=np.ones(179))
    with pytest.raises(DataError, match="180 observed pairs"):
        detector().fit(sales, level=np.ones((15, 12)))


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_level_that_is_no_positive_number_is_refused_by_name(bad):
    sales = SalesMatrix.from_dense(
        counts(),
        store_ids=[f"S{i:02d}" for i in range(15)],
        sku_ids=[f"K{j:02d}" for j in range(12)],
    )
    level = np.ones(180)
    level[12 * 3 + 5] = bad
    with pytest.raises(DataError, match="S03/K05"):
        detector().fit(sales, level=level)


@pytest.mark.parametrize("mode", ["thorough", "variational"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_role_swap_is_never_silent(mode, seed):
    """With nearly half of the pairs anomalous, the two components can change places."""
    settings = EnsembleSettings(
        n=60, m=60, rank=2, mean=8.0, observed_share=0.9, anomaly_rate=0.45, alpha=0.8
    )
    fit = check(detector(mode).fit(draw_instance(settings, np.random.default_rng(seed)).sales))
    theta = fit.theta_
    assert theta.at_bound or not theta.identified or not fit.converged_ or fit.warnings_


@pytest.mark.parametrize("mode", ["thorough", "variational"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_almost_nothing_is_flagged_where_there_is_nothing_to_find(mode, seed):
    settings = EnsembleSettings(n=40, m=40, rank=2, mean=5.0, observed_share=0.9, anomaly_rate=0.0)
    fit = check(detector(mode).fit(draw_instance(settings, np.random.default_rng(seed)).sales))
    assert fit.decide(EQUAL).mean() < 0.01


def test_a_fit_that_did_not_converge_says_so(monkeypatch):
    from ew_pipeline.method.sampler import tier

    monkeypatch.setattr(tier, "R_HAT_LIMIT", 0.0)  # no chains can be this close
    fit = detector("thorough").fit(SalesMatrix.from_dense(counts()))
    assert fit.converged_ is False
    assert any("did not converge" in words for words in fit.warnings_)
    assert fit.diagnostics_["sampler_runs"] == 2.0


def test_no_anomalies_is_a_warning():
    settings = EnsembleSettings(n=40, m=40, rank=1, mean=5.0, observed_share=1.0, anomaly_rate=0.0)
    fit = detector("variational").fit(draw_instance(settings, np.random.default_rng(1)).sales)
    assert not fit.theta_.identified
    assert any("not identified" in words for words in fit.warnings_)
