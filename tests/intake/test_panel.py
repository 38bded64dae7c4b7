"""The panel: pairs by weeks, cut where the past ends."""

from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.intake.panel import Panel, fill_ranged_zeros, panel_from_codes

WEEKS = ("w0", "w1", "w2", "w3")


def small(units: list[list[float]], stores: str = "AB") -> Panel:
    """Two stores, one SKU."""
    values = np.array(units, dtype=np.float32)
    n = len(values)
    return Panel(
        np.array(list(stores)),
        np.array(["k"]),
        np.arange(n, dtype=np.int32),
        np.zeros(n, dtype=np.int32),
        tuple(f"w{t}" for t in range(values.shape[1])),
        values,
    )


def test_rows_in_any_order_land_in_their_cell_and_the_rest_is_unobserved():
    panel = panel_from_codes(
        np.array(["B", "A", "A"]),
        np.array(["k", "l", "k"]),
        np.array([2, 0, 3]),
        np.array([7.0, 1.0, 0.0]),
        WEEKS,
    )
    assert [
        f"{panel.store_ids[i]}{panel.sku_ids[j]}" for i, j in zip(panel.store, panel.sku, strict=True)
    ] == [
        "Ak",
        "Al",
        "Bk",
    ]
    nan = np.nan
    np.testing.assert_array_equal(
        panel.units, [[nan, nan, nan, 0.0], [1.0, nan, nan, nan], [nan, nan, 7.0, nan]]
    )


def test_a_pair_twice_in_a_week_is_refused_and_named():
    with pytest.raises(DataError, match=r"1 rows repeat a pair in one week: A/k in w2"):
        panel_from_codes(
            np.array(["A", "A"]), np.array(["k", "k"]), np.array([2, 2]), np.array([1.0, 2.0]), WEEKS
        )


def test_until_holds_no_later_week_and_no_view_of_it():
    panel = small([[1, 2, 3, 4], [5, 6, 7, 8]])
    past = panel.until(1)
    assert past.units.shape == (2, 2)
    assert past.units.base is None or past.units.base.size <= past.units.size
    assert past.weeks == ("w0", "w1")


def test_until_a_week_outside_is_refused():
    with pytest.raises(UsageError):
        small([[1, 2]], "A").until(2)


def test_sales_of_a_week_are_the_observed_pairs_in_order():
    panel = small([[1, np.nan], [5, 0]])
    sales = panel.sales(1)
    assert sales.counts.tolist() == [0]
    assert sales.store_ids.tolist() == ["B"]
    with pytest.raises(DataError, match="no pair was observed"):
        small([[1, np.nan]], "A").sales(1)


def test_a_pair_that_sold_lately_counts_as_a_zero_where_its_store_reported():
    nan = np.nan
    panel = Panel(
        np.array(["A", "B"]),
        np.array(["k", "l"]),
        np.array([0, 0, 1], dtype=np.int32),
        np.array([0, 1, 0], dtype=np.int32),
        WEEKS,
        np.array([[3, nan, nan, nan], [1, 1, 1, 1], [2, nan, nan, 1]], dtype=np.float32),
    )
    filled = fill_ranged_zeros(panel, trailing=2)
    np.testing.assert_array_equal(filled.units[0], [3, 0, 0, nan])  # two weeks, then it is no longer carried
    np.testing.assert_array_equal(filled.units[2], [2, nan, nan, 1])  # store B did not report


def test_filled_zeros_look_at_the_past_alone():
    rng = np.random.default_rng(0)
    units = np.where(rng.random((60, 8)) < 0.5, rng.poisson(2.0, (60, 8)) + 1.0, np.nan).astype(np.float32)
    base = Panel(
        np.array(["A"]), np.arange(60).astype(str), np.zeros(60, np.int32), np.arange(60, dtype=np.int32),
        tuple("abcdefgh"), units.copy(),
    )  # fmt: skip
    whole = fill_ranged_zeros(base, trailing=1).units[:, :5]
    cut = fill_ranged_zeros(base.until(4), trailing=1).units
    np.testing.assert_array_equal(whole, cut)


@pytest.mark.parametrize(("store", "sku"), [([1, 0], [0, 0]), ([0, 0], [1, 0]), ([0, 0], [1, 1])])
def test_pairs_out_of_order_or_twice_are_refused(store, sku):
    ids, codes = np.array(["a", "b"]), (np.array(values, dtype=np.int32) for values in (store, sku))
    with pytest.raises(DataError, match="row-major order, each once"):
        Panel(ids, ids, *codes, ("2026-W01",), np.zeros((2, 1), dtype=np.float32))
