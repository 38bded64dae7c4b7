"""The most specific row prices a pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.intake.costs_table import ALL, CostRows, price_pairs

SHAPE = (3, 2)
STORE, SKU = np.repeat(np.arange(3), 2), np.tile(np.arange(2), 3)
DEFAULT = (1.0, 3.0)


def table(*rows: tuple[int, int, float]) -> CostRows:
    """Rows of (store, SKU, missed); a false alarm costs a tenth of it."""
    store, sku, missed = (np.array(column) for column in zip(*rows, strict=True))
    return CostRows(store, sku, missed / 10, missed.astype(float))


def missed(rows: CostRows | None) -> list[float]:
    return np.asarray(price_pairs(rows, STORE, SKU, SHAPE, DEFAULT).missed).tolist()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(ALL, ALL, 10)], [10, 10, 10, 10, 10, 10]),
        ([(1, ALL, 20)], [3, 3, 20, 20, 3, 3]),
        ([(ALL, 1, 30)], [3, 30, 3, 30, 3, 30]),
        ([(2, 0, 40)], [3, 3, 3, 3, 40, 3]),
        ([(ALL, ALL, 10), (1, ALL, 20), (ALL, 1, 30), (1, 1, 40), (2, 1, 50)], [10, 30, 20, 40, 10, 50]),
        ([(2, 1, 50), (1, 1, 40), (ALL, 1, 30), (1, ALL, 20), (ALL, ALL, 10)], [10, 30, 20, 40, 10, 50]),
    ],
    ids=["chain", "store", "SKU", "pair", "all of them", "in any order"],
)
def test_pair_before_sku_before_store_before_chain(rows, expected):
    assert missed(table(*rows)) == expected


def test_without_a_table_the_defaults_hold():
    costs = price_pairs(None, STORE, SKU, SHAPE, DEFAULT)
    assert [of_pairs.tolist() for of_pairs in costs.broadcast(6)] == [[1.0] * 6, [3.0] * 6]


def test_a_table_without_a_row_of_a_known_id_leaves_the_defaults():
    none = np.array([], dtype=np.int64)
    costs = price_pairs(CostRows(none, none, none * 1.0, none * 1.0), STORE, SKU, SHAPE, DEFAULT)
    assert [of_pairs.tolist() for of_pairs in costs.broadcast(6)] == [[1.0] * 6, [3.0] * 6]


def test_both_costs_come_from_the_same_row():
    costs = price_pairs(table((1, ALL, 20), (ALL, 1, 30)), STORE, SKU, SHAPE, (9.0, 90.0))
    assert np.asarray(costs.false_alarm) == pytest.approx(np.asarray(costs.missed) / 10)


@given(st.sets(st.tuples(st.integers(ALL, 2), st.integers(ALL, 1)), min_size=1))
def test_every_pair_is_priced_as_by_looking_it_up(keys):
    prices = {key: 10.0 + number for number, key in enumerate(sorted(keys))}
    rows = table(*((*key, price) for key, price in prices.items()))
    for store, sku, found in zip(STORE.tolist(), SKU.tolist(), missed(rows), strict=True):
        places = ((store, sku), (ALL, sku), (store, ALL), (ALL, ALL))
        assert found == next((prices[place] for place in places if place in prices), 3.0)
