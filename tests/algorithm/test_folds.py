import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.algorithm.als import als
from ew_pipeline.algorithm.factors import LowRankFactors
from ew_pipeline.algorithm.folds import entry_folds, held_out_curve, log_probability
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.errors import FitError, UsageError


def seeded(seed=0):
    return np.random.default_rng(seed)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 12),
    m=st.integers(2, 12),
    observed_share=st.floats(0.3, 1.0),
    n_folds=st.integers(2, 5),
)
@settings(max_examples=60, deadline=None)
def test_no_row_or_column_loses_its_last_entry(seed, n, m, observed_share, n_folds):
    observed = seeded(seed).random((n, m)) < observed_share
    observed[0, 0] = True
    sales = SalesMatrix.from_dense(np.ones((n, m), dtype=int), observed)
    try:
        folds = entry_folds(sales, n_folds, seeded(seed))
    except FitError:
        return
    held_out = np.sum([test for _, test in folds], axis=0)
    assert held_out.max() == 1
    assert (held_out == 0).sum() <= n + m
    for train, test in folds:
        np.testing.assert_array_equal(train, ~test)
        assert test.any()
        assert set(sales.rows[train]) == set(sales.rows)
        assert set(sales.cols[train]) == set(sales.cols)


def test_a_full_table_is_held_out_once_in_equal_parts():
    folds = entry_folds(SalesMatrix.from_dense(np.ones((10, 12), dtype=int)), 5, seeded())
    assert [test.sum() for _, test in folds] == [24] * 5
    np.testing.assert_array_equal(np.sum([test for _, test in folds], axis=0), 1)


def test_folds_follow_the_seed():
    sales = SalesMatrix.from_dense(np.ones((10, 12), dtype=int))
    first, again, other = (entry_folds(sales, 2, seeded(s))[0][1] for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("shape", [(1, 8), (8, 1)])
def test_one_line_has_nothing_to_hold_out(shape):
    with pytest.raises(FitError, match=r"2 of 2 folds are empty: 8 of 8 entries"):
        entry_folds(SalesMatrix.from_dense(np.ones(shape, dtype=int)), 2, seeded())


def test_one_fold_is_refused():
    with pytest.raises(UsageError, match="1 folds"):
        entry_folds(SalesMatrix.from_dense(np.ones((4, 4), dtype=int)), 1, seeded())


def test_log_probabilities_are_those_of_scipy():
    x, rates = np.arange(6, dtype=np.int32), np.array([0.1, 1.0, 2.5, 3.0, 40.0, 0.01])
    np.testing.assert_allclose(log_probability(x, rates, np.inf), scipy.stats.poisson.logpmf(x, rates))
    for size in (0.7, 5.0):
        expected = scipy.stats.nbinom.logpmf(x, size, size / (size + rates))
        np.testing.assert_allclose(log_probability(x, rates, size), expected)


def test_negative_binomial_of_great_size_is_poisson():
    x, rates = np.arange(6, dtype=np.int32), np.linspace(0.5, 9.0, 6)
    np.testing.assert_allclose(log_probability(x, rates, 1e7), log_probability(x, rates, np.inf), atol=1e-5)


def constant(rate, sales):
    n, m = sales.shape
    return LowRankFactors(left=np.full((n, 1), rate), right=np.ones((m, 1)))


@pytest.fixture
def fours():
    return SalesMatrix.from_dense(np.full((10, 10), 4))


def test_score_is_the_mean_log_probability_of_what_was_hidden(fours):
    folds = entry_folds(fours, 5, seeded())
    rate_of = {1: 2.0, 2: 4.0, 3: 5.0}
    curve = held_out_curve(fours, (3, 1, 2), lambda train, rank: constant(rate_of[rank], train), folds)
    assert curve.ranks == (1, 2, 3)
    np.testing.assert_allclose(curve.scores, scipy.stats.poisson.logpmf(4, [2.0, 4.0, 5.0]))
    assert curve.best == 2
    # every entry is alike, so the shortfalls are certain
    np.testing.assert_allclose(curve.standard_errors, 0.0, atol=1e-9)
    assert curve.one_standard_error == 2


def test_a_smaller_rank_within_one_standard_error_is_named():
    counts = seeded(4).poisson(10.0, (20, 20))
    sales = SalesMatrix.from_dense(counts)
    mean = float(counts.mean())
    rate_of = {1: 0.5 * mean, 2: 1.0005 * mean, 3: mean}
    folds = entry_folds(sales, 4, seeded())
    curve = held_out_curve(sales, (1, 2, 3), lambda train, rank: constant(rate_of[rank], train), folds)
    assert curve.best == 3
    assert curve.one_standard_error == 2
    difference = log_probability(sales.counts, np.full(400, mean), np.inf) - log_probability(
        sales.counts, np.full(400, 0.5 * mean), np.inf
    )
    assert curve.standard_errors[0] == pytest.approx(difference.std(ddof=1) / 20)
    assert curve.standard_errors[2] == 0.0


def test_a_denoiser_that_predicts_nothing_or_less_gets_a_finite_score(fours):
    folds = entry_folds(fours, 2, seeded())
    curve = held_out_curve(fours, [1], lambda train, rank: constant(-3.0, train), folds, floor=0.25)
    assert curve.scores[0] == pytest.approx(scipy.stats.poisson.logpmf(4, 1.0))


def test_size_scores_by_the_negative_binomial(fours):
    folds = entry_folds(fours, 2, seeded())
    curve = held_out_curve(fours, [1], lambda train, rank: constant(4.0, train), folds, size=2.0)
    assert curve.scores[0] == pytest.approx(scipy.stats.nbinom.logpmf(4, 2, 2 / 6))


def test_the_denoiser_sees_the_training_entries_and_their_levels_only():
    sales = SalesMatrix.from_dense(np.arange(36).reshape(6, 6))
    level = np.arange(36) + 1.0
    seen = []

    def fit_rates(train, rank, train_level):
        np.testing.assert_array_equal(train_level, train.counts + 1.0)
        seen.append(set(train.counts.tolist()))
        return constant(1.0, train)

    folds = entry_folds(sales, 3, seeded())
    curve = held_out_curve(sales, [1], fit_rates, folds, level=level)
    hidden = [set(sales.counts[test].tolist()) for _, test in folds]
    assert all(not a & b for a, b in zip(seen, hidden, strict=True))
    scored = np.concatenate([sales.counts[test] for _, test in folds])
    assert curve.scores[0] == pytest.approx(scipy.stats.poisson.logpmf(scored, scored + 1.0).mean())


def test_finds_the_rank_of_clear_data():
    rng = seeded(1)
    rates = rng.gamma(1.0, 1.0, (60, 3)) @ rng.gamma(1.0, 1.0, (80, 3)).T * 30
    sales = SalesMatrix.from_dense(rng.poisson(rates), rng.random(rates.shape) < 0.8)
    curve = held_out_curve(
        sales, range(1, 7), lambda train, rank: als(train, rank, seeded()).factors, entry_folds(sales, 5, rng)
    )
    assert curve.best == 3


def test_nothing_to_compare_is_refused(fours):
    with pytest.raises(UsageError, match="nothing to compare"):
        held_out_curve(fours, [], lambda train, rank: constant(1.0, train), entry_folds(fours, 2, seeded()))
