"""Stores and SKUs that sell alike, from the factors of a fit."""

from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.audit.explain import resemblance
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.sales_matrix import SalesMatrix


class Fit:
    """The parts of a fit that are looked at."""

    def __init__(self, left, right, counts, observed=None):
        self.factors_ = LowRankFactors(np.asarray(left, float), np.asarray(right, float))
        observed = np.ones(np.shape(counts), bool) if observed is None else np.asarray(observed)
        self.sales = SalesMatrix.from_dense(
            counts,
            observed,
            store_ids=[f"S{i}" for i in range(np.shape(counts)[0])],
            sku_ids=[f"K{j}" for j in range(np.shape(counts)[1])],
        )
        self.expected_sales_ = (self.factors_.left @ self.factors_.right.T)[observed]


LEFT = [[1, 0], [2, 0], [0, 3], [5, 0.1]]
RIGHT = [[4, 1], [1, 4], [3, 1], [1, 3]]
COUNTS = np.arange(16).reshape(4, 4)


def test_stores_of_the_same_taste_come_first_whatever_their_size():
    found = resemblance(Fit(LEFT, RIGHT, COUNTS), "S0", "K0")
    assert [one.name for one in found.stores] == ["S1", "S3", "S2"]
    assert found.stores[0].similarity == pytest.approx(1.0)
    assert found.stores[-1].similarity < 0
    assert found.skus[0].name == "K2"
    assert (found.stores[0].units, found.stores[0].expected_units) == (4, 8.0)


def test_the_answer_does_not_depend_on_how_the_matrix_is_split_in_two():
    turn = np.array([[2.0, 1.0], [0.5, 3.0]])
    one = resemblance(Fit(LEFT, RIGHT, COUNTS), "S0", "K0")
    two = resemblance(
        Fit(np.asarray(LEFT) @ turn, np.asarray(RIGHT) @ np.linalg.inv(turn).T, COUNTS), "S0", "K0"
    )
    for a, b in zip(one.stores + one.skus, two.stores + two.skus, strict=True):
        assert (a.name, a.similarity) == (b.name, pytest.approx(b.similarity))


def test_similarity_is_the_correlation_of_expected_sales():
    found = resemblance(Fit(LEFT, RIGHT, COUNTS), "S0", "K0")
    expected = np.asarray(LEFT, float) @ np.asarray(RIGHT, float).T
    by_name = {one.name: one.similarity for one in found.stores}
    for other in (1, 2, 3):
        assert by_name[f"S{other}"] == pytest.approx(np.corrcoef(expected[0], expected[other])[0, 1])


def test_only_observed_pairs_are_shown_and_shares_leave_the_pair_out():
    observed = np.ones((4, 4), bool)
    observed[1, 0] = False
    fit = Fit(LEFT, RIGHT, COUNTS, observed)
    found = resemblance(fit, "S0", "K0")
    assert "S1" not in [one.name for one in found.stores]
    assert found.sku_elsewhere == pytest.approx((8 + 12) / (3 * 1 + 5 * 4 + 0.1))
    assert found.store_otherwise == pytest.approx((1 + 2 + 3) / (1 + 3 + 1))


def test_a_store_without_taste_and_an_unknown_pair():
    found = resemblance(Fit([[0, 0], [1, 1]], [[1, 2], [2, 2]], [[1, 2], [3, 4]]), "S0", "K0")
    assert [one.similarity for one in found.stores] == [0.0]
    assert resemblance(Fit(LEFT, RIGHT, COUNTS), "S9", "K0") is None
