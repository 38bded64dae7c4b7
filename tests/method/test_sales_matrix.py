"""SalesMatrix: known answers by eye, round trips, and every refusal."""

from __future__ import annotations

import copy
import doctest
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import ew_pipeline.method.sales_matrix as module
from ew_pipeline import SalesMatrix
from ew_pipeline.core.errors import DataError, UsageError

#        milk bread eggs
# north    4    0    .        . = not observed; the 0 is a sale of nothing
# south    .    9    7
COUNTS = np.array([[4.0, 0.0, np.nan], [np.nan, 9.0, 7.0]])
OBSERVED = np.array([[True, True, False], [False, True, True]])


def small() -> SalesMatrix:
    return SalesMatrix.from_dense(
        COUNTS, OBSERVED, store_ids=["north", "south"], sku_ids=["milk", "bread", "eggs"], week="2026-W34"
    )


def assert_same(left: SalesMatrix, right: SalesMatrix) -> None:
    for name in ("indptr", "cols", "counts", "store_ids", "sku_ids"):
        assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    assert (left.shape, left.week) == (right.shape, right.week)


@st.composite
def dense_tables(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Counts and an observed mask with at least one observed pair."""
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    cells = st.one_of(st.none(), st.sampled_from([0, 1, 2, 17, 2**31 - 1]))
    flat = draw(
        st.lists(cells, min_size=n * m, max_size=n * m).filter(lambda row: any(c is not None for c in row))
    )
    counts = np.array([-1 if c is None else c for c in flat], dtype=np.int64).reshape(n, m)
    return counts, counts >= 0


# --- known answers ---------------------------------------------------------------------------------


def test_from_dense_keeps_the_observed_zero_and_drops_what_was_not_observed():
    sales = small()
    assert_array_equal(sales.indptr, [0, 2, 4])
    assert_array_equal(sales.cols, [0, 1, 1, 2])
    assert_array_equal(sales.counts, [4, 0, 9, 7])
    assert_array_equal(sales.rows, [0, 0, 1, 1])
    assert (sales.n_observed, sales.density, sales.shape) == (4, 4 / 6, (2, 3))


def test_dtypes_are_the_promised_ones():
    sales = small()
    assert (sales.indptr.dtype, sales.cols.dtype, sales.counts.dtype) == (np.int64, np.int32, np.int32)
    assert sales.rows.dtype == np.int32
    view = sales.by_column
    assert (view.indptr.dtype, view.rows.dtype, view.entry.dtype) == (np.int64, np.int32, np.int64)


def test_from_coo_sorts_rows_then_columns():
    sales = SalesMatrix.from_coo([1, 0, 1, 0], [2, 1, 1, 0], [7, 0, 9, 4], (2, 3))
    assert_array_equal(sales.cols, [0, 1, 1, 2])
    assert_array_equal(sales.counts, [4, 0, 9, 7])
    assert sales.store_ids.tolist() == ["0", "1"]


def test_from_coo_sorts_the_largest_counts_with_their_columns():
    big = 2**31 - 1
    sales = SalesMatrix.from_coo([0, 0, 0], [2, 1, 0], [big, 0, big - 1], (1, 3))
    assert_array_equal(sales.counts, [big - 1, 0, big])


def test_by_column_reads_the_counts_sku_by_sku():
    sales = small()
    view = sales.by_column
    assert_array_equal(view.indptr, [0, 1, 3, 4])
    assert_array_equal(view.rows, [0, 0, 1, 1])
    assert_array_equal(sales.counts[view.entry], [4, 0, 9, 7])


def test_to_dense_fills_only_what_was_not_observed():
    assert_array_equal(small().to_dense(), COUNTS)
    assert_array_equal(small().to_dense(fill=-1), [[4, 0, -1], [-1, 9, 7]])
    assert_array_equal(small().to_dense([True, False, False, True], fill=False), [[1, 0, 0], [0, 0, 1]])


def test_to_long_is_in_row_major_order():
    table = small().to_long()
    assert table["store_id"].tolist() == ["north", "north", "south", "south"]
    assert table["sku_id"].tolist() == ["milk", "bread", "bread", "eggs"]
    assert table["units"].tolist() == [4, 0, 9, 7]


def test_transpose_swaps_ids_and_entries():
    turned = small().transpose()
    assert_array_equal(turned.to_dense(), COUNTS.T)
    assert turned.store_ids.tolist() == ["milk", "bread", "eggs"]
    assert turned.week == "2026-W34"


def test_select_keeps_shape_and_ids():
    chosen = small().select([False, True, False, True])
    assert_array_equal(chosen.to_dense(fill=-1), [[-1, 0, -1], [-1, -1, 7]])
    assert chosen.shape == (2, 3)
    assert chosen.store_ids.tolist() == ["north", "south"]


def test_rows_and_columns_without_entries_are_allowed():
    sales = SalesMatrix.from_coo([1], [2], [5], (3, 4))
    assert_array_equal(sales.indptr, [0, 0, 1, 1])
    assert_array_equal(sales.by_column.indptr, [0, 0, 0, 1, 1])


def test_repr_says_the_size_and_not_the_arrays():
    assert repr(small()) == "SalesMatrix(2 stores x 3 SKUs, 4 observed (0.667), week 2026-W34)"


def test_docstring_examples_run():
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted > 0


# --- long tables -----------------------------------------------------------------------------------

LONG = {"store_id": ["s2", "s10", "s10"], "sku_id": ["b", "b", "a"], "units": [7, 0, 4]}


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, dict], ids=["pandas", "pyarrow", "dict"])
def test_from_long_sorts_ids_as_text_whatever_the_kind_of_frame(make):
    sales = SalesMatrix.from_long(make(LONG), week="2026-W34")
    assert sales.store_ids.tolist() == ["s10", "s2"]
    assert sales.sku_ids.tolist() == ["a", "b"]
    assert_array_equal(sales.to_dense(fill=-1), [[4, 0], [-1, 7]])
    assert sales.week == "2026-W34"


@pytest.mark.parametrize("make", [pd.DataFrame, dict], ids=["pandas", "dict"])
@pytest.mark.parametrize("ids", [[9, 10, 10], [-4_000_000_000, 10, 10]], ids=["narrow", "wide"])
def test_integer_ids_become_text(make, ids):
    sales = SalesMatrix.from_long(make({**LONG, "store_id": np.array(ids)}))
    assert sales.store_ids.tolist() == sorted({str(k) for k in ids})
    assert sales.to_long()["store_id"][sales.counts == 7].tolist() == [str(ids[0])]


def test_integer_and_text_spellings_of_an_id_are_one_store():
    frame = pd.DataFrame(
        {"store_id": np.array([1, "1"], dtype=object), "sku_id": ["a", "b"], "units": [1, 2]}
    )
    assert SalesMatrix.from_long(frame).store_ids.tolist() == ["1"]


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, dict], ids=["pandas", "pyarrow", "dict"])
def test_from_long_takes_only_the_rows_and_ids_of_the_week(make):
    frame = make({**LONG, "week": ["2026-W33", "2026-W34", "2026-W34"]})
    sales = SalesMatrix.from_long(frame, week="2026-W34")
    assert sales.store_ids.tolist() == ["s10"]
    assert_array_equal(sales.counts, [4, 0])


def test_from_long_takes_rows_by_position_not_by_pandas_label():
    frame = pd.DataFrame({**LONG, "week": ["w1", "w2", "w2"]}, index=[2, 1, 0])
    assert_array_equal(SalesMatrix.from_long(frame, week="w2").counts, [4, 0])


def test_a_single_week_names_itself():
    frame = pd.DataFrame({**LONG, "week": "2026-W34"})
    assert SalesMatrix.from_long(frame).week == "2026-W34"


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, dict], ids=["pandas", "pyarrow", "dict"])
def test_weeks_given_as_dates_are_labelled_by_the_date(make):
    weeks = np.array(["2026-08-17", "2026-08-24", "2026-08-24"], dtype="datetime64[ns]")
    assert SalesMatrix.from_long(make({**LONG, "week": weeks}), week="2026-08-24").n_observed == 2


def test_nullable_and_float_units_are_read_when_whole():
    for units in (pd.array([7, 0, 4], dtype="Int64"), [7.0, 0.0, 4.0]):
        assert SalesMatrix.from_long(pd.DataFrame({**LONG, "units": units})).counts.sum() == 11


# --- round trips -----------------------------------------------------------------------------------


@given(dense_tables())
def test_dense_round_trip(table):
    counts, observed = table
    sales = SalesMatrix.from_dense(counts, observed)
    assert_array_equal(sales.to_dense(fill=-1), counts)


@given(dense_tables(), st.randoms(use_true_random=False))
def test_coo_in_any_order_is_the_dense_one(table, random):
    counts, observed = table
    sales = SalesMatrix.from_dense(counts, observed)
    order = list(range(sales.n_observed))
    random.shuffle(order)
    again = SalesMatrix.from_coo(sales.rows[order], sales.cols[order], sales.counts[order], sales.shape)
    assert_same(again, sales)


@given(dense_tables())
def test_long_round_trip_up_to_empty_rows_and_columns(table):
    counts, observed = table
    counts, observed = counts[observed.any(axis=1)], observed[observed.any(axis=1)]
    counts, observed = counts[:, observed.any(axis=0)], observed[:, observed.any(axis=0)]
    sales = SalesMatrix.from_dense(counts, observed)
    for frame in (sales.to_long(), pd.DataFrame(sales.to_long())):
        assert_same(SalesMatrix.from_long(frame), sales)


@given(dense_tables())
def test_transpose_twice_is_the_same_and_once_is_the_dense_transpose(table):
    counts, observed = table
    sales = SalesMatrix.from_dense(counts, observed)
    assert_same(sales.transpose(), SalesMatrix.from_dense(counts.T, observed.T))
    assert_same(sales.transpose().transpose(), sales)


@given(dense_tables(), st.data())
def test_select_is_a_smaller_observed_set(table, data):
    counts, observed = table
    sales = SalesMatrix.from_dense(counts, observed)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=sales.n_observed, max_size=sales.n_observed)))
    if keep.any():
        expected = np.where(sales.to_dense(keep, fill=False), counts, -1)
        assert_array_equal(sales.select(keep).to_dense(fill=-1), expected)
    else:
        with pytest.raises(DataError, match="no pair was observed"):
            sales.select(keep)


# --- read-only -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["indptr", "cols", "counts", "rows", "store_ids", "sku_ids"])
def test_arrays_are_read_only(name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(small(), name)[0] = getattr(small(), name)[-1]


@pytest.mark.parametrize("name", ["indptr", "rows", "entry"])
def test_column_view_is_read_only(name):
    with pytest.raises(ValueError, match="read-only"):
        getattr(small().by_column, name)[0] = 1


def test_fields_cannot_be_reassigned():
    with pytest.raises(AttributeError):
        small().week = "2026-W35"


def test_the_callers_arrays_stay_writeable_and_apart():
    rows, cols, counts = np.array([0, 1]), np.array([0, 1]), np.array([3, 5], dtype=np.int32)
    ids = np.array(["a", "b"])
    sales = SalesMatrix.from_coo(rows, cols, counts, (2, 2), store_ids=ids)
    counts[0], ids[0], rows[0] = 99, "z", 1
    assert_array_equal(sales.counts, [3, 5])
    assert sales.store_ids.tolist() == ["a", "b"]


def test_constructor_copies_what_others_can_still_write():
    indptr, cols, counts = np.array([0, 1]), np.array([0], dtype=np.int32), np.array([3], dtype=np.int32)
    sales = SalesMatrix(indptr, cols, counts, (1, 1), np.array(["a"]), np.array(["k"]))
    counts[0] = 99
    assert_array_equal(sales.counts, [3])


def test_views_are_computed_once():
    sales = small()
    assert sales.rows is sales.rows
    assert sales.by_column is sales.by_column


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_equal_and_still_read_only(duplicate):
    again = duplicate(small())
    assert_same(again, small())
    assert not again.counts.flags.writeable


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (-2.0, "negative"),
        (1.5, "fractional"),
        (np.nan, "NaN"),
        (np.inf, "infinite"),
        (-np.inf, "infinite"),
        (2.0**31, "above 2147483647"),
    ],
)
def test_a_count_that_is_not_one_is_refused_by_pair(value, kind):
    counts = np.array([[1.0, 2.0], [value, 4.0]])
    with pytest.raises(DataError, match=rf"1 of 4 observed counts .*1 {kind}.*store n2, SKU k1 = ") as caught:
        SalesMatrix.from_dense(counts, np.ones((2, 2), bool), store_ids=["n1", "n2"], sku_ids=["k1", "k2"])
    assert caught.value.next_step is not None


@pytest.mark.parametrize(("value", "kind"), [(-2, "negative"), (2**31, "above 2147483647")])
def test_an_integer_count_out_of_range_is_refused(value, kind):
    with pytest.raises(DataError, match=f"1 {kind}"):
        SalesMatrix.from_coo([0, 0], [0, 1], [1, value], (1, 2))


def test_the_largest_count_is_accepted():
    assert SalesMatrix.from_coo([0], [0], [2**31 - 1], (1, 1)).counts[0] == 2**31 - 1


def test_only_five_offenders_are_named_and_all_are_counted():
    with pytest.raises(DataError, match=r"8 of 8 .*8 negative") as caught:
        SalesMatrix.from_dense(np.full((1, 8), -3))
    assert caught.value.message.count("= -3") == 5
    assert "… +3" in caught.value.message


def test_several_kinds_of_wrong_counts_are_counted_apart():
    with pytest.raises(DataError, match=r"3 of 4 .*1 NaN, 1 negative, 1 fractional"):
        SalesMatrix.from_dense([[np.nan, -1, 0.5, 3]])


def test_without_an_observed_mask_nan_is_refused():
    with pytest.raises(DataError, match=r"store 0, SKU 2 = nan"):
        SalesMatrix.from_dense(COUNTS)


def test_what_was_not_observed_may_hold_anything():
    sales = SalesMatrix.from_dense([[1, -5, np.inf, 0.5]], [[True, False, False, False]])
    assert_array_equal(sales.counts, [1])


@pytest.mark.parametrize("units", [["7", "x", "4"], [True, False, True]], ids=["text", "boolean"])
def test_units_that_are_not_numbers_are_refused(units):
    with pytest.raises(DataError, match="must be numbers"):
        SalesMatrix.from_long(pd.DataFrame({**LONG, "units": units}))


def test_missing_units_are_refused_as_nan():
    frame = pd.DataFrame({**LONG, "units": pd.array([7, None, 4], dtype="Int64").astype(object)})
    with pytest.raises(DataError, match=r"1 of 3 .*1 NaN.*store s10, SKU b"):
        SalesMatrix.from_long(frame)


def test_duplicates_are_named_with_their_number():
    with pytest.raises(DataError, match=r"1 pairs occur more than once: store 1, SKU 0 \(3 times\)"):
        SalesMatrix.from_coo([1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 2, 1], (2, 2))


@given(dense_tables(), st.data())
def test_any_repeated_pair_is_found(table, data):
    counts, observed = table
    sales = SalesMatrix.from_dense(counts, observed)
    again = data.draw(st.integers(0, sales.n_observed - 1))
    rows, cols, units = (np.append(a, a[again]) for a in (sales.rows, sales.cols, sales.counts))
    with pytest.raises(DataError, match=rf"store {sales.rows[again]}, SKU {sales.cols[again]} \(2 times\)"):
        SalesMatrix.from_coo(rows, cols, units, sales.shape)


@pytest.mark.parametrize(
    ("rows", "cols", "words"),
    [([0, 2], [0, 1], "1 row positions lie outside 0..1: entry 1 has row 2"), ([0, 1], [-1, 1], "column -1")],
)
def test_positions_outside_the_shape_are_refused(rows, cols, words):
    with pytest.raises(DataError, match=words):
        SalesMatrix.from_coo(rows, cols, [1, 1], (2, 2))


def test_positions_must_be_integers_in_one_dimension():
    with pytest.raises(DataError, match="type float64"):
        SalesMatrix.from_coo([0.0], [0], [1], (1, 1))
    with pytest.raises(DataError, match="2 dimensions"):
        SalesMatrix.from_coo([[0]], [0], [1], (1, 1))


def test_lengths_that_differ_are_refused():
    with pytest.raises(DataError, match=r"shapes \(2,\), \(1,\) and \(2,\)"):
        SalesMatrix.from_coo([0, 1], [0], [1, 1], (2, 2))


def test_a_mask_of_another_shape_or_type_is_refused():
    with pytest.raises(DataError, match=r"counts are 2 x 3 and observed has shape \(3, 2\)"):
        SalesMatrix.from_dense(COUNTS, OBSERVED.T)
    with pytest.raises(DataError, match="must be boolean"):
        SalesMatrix.from_dense(COUNTS, OBSERVED.astype(int))


def test_counts_of_one_dimension_are_refused():
    with pytest.raises(DataError, match="1 dimensions"):
        SalesMatrix.from_dense([1, 2])


@pytest.mark.parametrize(
    "build",
    [
        lambda: SalesMatrix.from_dense([[1]], [[False]]),
        lambda: SalesMatrix.from_dense(np.empty((0, 3))),
        lambda: SalesMatrix.from_coo([], [], [], (2, 2)),
        lambda: SalesMatrix.from_coo([0], [0], [1], (0, 1)),
        lambda: SalesMatrix.from_long({"store_id": [], "sku_id": [], "units": []}),
        lambda: SalesMatrix.from_long(pd.DataFrame({"store_id": [], "sku_id": [], "units": [], "week": []})),
    ],
)
def test_empty_data_are_refused(build):
    with pytest.raises(DataError, match=r"empty|no pair was observed|no rows"):
        build()


@pytest.mark.parametrize("shape", [5, (1, 2, 3), ("a", 1)])
def test_a_shape_that_is_not_two_sizes_is_a_usage_error(shape):
    with pytest.raises(UsageError, match="shape is"):
        SalesMatrix.from_coo([0], [0], [1], shape)


def test_ids_of_the_wrong_number_repeated_or_missing_are_refused():
    with pytest.raises(DataError, match="1 store ids were given for 2 stores"):
        SalesMatrix.from_dense(COUNTS, OBSERVED, store_ids=["only"])
    with pytest.raises(DataError, match=r"1 SKU ids are repeated: k \(2 times\)"):
        SalesMatrix.from_dense(COUNTS, OBSERVED, sku_ids=["k", "k", "j"])
    with pytest.raises(DataError, match=r"2 SKU ids cannot be used: position 0 has None, position 2 has"):
        SalesMatrix.from_dense(COUNTS, OBSERVED, sku_ids=[None, "j", ""])


@pytest.mark.parametrize("missing", [None, np.nan, "", 17.0])
@pytest.mark.parametrize("make", [pd.DataFrame, dict], ids=["pandas", "dict"])
def test_a_long_table_with_missing_or_float_ids_is_refused_by_row(make, missing):
    ids = np.array(["s2", missing, missing], dtype=object)
    with pytest.raises(DataError, match="2 rows have no usable store id: row 1 has"):
        SalesMatrix.from_long(make({**LONG, "store_id": ids}))


def test_missing_columns_are_named():
    with pytest.raises(DataError, match="no column sku_id, units; it has store_id, quantity"):
        SalesMatrix.from_long({"store_id": ["a"], "quantity": [1]})


def test_something_that_is_not_a_table_is_refused():
    with pytest.raises(DataError, match="a list is not a table"):
        SalesMatrix.from_long([1, 2])


def test_several_weeks_without_a_choice_are_named():
    frame = pd.DataFrame({**LONG, "week": ["2026-W33", "2026-W34", "2026-W34"]})
    with pytest.raises(DataError, match="2 weeks: 2026-W33, 2026-W34"):
        SalesMatrix.from_long(frame)


def test_a_week_that_is_not_there_names_those_that_are():
    with pytest.raises(DataError, match=r"no row is of week 2026-W35; .*: 2026-W34"):
        SalesMatrix.from_long(pd.DataFrame({**LONG, "week": "2026-W34"}), week="2026-W35")


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT, pd.NA])
def test_rows_without_a_week_are_refused(missing):
    frame = pd.DataFrame({**LONG, "week": np.array(["2026-W34", missing, missing], dtype=object)})
    with pytest.raises(DataError, match="2 rows have no week: row 1, row 2"):
        SalesMatrix.from_long(frame, week="2026-W34")


def test_a_week_that_is_not_text_is_a_usage_error():
    with pytest.raises(UsageError, match="week is 34"):
        SalesMatrix.from_dense([[1]], week=34)


def test_values_and_masks_must_match_the_entries():
    with pytest.raises(UsageError, match=r"shape \(2,\) for 4 observed pairs"):
        small().to_dense([1, 2])
    with pytest.raises(UsageError, match="must be boolean"):
        small().select([1, 0, 0, 1])
    with pytest.raises(UsageError, match="4 observed pairs"):
        small().select([True])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indptr": np.array([0, 3, 2])}, "never fall"),
        ({"indptr": np.array([0, 4])}, "3 positions"),
        ({"indptr": np.array([0, 2, 3])}, "indptr ends at 3"),
        ({"cols": np.array([1, 0, 1, 2], dtype=np.int32)}, "ascend"),
        ({"cols": np.array([0, 0, 1, 2], dtype=np.int32)}, "ascend"),
        ({"cols": np.array([0, 1, 1, 3], dtype=np.int32)}, "0..2"),
        ({"counts": np.array([4, -1, 9, 7], dtype=np.int32)}, ">= 0"),
        ({"counts": np.array([4.0, 0.5, 9.0, 7.0])}, "int32"),
    ],
)
def test_the_constructor_checks_the_sparse_arrays(change, words):
    sales = small()
    fields = {
        name: getattr(sales, name) for name in ("indptr", "cols", "counts", "shape", "store_ids", "sku_ids")
    }
    with pytest.raises((DataError, UsageError), match=words):
        SalesMatrix(**{**fields, **change})
