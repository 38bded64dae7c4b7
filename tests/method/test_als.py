import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method import entry_blocks
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.large import _als_kernels
from ew_pipeline.method.large._als_kernels import Lines, Prior, Variance, gram, half_sweep
from ew_pipeline.method.large.als import balanced
from ew_pipeline.method.paper.denoise import zero_filled_svd
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.bench.als import als


def seeded(seed=0):
    return np.random.default_rng(seed)


def drawn(seed, n=40, m=30, rank=2, observed_share=0.6, mean=8.0):
    rng = seeded(seed)
    rates = rng.gamma(1.0, 1.0, (n, rank)) @ rng.gamma(1.0, 1.0, (m, rank)).T
    rates *= mean / rates.mean()
    return SalesMatrix.from_dense(rng.poisson(rates), rng.random((n, m)) < observed_share)


def frozen(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("rank", [1, 2, 3, 6])
@pytest.mark.parametrize("with_level", [False, True])
@pytest.mark.parametrize("constant", [3.0, 0.0])
def test_each_row_solves_its_weighted_ridge_regression(rank, with_level, constant):
    rng = seeded(rank)
    n, m, ridge, floor = 70, 600, 0.3, 0.4  # rows longer than one chunk, more than one block
    sales = drawn(rank, n, m)
    level = rng.uniform(0.5, 2.0, sales.n_observed) if with_level else np.empty(0)
    U, V = rng.standard_normal((n, rank)), rng.standard_normal((m, rank))
    new, loss = half_sweep(
        Lines(sales.indptr, sales.cols, sales.counts, frozen(level), frozen(np.empty(0))),
        V,
        U,
        prior=Prior.ridge(rank, ridge),
        floor=floor,
        variance=Variance(constant=constant),
    )
    for i in range(n):
        entries = slice(sales.indptr[i], sales.indptr[i + 1])
        L = level[entries] if with_level else 1.0
        v = V[sales.cols[entries]]
        x = sales.counts[entries]
        w = 1.0 / (L * (constant or np.maximum(v @ U[i], floor))) * np.ones(x.size)
        design = np.broadcast_to(L, x.shape)[:, None] * v
        H = (design * w[:, None]).T @ design + ridge * np.eye(rank)
        expected = np.linalg.solve(H, design.T @ (w * x))
        np.testing.assert_allclose(new[i], expected, rtol=1e-8, atol=1e-10)
        assert loss[i] == pytest.approx(np.sum(w * (x - design @ expected) ** 2), rel=1e-6)


@given(seed=st.integers(0, 10_000), rank=st.integers(1, 5), n=st.integers(5, 25), m=st.integers(5, 25))
@settings(max_examples=40, deadline=None)
def test_least_squares_sweeps_never_raise_the_objective(seed, rank, n, m):
    path = als(
        drawn(seed, n, m), rank, seeded(seed), sweeps_least_squares=12, sweeps_poisson=0
    ).objective_path
    assert len(path) == 12
    assert (np.diff(path) <= 1e-9 * path[0]).all()


def test_the_last_objective_is_that_of_the_factors():
    sales = drawn(4)
    fit = als(sales, 2, seeded(), sweeps_least_squares=5, sweeps_poisson=0, ridge=0.7)
    mean = sales.counts.mean()
    factors = fit.factors
    penalty = 0.7 * 2 / mean * (np.sum(factors.left**2) + np.sum(factors.right**2))
    squares = np.sum((sales.counts - factors.rates_at(sales)) ** 2) / mean
    assert fit.objective_path[-1] == pytest.approx(squares + penalty)
    assert fit.n_iter == 5


def test_poisson_weights_lead_to_the_likelihood_fit_which_at_rank_one_keeps_all_row_and_column_sums():
    counts = seeded(8).poisson(np.outer([2.0, 5.0, 9.0, 30.0], [1.0, 2.0, 4.0])) + 1
    fit = als(SalesMatrix.from_dense(counts), 1, seeded(), sweeps_poisson=200, ridge=1e-9, floor=1e-6)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    np.testing.assert_allclose(fit.factors.dense(), expected, rtol=1e-6)
    least_squares = als(SalesMatrix.from_dense(counts), 1, seeded(), sweeps_poisson=0, ridge=1e-9)
    assert np.abs(least_squares.factors.dense() / expected - 1).max() > 0.01


def test_with_a_level_the_factors_are_the_ratio_to_it():
    rng = seeded(2)
    ratio = np.outer([1, 2, 3, 4], [5, 6, 7])
    level = rng.integers(100, 1000, ratio.shape)
    fit = als(SalesMatrix.from_dense(level * ratio), 1, seeded(), level=level.ravel())
    np.testing.assert_allclose(fit.factors.dense(), ratio, rtol=1e-3)


def test_a_level_of_one_is_no_level():
    sales = drawn(3)
    with_it, without = als(sales, 2, seeded(), level=np.ones(sales.n_observed)), als(sales, 2, seeded())
    np.testing.assert_allclose(with_it.factors.dense(), without.factors.dense(), rtol=1e-9)


def test_a_start_at_the_answer_stays_there():
    sales = drawn(3)
    answer = als(sales, 2, seeded(), sweeps_poisson=200).factors
    again = als(sales, 2, seeded(1), sweeps_least_squares=0, sweeps_poisson=1, start=answer).factors
    np.testing.assert_allclose(again.dense(), answer.dense(), rtol=1e-6)


def test_on_sparse_data_it_is_near_the_truth_where_the_zero_filled_svd_is_not():
    rng = seeded(5)
    rates = rng.gamma(1.0, 1.0, (400, 2)) @ rng.gamma(1.0, 1.0, (300, 2)).T * 3
    observed = rng.random(rates.shape) < 0.08
    sales = SalesMatrix.from_dense(rng.poisson(rates), observed)
    truth = rates[observed]
    error = np.linalg.norm(als(sales, 2, seeded()).factors.rates_at(sales) - truth)
    assert error < 0.5 * np.linalg.norm(sales.counts - truth)
    assert error < 0.1 * np.linalg.norm(zero_filled_svd(sales, 2, seeded()).rates_at(sales) - truth)


def test_unobserved_rows_and_columns_get_the_mean_of_the_others():
    counts = 100 * np.ones((5, 6), dtype=int)
    observed = np.ones((5, 6), dtype=bool)
    observed[2] = False
    observed[:, 4] = False
    rates = als(SalesMatrix.from_dense(counts, observed), 1, seeded()).factors.dense()
    np.testing.assert_allclose(rates, 100.0, rtol=1e-2)


def test_result_is_the_same_to_the_bit_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(entry_blocks, "WORTH_A_THREAD", 1)
    sales = drawn(6, n=300, m=200)
    one, many = (als(sales, 3, seeded(), threads=k).factors for k in (1, 3))
    np.testing.assert_array_equal(many.left, one.left)
    np.testing.assert_array_equal(many.right, one.right)


def test_compiles_once_for_rows_columns_levels_and_starts():
    sales = drawn(7)
    first = als(sales, 2, seeded(), level=np.ones(sales.n_observed))
    compiled = list(_als_kernels.solve_lines.signatures)
    als(sales.transpose(), 2, seeded())
    als(sales, 2, seeded(), start=first.factors)
    assert list(_als_kernels.solve_lines.signatures) == compiled


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": [1.0, 2.0]}, "shape"),
        ({"level": [1.0, 0.0, 1.0, 1.0]}, r"1 levels .*entries 1"),
        ({"level": [1.0, np.nan, -1.0, np.inf]}, r"3 levels .*entries 1, 2, 3"),
        ({"ridge": 0.0}, "ridge"),
        ({"floor": 0.0}, "floor"),
        ({"sweeps_least_squares": 0, "sweeps_poisson": 0}, "sweep"),
        ({"sweeps_poisson": -1}, "sweep"),
        ({"start": LowRankFactors(left=np.ones((2, 2)), right=np.ones((2, 2)))}, "rank 2"),
        ({"start": LowRankFactors(left=np.ones((3, 1)), right=np.ones((2, 1)))}, "3 x 2"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(UsageError, match=message):
        als(SalesMatrix.from_dense([[1, 2], [3, 4]]), 1, seeded(), **arguments)


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-12), (np.float32, 2e-6)])
def test_balanced_factors_keep_the_product_and_share_its_singular_values(dtype, error):
    rng = np.random.default_rng(8)
    U, V = rng.gamma(2.0, 1.0, (60, 4)).astype(dtype), rng.gamma(2.0, 5.0, (40, 4)).astype(dtype)
    left, right = balanced(U, V)
    assert left.dtype == dtype
    product = U.astype(np.float64) @ V.T
    np.testing.assert_allclose(left.astype(np.float64) @ right.T, product, rtol=error)
    values = np.linalg.svd(product, compute_uv=False)[:4]
    for side in (left, right):  # least norm: orthogonal columns with the roots of the singular values
        np.testing.assert_allclose(gram(side), np.diag(values), atol=10 * error * values[0])


def test_balanced_survives_a_direction_that_carries_nothing():
    U, V = np.ones((5, 2)), np.ones((4, 2))
    V[:, 1] = 0.0
    left, right = balanced(U, V)
    np.testing.assert_allclose(left @ right.T, np.ones((5, 4)), rtol=1e-9)
