import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from ew_pipeline.method.row_major import row_major

entries = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9), st.integers(0, 2**31 - 1)), max_size=60)


def columns(drawn):
    return np.array(drawn, dtype=np.int32).reshape(-1, 3).T


@given(entries)
def test_entries_are_sorted_by_row_column_and_what_goes_with_them(drawn):
    rows, cols, riders = columns(drawn)
    indptr, found_cols, found_riders, repeated = row_major(rows, cols, riders, 7)
    order = np.lexsort((riders, cols, rows))
    assert_array_equal(np.repeat(np.arange(7), np.diff(indptr)), rows[order])
    assert_array_equal(found_cols, cols[order])
    assert_array_equal(found_riders, riders[order])
    assert repeated == (len({(row, col) for row, col, _ in drawn}) < len(drawn))


def test_many_rows_side_by_side_are_those_of_one_sort():
    rng = np.random.default_rng(0)
    rows, cols = (rng.integers(0, most, 400_000, dtype=np.int32) for most in (5_000, 900))
    riders = np.arange(400_000, dtype=np.int32)
    _, _, order, repeated = row_major(rows, cols, riders, 5_000)
    assert_array_equal(order, np.lexsort((cols, rows)))
    assert repeated


def test_the_same_column_in_two_rows_is_no_repeat():
    rows, cols, riders = columns([(1, 3, 0), (0, 3, 0)])
    assert not row_major(rows, cols, riders, 2)[3]


def test_the_largest_columns_and_riders_do_not_meet():
    big = 2**31 - 1
    rows, cols, riders = columns([(0, big, 0), (0, big - 1, big), (0, 0, big)])
    _, found_cols, found_riders, _ = row_major(rows, cols, riders, 1)
    assert_array_equal(found_cols, [0, big - 1, big])
    assert_array_equal(found_riders, [big, big, 0])
