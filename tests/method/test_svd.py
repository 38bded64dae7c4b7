import numpy as np
import pytest

from ew_pipeline.method.paper.denoise import thin_svd, zero_filled_svd
from ew_pipeline.method.sales_matrix import SalesMatrix


def seeded(seed=0):
    return np.random.default_rng(seed)


def test_unobserved_entries_count_as_zero_and_the_rest_is_scaled_up_by_nm_over_omega():
    sales = SalesMatrix.from_dense([[4, 9], [0, 0]], observed=[[True, False], [False, False]])
    np.testing.assert_allclose(zero_filled_svd(sales, 1, seeded()).dense(), [[16, 0], [0, 0]], atol=1e-12)


def test_an_observed_zero_changes_the_scale_but_not_the_direction():
    sales = SalesMatrix.from_dense([[4, 9], [0, 0]], observed=[[True, False], [True, False]])
    np.testing.assert_allclose(zero_filled_svd(sales, 1, seeded()).dense(), [[8, 0], [0, 0]], atol=1e-12)


@pytest.mark.parametrize("shape", [(20, 30), (90, 70), (70, 90)])  # dense, then Lanczos both ways round
@pytest.mark.parametrize("rank", [1, 4])
def test_equals_the_truncated_svd_of_the_filled_matrix(shape, rank):
    rng = seeded(3)
    counts, observed = rng.poisson(5.0, shape), rng.random(shape) < 0.6
    U, s, Vt = np.linalg.svd(np.where(observed, counts, 0) * observed.size / observed.sum())
    factors = zero_filled_svd(SalesMatrix.from_dense(counts, observed), rank, rng)
    np.testing.assert_allclose(factors.dense(), (U[:, :rank] * s[:rank]) @ Vt[:rank], atol=1e-9)


def test_factors_share_the_singular_values_evenly_largest_first():
    factors = zero_filled_svd(SalesMatrix.from_dense(seeded(1).poisson(4.0, (80, 90))), 3, seeded())
    left, right = factors.left.T @ factors.left, factors.right.T @ factors.right
    np.testing.assert_allclose(left, np.diag(factors.singular_values()), atol=1e-9)
    np.testing.assert_allclose(right, left, atol=1e-9)
    assert (np.diff(np.diag(left)) < 0).all()


def test_signs_do_not_depend_on_the_start_vector():
    sales = SalesMatrix.from_dense(seeded(1).poisson(4.0, (80, 90)))
    first, second = zero_filled_svd(sales, 3, seeded(1)), zero_filled_svd(sales, 3, seeded(2))
    np.testing.assert_allclose(first.left, second.left, atol=1e-8)
    assert (np.take_along_axis(first.left, np.abs(first.left).argmax(axis=0)[None], axis=0) > 0).all()


def test_a_rank_above_that_of_the_counts_adds_nothing():
    counts = np.outer(np.arange(1, 71), np.arange(1, 61))
    factors = zero_filled_svd(SalesMatrix.from_dense(counts), 3, seeded())
    np.testing.assert_allclose(factors.dense(), counts, rtol=1e-9)


def test_thin_svd_is_the_svd_of_the_product():
    rng = seeded(5)
    left, right = rng.standard_normal((9, 3)), rng.standard_normal((7, 3))
    U, s, V = thin_svd(left, right)
    np.testing.assert_allclose((U * s) @ V.T, left @ right.T, atol=1e-12)
    np.testing.assert_allclose(s, np.linalg.svd(left @ right.T, compute_uv=False)[:3], atol=1e-12)
