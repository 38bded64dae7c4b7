"""What every denoiser of step 1 owes: the same questions to all of them.

A denoiser is a function of (sales, rank, rng) that returns ``LowRankFactors``. To hold a new one to the
contract, add it to ``DENOISERS``.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.paper.denoise import soft_impute_to_rank, zero_filled_svd
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.bench.als import als

# More sweeps than by default: equivariance is a property of the converged answer.
DENOISERS = {
    "zero_filled_svd": zero_filled_svd,
    "soft_impute": lambda sales, rank, rng: soft_impute_to_rank(sales, rank, rng, tolerance=1e-6).factors,
    "als": lambda sales, rank, rng: als(sales, rank, rng, sweeps_poisson=150).factors,
}


@pytest.fixture(params=DENOISERS)
def denoise(request):
    return DENOISERS[request.param]


def seeded(seed=0):
    return np.random.default_rng(seed)


def noisy(n, m, rank, observed_share, seed=0, mean=20.0):
    """Poisson counts of well separated directions, so that the answer is not a matter of luck."""
    rng = seeded(seed)
    rates = rng.gamma(0.7, 1.0, (n, rank)) @ rng.gamma(0.7, 1.0, (m, rank)).T
    counts = rng.poisson(mean * rates / rates.mean())
    return counts, rng.random((n, m)) < observed_share


def relative_error(estimate, truth):
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize(("n", "m"), [(20, 20), (12, 30), (30, 12)])
def test_factors_have_the_shape_and_rank_and_are_finite_and_read_only(denoise, n, m):
    counts, observed = noisy(n, m, 3, 0.7)
    factors = denoise(SalesMatrix.from_dense(counts, observed), 3, seeded())
    assert factors.left.shape == (n, 3)
    assert factors.right.shape == (m, 3)
    assert np.isfinite(factors.dense()).all()
    assert not factors.left.flags.writeable


def test_rates_on_average_are_near_the_counts_and_not_negative_after_a_floor(denoise):
    counts, observed = noisy(30, 40, 2, 0.8)
    sales = SalesMatrix.from_dense(counts, observed)
    rates = np.maximum(denoise(sales, 2, seeded()).rates_at(sales), 0.0)
    assert (rates >= 0.0).all()
    assert rates.mean() == pytest.approx(sales.counts.mean(), rel=0.2)


def test_recovers_a_noiseless_rank_one_table(denoise):
    counts = 1000 * np.outer([1, 2, 3, 4, 5], [1, 2, 3, 4])
    factors = denoise(SalesMatrix.from_dense(counts), 1, seeded())
    np.testing.assert_allclose(factors.dense(), counts, rtol=0.01)


def test_recovers_a_noiseless_checkerboard_at_rank_two(denoise):
    counts = np.where(np.add.outer(np.arange(8), np.arange(6)) % 2 == 0, 30_000, 10_000)
    factors = denoise(SalesMatrix.from_dense(counts), 2, seeded())
    np.testing.assert_allclose(factors.dense(), counts, rtol=0.01)


def test_same_seed_same_answer(denoise):
    counts, observed = noisy(60, 50, 3, 0.5)
    sales = SalesMatrix.from_dense(counts, observed)
    first, second = denoise(sales, 3, seeded(7)), denoise(sales, 3, seeded(7))
    np.testing.assert_array_equal(first.left, second.left)
    np.testing.assert_array_equal(first.right, second.right)


@pytest.mark.parametrize("observed_share", [1.1, 0.5])
def test_order_of_stores_and_skus_does_not_matter(denoise, observed_share):
    counts, observed = noisy(40, 55, 2, observed_share)
    rows, cols = seeded(1).permutation(40), seeded(2).permutation(55)
    straight = denoise(SalesMatrix.from_dense(counts, observed), 2, seeded()).dense()
    shuffled = denoise(SalesMatrix.from_dense(counts[rows][:, cols], observed[rows][:, cols]), 2, seeded())
    assert relative_error(shuffled.dense(), straight[rows][:, cols]) < 1e-6


@pytest.mark.parametrize("observed_share", [1.1, 0.5])
def test_stores_and_skus_may_change_places(denoise, observed_share):
    counts, observed = noisy(40, 55, 2, observed_share)
    sales = SalesMatrix.from_dense(counts, observed)
    straight = denoise(sales, 2, seeded()).dense()
    assert relative_error(denoise(sales.transpose(), 2, seeded()).dense().T, straight) < 1e-6


def test_a_store_that_sold_nothing_gets_rates_near_zero(denoise):
    counts, _ = noisy(20, 30, 2, 1.0)
    counts[4] = 0
    rates = denoise(SalesMatrix.from_dense(counts), 2, seeded()).dense()
    assert np.abs(rates[4]).max() < 0.02 * counts.mean()


def test_an_unobserved_sku_leaves_the_others_alone(denoise):
    counts, observed = noisy(20, 30, 2, 1.1)
    observed[:, 7] = False
    with_gap = SalesMatrix.from_dense(counts, observed)
    without = SalesMatrix.from_dense(np.delete(counts, 7, axis=1))
    rates = denoise(with_gap, 2, seeded()).dense()
    assert np.isfinite(rates).all()
    others = np.delete(rates, 7, axis=1)
    expected = denoise(without, 2, seeded()).dense()
    # Algorithm 1 scales by the share observed over all SKUs, the empty one included.
    assert relative_error(others * expected.sum() / others.sum(), expected) < 1e-6


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (1, 1)])
def test_one_line_is_its_own_answer(denoise, shape):
    counts = (1000 * np.arange(1, 1 + max(shape))).reshape(shape)
    rates = denoise(SalesMatrix.from_dense(counts), 1, seeded()).dense()
    np.testing.assert_allclose(rates, counts, rtol=0.01)


def test_no_sale_at_all_gives_rates_of_zero(denoise):
    rates = denoise(SalesMatrix.from_dense(np.zeros((5, 60), dtype=int)), 2, seeded()).dense()
    assert not rates.any()


@pytest.mark.parametrize("rank", [0, -1, 5])
def test_impossible_ranks_are_refused_with_the_possible_ones(denoise, rank):
    with pytest.raises(UsageError, match=r"rank .* 4 x 9 (.|\n)*from 1 to 4"):
        denoise(SalesMatrix.from_dense(np.ones((4, 9), dtype=int)), rank, seeded())


def test_never_forms_the_dense_matrix(denoise):
    n, m = 4000, 3000  # 96 MB as a dense array of floats
    rng = seeded()
    cells = rng.choice(n * m, size=30_000, replace=False)
    sales = SalesMatrix.from_coo(cells // m, cells % m, rng.poisson(5.0, cells.size), (n, m))
    sales.by_column  # noqa: B018  (cached; not the denoiser's memory)
    tracemalloc.start()
    try:
        denoise(sales, 1, rng)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40e6
