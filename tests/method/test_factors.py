"""LowRankFactors: the product at the observed pairs, without forming it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ew_pipeline import SalesMatrix
from ew_pipeline.core.errors import FitError, UsageError
from ew_pipeline.method.factors import LowRankFactors


def test_rates_are_the_products_at_the_observed_pairs():
    # M = [[1], [2]] [[10], [20], [30]]^T = [[10, 20, 30], [20, 40, 60]]
    factors = LowRankFactors(np.array([[1.0], [2.0]]), np.array([[10.0], [20.0], [30.0]]))
    sales = SalesMatrix.from_dense(np.zeros((2, 3)), [[True, False, True], [False, True, False]])
    assert_array_equal(factors.rates_at(sales), [10, 30, 40])
    assert_array_equal(factors.dense(), [[10, 20, 30], [20, 40, 60]])
    assert (factors.rank, factors.shape) == (1, (2, 3))


def test_a_mixture_of_factors_is_the_mixture_of_their_products():
    one = LowRankFactors(np.array([[1.0], [2.0]]), np.array([[10.0], [20.0]]))
    other = LowRankFactors(np.eye(2), np.array([[8.0, 0.0], [0.0, 4.0]]))
    assert_allclose(one.mixed(other, 0.25).dense(), [[9.5, 15.0], [15.0, 31.0]])


def test_singular_values_of_a_diagonal_are_its_entries():
    factors = LowRankFactors(np.diag([2.0, 5.0]), np.eye(2))
    assert_allclose(factors.singular_values(), [5, 2])


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_gather_and_singular_values_agree_with_the_dense_product(n, m, rank, seed):
    rng = np.random.default_rng(seed)
    factors = LowRankFactors(rng.normal(size=(n, rank)), rng.normal(size=(m, rank)))
    observed = rng.random((n, m)) < 0.6
    observed[0, 0] = True
    sales = SalesMatrix.from_dense(np.zeros((n, m)), observed)
    assert_allclose(factors.rates_at(sales), factors.dense()[observed], atol=1e-12)
    found = np.linalg.svd(factors.dense(), compute_uv=False)[:rank]
    assert_allclose(factors.singular_values(), np.pad(found, (0, rank - found.size)), atol=1e-12)


def test_factors_and_results_are_read_only_and_apart_from_the_callers_arrays():
    left = np.ones((2, 1))
    factors = LowRankFactors(left, np.ones((2, 1)))
    left[0, 0] = 99.0
    assert factors.left[0, 0] == 1.0
    sales = SalesMatrix.from_dense(np.zeros((2, 2)))
    for array in (factors.left, factors.right, factors.rates_at(sales), factors.singular_values()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


def test_sales_of_another_shape_are_refused():
    factors = LowRankFactors(np.ones((2, 1)), np.ones((3, 1)))
    with pytest.raises(UsageError, match="2 x 3 pairs and the sales are 3 x 2"):
        factors.rates_at(SalesMatrix.from_dense(np.zeros((3, 2))))


def test_factors_of_different_rank_or_dimension_are_refused():
    with pytest.raises(UsageError, match="rank 2 and the right 1"):
        LowRankFactors(np.ones((2, 2)), np.ones((2, 1)))
    with pytest.raises(UsageError, match="right factor has 1 dimensions"):
        LowRankFactors(np.ones((2, 2)), np.ones(2))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_diverged_factorisation_is_a_fit_error(value):
    with pytest.raises(FitError, match="left factor has 1 entries that are not finite"):
        LowRankFactors(np.array([[1.0], [value]]), np.ones((2, 1)))
