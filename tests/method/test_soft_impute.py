import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.paper.denoise import soft_impute, soft_impute_to_rank
from ew_pipeline.method.sales_matrix import SalesMatrix


def seeded(seed=0):
    return np.random.default_rng(seed)


def drawn(seed, n=40, m=30, rank=3, observed_share=0.6):
    rng = seeded(seed)
    rates = rng.gamma(1.0, 1.0, (n, rank)) @ rng.gamma(1.0, 1.0, (m, rank)).T
    return SalesMatrix.from_dense(rng.poisson(4.0 * rates), rng.random((n, m)) < observed_share)


def residual_of(fit, sales):
    return sales.to_dense(sales.counts - fit.factors.rates_at(sales), fill=0.0)


def test_diagonal_counts_are_shrunk_by_the_penalty_and_small_ones_vanish():
    fit = soft_impute(SalesMatrix.from_dense(np.diag([9, 5, 2])), 3.0, 3, seeded())
    np.testing.assert_allclose(fit.factors.dense(), np.diag([6, 2, 0]), atol=1e-8)
    assert fit.factors.rank == 2
    assert fit.next_singular_value == pytest.approx(2.0)
    assert fit.objective == pytest.approx((3**2 + 3**2 + 2**2) / 2 + 3 * (6 + 2))
    assert fit.converged


def test_fully_observed_solution_is_the_soft_thresholded_svd():
    counts = seeded(2).poisson(6.0, (60, 50))
    U, s, Vt = np.linalg.svd(counts, full_matrices=False)
    fit = soft_impute(SalesMatrix.from_dense(counts), s[4], 10, seeded(), tolerance=1e-8)
    np.testing.assert_allclose(fit.factors.dense(), (U * np.maximum(s - s[4], 0)) @ Vt, atol=1e-4)


@given(seed=st.integers(0, 10_000), observed_share=st.floats(0.2, 1.0), shrink=st.floats(0.15, 0.9))
@example(
    seed=8260, observed_share=1.0, shrink=0.5
)  # exact after one step: rounding must not look like movement
@settings(max_examples=15, deadline=None)
def test_solution_meets_the_optimality_conditions(seed, observed_share, shrink):
    """0 is a subgradient: the residual is penalty * U V^T plus something orthogonal of norm <= penalty."""
    sales = drawn(seed, observed_share=observed_share)
    penalty = shrink * np.linalg.norm(sales.to_dense(fill=0.0), 2)
    fit = soft_impute(sales, penalty, 30, seeded(), tolerance=1e-8, max_iter=3000)
    assert fit.converged
    residual = residual_of(fit, sales)
    assert np.linalg.norm(residual, 2) <= penalty * (1 + 1e-4)
    U = fit.factors.left / np.linalg.norm(fit.factors.left, axis=0)
    V = fit.factors.right / np.linalg.norm(fit.factors.right, axis=0)
    np.testing.assert_allclose(U.T @ residual @ V, penalty * np.eye(fit.factors.rank), atol=1e-3 * penalty)
    nuclear = fit.factors.singular_values().sum()
    assert fit.objective == pytest.approx(0.5 * np.sum(residual**2) + penalty * nuclear)


def test_a_start_changes_the_time_but_not_the_solution():
    sales = drawn(1)
    cold = soft_impute(sales, 15.0, 20, seeded(), tolerance=1e-8)
    warm = soft_impute(sales, 15.0, 20, seeded(5), start=cold.factors, tolerance=1e-8)
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.factors.dense(), cold.factors.dense(), atol=1e-4)


def test_a_penalty_above_the_largest_singular_value_gives_zero():
    sales = drawn(1)
    fit = soft_impute(sales, 1.01 * np.linalg.norm(sales.to_dense(fill=0.0), 2), 5, seeded())
    assert not fit.factors.dense().any()
    assert fit.factors.rank == 1


def test_a_solution_cut_off_by_its_rank_cap_says_so():
    fit = soft_impute(drawn(1), 5.0, 2, seeded())
    assert fit.factors.rank == 2
    assert fit.next_singular_value > fit.penalty


def test_running_out_of_iterations_is_reported():
    assert not soft_impute(drawn(1), 5.0, 10, seeded(), tolerance=1e-9, max_iter=3).converged


@pytest.mark.parametrize("penalty", [-1.0, np.nan, np.inf])
def test_impossible_penalties_are_refused(penalty):
    with pytest.raises(UsageError, match="penalty"):
        soft_impute(drawn(1), penalty, 2, seeded())


@pytest.mark.parametrize("rank", [1, 2, 5, 9])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_penalty_for_a_rank_is_the_smallest_that_gives_it(rank, seed):
    sales = drawn(seed, n=60, m=50)
    fit = soft_impute_to_rank(sales, rank, seeded())
    assert fit.converged
    assert fit.factors.rank == rank
    at_it = soft_impute(sales, fit.penalty * 1.01, rank + 5, seeded(), tolerance=1e-7, max_iter=2000)
    below = soft_impute(sales, fit.penalty * 0.97, rank + 5, seeded(), tolerance=1e-7, max_iter=2000)
    assert at_it.factors.rank <= rank < below.factors.rank


def test_tied_singular_values_enter_together_so_rank_one_of_the_identity_is_zero():
    fit = soft_impute_to_rank(SalesMatrix.from_dense(np.eye(4, dtype=int)), 1, seeded())
    assert not fit.factors.dense().any()
    assert fit.penalty == pytest.approx(1.0)


def test_noiseless_gaps_are_filled_in():
    counts = 1000 * np.outer(np.arange(1, 41), np.arange(1, 31))
    observed = seeded(3).random(counts.shape) < 0.6
    fit = soft_impute_to_rank(SalesMatrix.from_dense(counts, observed), 2, seeded())
    np.testing.assert_allclose(fit.factors.dense(), counts, rtol=0.01)
