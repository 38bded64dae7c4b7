"""DRMF, Stable-PCP and RMC on matrices whose right answer is obvious by eye."""

from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.baselines import BOUND, METHODS, distance, largest, stable_pcp

SHAPE = (20, 24)


def stores_times_skus(missing: float) -> tuple[SalesMatrix, np.ndarray, np.ndarray]:
    """Rank one without noise; a twentieth of the observed pairs sold nothing. With M and where they are."""
    rng = np.random.default_rng(5)
    M = np.outer(rng.integers(2, 6, SHAPE[0]), rng.integers(10, 20, SHAPE[1])).astype(float)
    lost = np.zeros(SHAPE, dtype=bool)
    lost.ravel()[rng.choice(lost.size, lost.size // 20, replace=False)] = True
    observed = rng.random(SHAPE) >= missing
    sales = SalesMatrix.from_dense(np.where(lost, 0, M).astype(int), observed)
    return sales, M, lost[sales.rows, sales.cols]


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_lost_sales_in_a_matrix_of_rank_one_are_found_exactly(method, one_sided, missing):
    sales, _, lost = stores_times_skus(missing)
    share = lost.mean()
    fitted = METHODS[method](sales, 1, share).at(sales)
    size = distance(sales.counts.astype(float), fitted, one_sided=one_sided)
    np.testing.assert_array_equal(largest(size, share), lost)


def test_drmf_takes_the_anomalies_whole_and_so_recovers_m_everywhere():
    sales, M, lost = stores_times_skus(0.3)
    np.testing.assert_allclose(METHODS["drmf"](sales, 1, lost.mean()).dense(), M, rtol=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_m_at_the_observed_pairs_is_m_everywhere_read_there(method):
    sales, _, _ = stores_times_skus(0.3)
    M = METHODS[method](sales, 2, 0.05)
    np.testing.assert_allclose(M.at(sales), M.dense()[sales.rows, sales.cols])


def test_one_sided_distance_counts_only_sales_below_expectation():
    units, fitted = np.array([5.0, 5.0, 5.0]), np.array([8.0, 5.0, 1.0])
    assert distance(units, fitted, one_sided=True).tolist() == [3.0, 0.0, 0.0]
    assert distance(units, fitted, one_sided=False).tolist() == [3.0, 0.0, 4.0]


def test_the_largest_share_is_flagged_and_a_pair_on_its_expectation_never():
    size = np.array([0.0, 4.0, 1.0, 3.0, 2.0])
    assert largest(size, 0.4).tolist() == [False, True, False, True, False]
    assert not largest(size, 0.0).any()
    assert largest(np.array([0.0, 0.0, 1.0]), 1.0).tolist() == [False, False, True]


def test_rmc_is_stable_pcp_within_its_bound():
    sales, M, _ = stores_times_skus(0.0)
    tight = stable_pcp(sales, 1, 0.05, bound=20.0)
    assert np.abs(tight.dense()).max() == 20.0 < M.max()
    rmc, free = METHODS["rmc"](sales, 1, 0.05), METHODS["stable-pcp"](sales, 1, 0.05)
    assert rmc.bound >= BOUND * np.quantile(sales.counts, 0.99)
    np.testing.assert_array_equal(rmc.dense(), free.dense())
