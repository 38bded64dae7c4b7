"""Which pairs of a week are observed: one store in a row, one SKU in a column, keys counted row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.core.errors import UsageError
from ew_pipeline.intake.ranging import (
    Listing,
    WeekRows,
    choose_rule,
    contains,
    observe,
    on_holiday,
    reporting,
    sold_in,
)

SHAPE = (3, 4)
NONE = np.empty(0, dtype=np.int64)


def keys(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def rows(units: dict[int, int], promo: set[int] | None = None, holiday: set[int] = frozenset()) -> WeekRows:
    key = keys(*sorted(units))
    return WeekRows(
        key,
        np.array([units[k] for k in key.tolist()], dtype=np.int32),
        None if promo is None else np.isin(key, list(promo)),
        np.isin(key, list(holiday)),
    )


def seen(entries) -> dict[int, int]:
    return dict(zip(entries.key.tolist(), entries.units.tolist(), strict=True))


@pytest.mark.parametrize(
    ("listing", "zeros", "rule"),
    [
        (True, True, "listing"),
        (True, False, "listing"),
        (False, True, "explicit"),
        (False, False, "inferred"),
    ],
)
def test_auto_takes_the_listing_then_zeros_then_infers(listing, zeros, rule):
    assert choose_rule("auto", has_listing=listing, has_zeros=zeros) == rule


@pytest.mark.parametrize("rule", ["explicit", "inferred"])
def test_a_rule_that_is_asked_for_is_taken(rule):
    assert choose_rule(rule, has_listing=True, has_zeros=True) == rule


def test_explicit_takes_the_rows_as_they_are():
    entries = observe(rows({0: 5, 5: 0}), "explicit", SHAPE, listed=None, carried=None, withheld=NONE)
    assert seen(entries) == {0: 5, 5: 0}
    assert not entries.filled.any()


def test_listing_fills_zeros_only_in_stores_that_reported():
    entries = observe(
        rows({1: 5, 9: 2}), "listing", SHAPE, listed=keys(0, 1, 4, 5, 9, 11), carried=None, withheld=NONE
    )
    assert seen(entries) == {0: 0, 1: 5, 9: 2, 11: 0}  # 4 and 5 are of the second store, which has no row
    assert entries.filled.tolist() == [True, False, False, True]


def test_listing_leaves_out_what_it_does_not_range():
    entries = observe(
        rows({1: 5, 2: 3, 3: 0}), "listing", SHAPE, listed=keys(0, 1), carried=None, withheld=NONE
    )
    assert seen(entries) == {0: 0, 1: 5}
    assert entries.unlisted == 1


def test_inferred_fills_zeros_where_something_sold_before():
    entries = observe(rows({1: 5}), "inferred", SHAPE, listed=None, carried=keys(0, 1, 4), withheld=NONE)
    assert seen(entries) == {0: 0, 1: 5}


@pytest.mark.parametrize("rule", ["listing", "inferred"])
def test_a_withheld_pair_is_not_filled(rule):
    entries = observe(
        rows({1: 5}), rule, SHAPE, listed=keys(0, 1, 2), carried=keys(0, 1, 2), withheld=keys(2)
    )
    assert seen(entries) == {0: 0, 1: 5}


def test_a_filled_zero_is_promoted_when_most_rows_of_its_sku_are():
    # SKU 0 is promoted in both of its rows, SKU 1 in one of two, SKU 2 has none.
    week = rows({0: 5, 1: 1, 4: 5, 5: 1, 11: 1}, promo={0, 4, 5})
    listed = keys(0, 1, 2, 4, 5, 8, 9, 11)
    entries = observe(week, "listing", SHAPE, listed=listed, carried=None, withheld=NONE)
    assert entries.key[entries.filled].tolist() == [2, 8, 9]
    assert entries.key[entries.promo].tolist() == [0, 4, 5, 8]


def test_a_rule_without_what_it_needs_is_refused():
    with pytest.raises(UsageError, match="inferred needs to know"):
        observe(rows({1: 5}), "inferred", SHAPE, listed=None, carried=None, withheld=NONE)


def test_one_row_makes_a_holiday_for_its_store():
    assert on_holiday(rows({0: 1, 1: 1, 4: 1}, holiday={1}), SHAPE).tolist() == [True, False, False]


def test_a_store_reports_when_it_has_a_row_zero_or_not():
    assert reporting(rows({0: 0, 8: 1}), SHAPE).tolist() == [True, False, True]


def test_sold_in_ignores_zeros_and_repeats():
    assert sold_in([rows({0: 1, 1: 0}), rows({0: 2, 5: 1})]).tolist() == [0, 5]
    assert sold_in([]).tolist() == []


def test_a_listing_holds_from_its_first_to_its_last_week():
    listing = Listing(keys(1, 2, 3), np.array([5, 6, 0], np.int32), np.array([9, 6, 5], np.int32))
    assert [listing.at(week).tolist() for week in (4, 5, 6, 7, 10)] == [[3], [1, 3], [1, 2], [1], []]


@given(st.sets(st.integers(0, 11)), st.lists(st.integers(0, 11)))
def test_contains_is_membership(ascending, values):
    found = contains(keys(*sorted(ascending)), keys(*values))
    assert found.tolist() == [value in ascending for value in values]


@given(
    st.dictionaries(st.integers(0, 11), st.integers(0, 3), min_size=1),
    st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, 11)),
)
def test_listing_is_what_the_definition_says(units, listed, withheld):
    withheld = withheld - set(units)
    entries = observe(
        rows(units),
        "listing",
        SHAPE,
        listed=keys(*sorted(listed)),
        carried=None,
        withheld=keys(*sorted(withheld)),
    )
    stores = {key // 4 for key in units}
    expected = {key: units.get(key, 0) for key in listed if key // 4 in stores and key not in withheld}
    assert seen(entries) == expected
    assert entries.key.tolist() == sorted(expected)
    assert entries.filled.tolist() == [key not in units for key in sorted(expected)]
