"""From a snapshot to matrices: which pairs are in, with what number, level, costs and segment."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.week_tables import (
    CONFIG,
    WEEK,
    label,
    listing_table,
    make_snapshot,
    prepared,
    sales_table,
    units,
)

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.settings import DetectorSettings
from ew_pipeline.decide.flags import decide
from ew_pipeline.expect.fit import fit_segments
from ew_pipeline.intake.assemble import _matrix, assemble, prepare, with_levels

EXPLICIT = sales_table(
    ("A", "1", 1, 5), ("A", "2", 1, 0), ("B", "1", 1, 4), ("B", "2", 1, 2),
    ("A", "1", 0, 6), ("A", "2", 0, 3), ("B", "1", 0, 0), ("B", "2", 0, 7),
)  # fmt: skip
IMPLIED = EXPLICIT[EXPLICIT["units"] > 0]
FULL = listing_table(("A", "1"), ("A", "2"), ("B", "1"), ("B", "2"))


def without(config, **changes):
    return config.model_copy(update=changes)


def test_explicit_zeros_are_observed_and_nothing_is_added(tmp_path):
    result = prepared(tmp_path, EXPLICIT)
    assert units(result) == {("A", "1"): 6, ("A", "2"): 3, ("B", "1"): 0, ("B", "2"): 7}
    assert result.coverage.zero_rule == "explicit"
    assert (result.coverage.pairs_zero, result.coverage.pairs_zero_filled) == (1, 0)


def test_a_listed_pair_without_a_row_sold_zero(tmp_path):
    result = prepared(tmp_path, IMPLIED, listing=FULL)
    assert units(result) == {("A", "1"): 6, ("A", "2"): 3, ("B", "1"): 0, ("B", "2"): 7}
    assert result.coverage.zero_rule == "listing"
    assert (result.coverage.pairs_zero, result.coverage.pairs_zero_filled) == (1, 1)


def test_a_pair_that_sold_before_is_inferred_to_be_ranged(tmp_path):
    result = prepared(tmp_path, IMPLIED)
    # A/2 did not sell last week but sells now; B/1 sold last week only.
    assert units(result) == {("A", "1"): 6, ("A", "2"): 3, ("B", "1"): 0, ("B", "2"): 7}
    assert result.coverage.zero_rule == "inferred"
    assert result.coverage.pairs_zero_filled == 1


def test_a_sale_before_the_inferred_weeks_does_not_count(tmp_path):
    rows = sales_table(("A", "1", 3, 5), ("A", "2", 2, 5), ("A", "3", 0, 1))
    result = prepared(tmp_path, rows, without(CONFIG, inferred_weeks=2))
    assert units(result) == {("A", "2"): 0, ("A", "3"): 1}


def test_a_store_without_a_row_is_named_and_none_of_its_pairs_is_zero(tmp_path):
    result = prepared(tmp_path, sales_table(("A", "1", 0, 6)), listing=FULL)
    assert units(result) == {("A", "1"): 6, ("A", "2"): 0}
    assert result.coverage.stores_missing == ("B",)
    assert (result.coverage.stores_expected, result.coverage.stores_reporting) == (2, 1)


def test_without_a_listing_stores_seen_before_are_expected(tmp_path):
    result = prepared(tmp_path, sales_table(("A", "1", 0, 0), ("B", "1", 2, 3)))
    assert result.coverage.stores_missing == ("B",)


def test_a_delisted_pair_is_never_in_the_matrix(tmp_path):
    listing = listing_table(
        ("A", "1"),
        ("A", "2", label(9), label(1)),
        ("B", "1", str(WEEK.shift(1))),
        ("B", "2", label(0), label(0)),
    )
    rows = sales_table(("A", "1", 0, 4), ("B", "2", 0, 1), ("A", "2", 1, 9))
    assert units(prepared(tmp_path, rows, listing=listing)) == {("A", "1"): 4, ("B", "2"): 1}


def test_a_pair_sold_but_not_listed_is_left_out_and_counted(tmp_path):
    rows = sales_table(("A", "1", 0, 4), ("A", "9", 0, 2), ("A", "8", 0, 0))
    result = prepared(tmp_path, rows, listing=FULL)
    assert units(result) == {("A", "1"): 4, ("A", "2"): 0}
    assert result.coverage.pairs_unlisted == 1


@pytest.mark.parametrize("rule", ["explicit", "inferred"])
def test_a_listing_keeps_delisted_pairs_out_whatever_the_rule(rule, tmp_path):
    listing = listing_table(("A", "1"), ("A", "2", label(9), label(1)))
    rows = sales_table(("A", "1", 0, 4), ("A", "2", 0, 2), ("A", "2", 1, 2))
    assert units(prepared(tmp_path, rows, without(CONFIG, zero_rule=rule), listing=listing)) == {
        ("A", "1"): 4
    }


def test_the_rule_listing_without_a_listing_is_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no listing"):
        prepared(tmp_path, EXPLICIT, without(CONFIG, zero_rule="listing"))


def test_a_pair_in_quarantine_is_neither_sold_nor_zero(tmp_path):
    withheld = pd.DataFrame({"store_id": ["A"], "sku_id": ["2"], "week": [label()]})
    result = prepared(tmp_path, sales_table(("A", "1", 0, 4)), listing=FULL, withheld=withheld)
    assert units(result) == {("A", "1"): 4}


def test_a_past_row_in_quarantine_is_not_a_past_zero(tmp_path):
    rows = sales_table(("A", "1", 1, 4), ("A", "1", 0, 4), ("A", "2", 0, 4))
    withheld = pd.DataFrame({"store_id": ["A"], "sku_id": ["2"], "week": [label(1)]})
    result = prepared(tmp_path, rows, listing=FULL, withheld=withheld)
    assert result.segments[0].history.tolist() == [1, 0]


PROMOTED = sales_table(
    ("A", "1", 0, 9, True), ("B", "1", 0, 8, True), ("A", "2", 0, 3, False), ("B", "2", 0, 2, False),
    ("C", "2", 0, 1, False), columns=("promo",),
)  # fmt: skip


def test_promoted_pairs_are_left_out_and_counted(tmp_path):
    result = prepared(tmp_path, PROMOTED, without(CONFIG, zero_rule="explicit"))
    assert units(result) == {("A", "2"): 3, ("B", "2"): 2, ("C", "2"): 1}
    assert result.coverage.pairs_promoted == 2


def test_promoted_pairs_are_compared_like_others_by_setting(tmp_path):
    result = prepared(tmp_path, PROMOTED, without(CONFIG, zero_rule="explicit", promotions="include"))
    assert len(units(result)) == 5
    assert result.coverage.pairs_promoted == 2


def test_a_zero_without_a_row_is_promoted_when_its_sku_is(tmp_path):
    result = prepared(tmp_path, PROMOTED, listing=listing_table(*((s, k) for s in "ABC" for k in "12")))
    assert units(result) == {("A", "2"): 3, ("B", "2"): 2, ("C", "2"): 1}
    assert result.coverage.pairs_promoted == 3


def test_past_promotions_and_holidays_are_not_history(tmp_path):
    rows = sales_table(
        ("A", "1", 3, 5, False, False), ("A", "1", 2, 50, True, False), ("A", "1", 1, 70, False, True),
        ("A", "2", 1, 7, False, False), ("A", "1", 0, 5, False, False), columns=("promo", "holiday"),
    )  # fmt: skip
    result = prepared(tmp_path, rows, without(CONFIG, zero_rule="explicit"))
    # The week before is a holiday for the whole store, one row is enough to say so.
    assert result.segments[0].history.tolist() == [1]
    assert result.coverage.history_weeks == 1
    alone = prepared(tmp_path / "alone", rows[rows["week"].isin([label(3), label(0)])],
                     without(CONFIG, zero_rule="explicit"))  # fmt: skip
    assert result.segments[0].level == pytest.approx(alone.segments[0].level)


def test_levels_are_added_to_what_was_assembled(tmp_path):
    snapshot = make_snapshot(tmp_path, EXPLICIT)
    assembled = assemble(snapshot, WEEK, CONFIG)
    assert assembled.has_past
    assert [segment.level for segment in assembled.prepared.segments] == [None]
    (segment,), (whole,) = with_levels(assembled, CONFIG).segments, prepare(snapshot, WEEK, CONFIG).segments
    assert segment.level.shape == (4,)
    np.testing.assert_array_equal(segment.level, whole.level)
    assert segment.sales is assembled.prepared.segments[0].sales


def test_without_earlier_weeks_there_is_no_level(tmp_path):
    result = prepared(tmp_path, EXPLICIT[EXPLICIT["week"] == label()])
    assert result.segments[0].level is None
    assert result.coverage.history_weeks == 0


def test_without_history_by_setting_there_is_no_level(tmp_path):
    result = prepared(tmp_path, EXPLICIT, without(CONFIG, history=False))
    assert result.segments[0].level is None
    assert result.segments[0].history.tolist() == [0, 0, 0, 0]


def test_the_level_belongs_to_its_pair(tmp_path):
    rows = [
        (f"S{s}", f"K{k}", back, (s + 1) * (1 + 30 * (k % 2)))
        for s in range(6)
        for k in range(5)
        for back in range(6)
    ]
    result = prepared(tmp_path, sales_table(*rows))
    segment = result.segments[0]
    assert segment.level == pytest.approx(segment.sales.counts.astype(float), rel=0.3)
    assert segment.history.tolist() == [5] * 30


def test_the_level_uses_no_week_beyond_the_history(tmp_path):
    rows = sales_table(*[("A", "1", back, 1000 if back > 2 else 5) for back in range(6)], ("B", "1", 0, 0))
    segment = prepared(tmp_path, rows, without(CONFIG, history_weeks=2)).segments[0]
    assert segment.level is not None
    assert segment.level[0] < 10
    assert segment.history.tolist() == [2, 0]


def test_thin_rows_and_columns_are_not_scored_unless_the_pair_has_a_past(tmp_path):
    rows = [(f"S{s}", f"K{k}", 0, 3) for s in range(3) for k in range(3)]
    rows += [("S0", "new", 0, 3), ("S1", "old", 0, 3), *(("S1", "old", back, 3) for back in (1, 2, 3))]
    config = without(CONFIG, min_pair_entries=3, zero_rule="explicit")
    segment = prepared(tmp_path, sales_table(*rows), config).segments[0]
    long = segment.sales.to_long()
    left_out = [str(sku) for sku, scored in zip(long["sku_id"], segment.scored, strict=True) if not scored]
    assert left_out == ["new"]
    assert segment.sales.n_observed == 11


def test_not_scored_pairs_are_counted(tmp_path):
    result = prepared(tmp_path, EXPLICIT, without(CONFIG, min_pair_entries=3))
    assert result.coverage.pairs_not_scored == 4
    assert not result.segments[0].scored.any()


def test_segments_by_sku_split_the_matrix_and_name_the_unknown(tmp_path):
    config = without(CONFIG, segment_by="department")
    skus = pd.DataFrame({"sku_id": ["1"], "segment": ["dairy"]})
    result = prepared(tmp_path, EXPLICIT, config, split=("department", "skus"), attributes=skus)
    assert [segment.name for segment in result.segments] == ["dairy", "unknown"]
    assert units(result, 0) == {("A", "1"): 6, ("B", "1"): 0}
    assert units(result, 1) == {("A", "2"): 3, ("B", "2"): 7}
    assert [segment.history.tolist() for segment in result.segments] == [[1, 1], [1, 1]]


def test_segments_by_store(tmp_path):
    config = without(CONFIG, segment_by="region")
    stores = pd.DataFrame({"store_id": ["A", "B", "Z"], "segment": ["north", None, "west"]})
    result = prepared(tmp_path, EXPLICIT, config, split=("region", "stores"), attributes=stores)
    assert [segment.name for segment in result.segments] == ["north", "unknown"]
    assert units(result, 0) == {("A", "1"): 6, ("A", "2"): 3}


@pytest.mark.parametrize("zeros", [True, False], ids=["explicit", "implied"])
def test_a_column_of_sales_that_follows_the_sku_also_splits_implied_zeros(zeros, tmp_path):
    config = without(CONFIG, segment_by="department")
    rows = sales_table(("A", "1", 0, 6), ("A", "2", 0, 3), ("B", "1", 0, 0), ("B", "2", 0, 7))
    rows = rows[(rows["units"] > 0) | zeros]  # B/1 never had a row that says where it belongs
    split = rows.assign(segment=rows["sku_id"].map({"1": "dairy", "2": "frozen"}))
    result = prepared(tmp_path, split, config, listing=FULL, split=("department", "sales"))
    assert [segment.name for segment in result.segments] == ["dairy", "frozen"]
    assert units(result, 0) == {("A", "1"): 6, ("B", "1"): 0}


def test_a_column_of_the_listing_splits_by_pair(tmp_path):
    config = without(CONFIG, segment_by="shelf")
    listing = FULL.assign(segment=["x", "y", "y", "x"])
    result = prepared(tmp_path, IMPLIED, config, listing=listing, split=("shelf", "listing"))
    assert units(result, 0) == {("A", "1"): 6, ("B", "2"): 7}
    assert units(result, 1) == {("A", "2"): 3, ("B", "1"): 0}


def test_costs_are_in_the_order_of_the_pairs(tmp_path):
    costs = pd.DataFrame(
        [(None, None, 1.0, 10.0), (None, "1", 1.0, 20.0), ("B", None, 1.0, 30.0), ("B", "1", 1.0, 40.0)],
        columns=["store_id", "sku_id", "cost_false_alarm", "cost_missed"],
    )
    segment = prepared(tmp_path, EXPLICIT, costs=costs).segments[0]
    assert np.asarray(segment.costs.missed).tolist() == [20.0, 10.0, 40.0, 30.0]


def test_without_a_table_of_costs_the_defaults_hold(tmp_path):
    segment = prepared(tmp_path, EXPLICIT, without(CONFIG, default_cost_missed=7.0)).segments[0]
    assert segment.costs.broadcast(4)[1].tolist() == [7.0] * 4


def test_nothing_left_is_refused_in_words(tmp_path):
    with pytest.raises(
        DataError, match="no pair of 2026-W34 is left: 0 promoted, 1 sold but not in the listing"
    ):
        prepared(tmp_path, sales_table(("Z", "1", 0, 3)), listing=FULL)


def test_a_snapshot_of_another_week_or_split_is_refused(tmp_path):
    snapshot = make_snapshot(tmp_path, EXPLICIT)
    with pytest.raises(UsageError, match="the snapshot is of 2026-W34, not of 2026-W35"):
        prepare(snapshot, WEEK.shift(1), CONFIG)
    with pytest.raises(UsageError, match="not by region"):
        prepare(snapshot, WEEK, without(CONFIG, segment_by="region"))


def test_arrays_are_read_only(tmp_path):
    segment = prepared(tmp_path, EXPLICIT).segments[0]
    for array in (segment.scored, segment.history, segment.level, segment.sales.counts):
        assert not array.flags.writeable


@st.composite
def chains(draw):
    """A full grid of stores, SKUs and weeks in which every store sells something in every week."""
    n, m, weeks = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    ranged = [(f"S{s}", f"K{k}") for s in range(n) for k in range(m) if k == 0 or draw(st.booleans())]
    promoted = {(f"K{k}", back) for k in range(1, m) for back in range(weeks) if draw(st.integers(0, 5)) == 0}
    rows = []
    for back in range(weeks):
        for store, sku in ranged:
            least = 1 if sku == "K0" else 0
            rows.append((store, sku, back, draw(st.integers(least, 4)), (sku, back) in promoted))
    return ranged, sales_table(*rows, columns=("promo",))


@settings(max_examples=40)
@given(chains())
def test_explicit_zeros_and_zeros_implied_by_the_listing_give_the_same_week(chain):
    ranged, rows = chain
    sold = rows[rows["units"] > 0]
    # A SKU that nobody sold in a week leaves no row that could say it was promoted.
    rows = rows.assign(promo=rows["promo"] & rows.set_index(["sku_id", "week"]).index.isin(
        sold.set_index(["sku_id", "week"]).index))  # fmt: skip
    sold = rows[rows["units"] > 0]
    with tempfile.TemporaryDirectory() as folder:
        config = without(CONFIG, min_pair_entries=2)
        explicit = prepared(Path(folder) / "1", rows, without(config, zero_rule="explicit"))
        implied = prepared(Path(folder) / "2", sold, config, listing=listing_table(*ranged))
        both = prepared(Path(folder) / "3", rows, config, listing=listing_table(*ranged))
    for other in (implied, both):
        assert units(other) == units(explicit)
        mine, theirs = explicit.segments[0], other.segments[0]
        assert np.array_equal(mine.scored, theirs.scored)
        assert np.array_equal(mine.history, theirs.history)
        assert (mine.level is None) == (theirs.level is None)
        assert mine.level is None or np.array_equal(mine.level, theirs.level)
        assert other.coverage.pairs_promoted == explicit.coverage.pairs_promoted


@given(
    st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 5)), st.integers(0, 9), min_size=1),
    st.integers(0, 2),
)
def test_the_matrix_is_the_one_of_its_pairs(pairs, unused):
    """Stores and SKUs without a pair are left out, wherever they stand."""
    shape = 5 + unused, 6 + unused
    coded = SimpleNamespace(
        shape=shape,
        store_ids=np.array(list("ABCDEFG")[: shape[0]]),
        sku_ids=np.array(list("12345678")[: shape[1]]),
    )
    ordered = sorted(pairs)
    key = np.array([store * shape[1] + sku for store, sku in ordered])
    sales = _matrix(coded, key, np.array([pairs[pair] for pair in ordered], dtype=np.int32), WEEK)
    found = {
        (str(sales.store_ids[row]), str(sales.sku_ids[col])): int(count)
        for row, col, count in zip(sales.rows, sales.cols, sales.counts, strict=True)
    }
    assert found == {
        (str(coded.store_ids[store]), str(coded.sku_ids[sku])): count for (store, sku), count in pairs.items()
    }
    assert sales.shape == (len({store for store, _ in pairs}), len({sku for _, sku in pairs}))


def test_the_same_costs_from_a_table_and_by_default_flag_the_same(tmp_path):
    rng = np.random.default_rng(0)
    rates = np.outer(rng.gamma(4, 0.5, 12), rng.gamma(4, 1.0, 9))
    counts = rng.poisson(rates * np.where(rng.random(rates.shape) < 0.1, 0.1, 1.0))
    sales = sales_table(*[(f"S{s:02}", f"K{k}", 0, int(counts[s, k])) for s in range(12) for k in range(9)])
    table = pd.DataFrame(
        {"store_id": [None], "sku_id": [None], "cost_false_alarm": [1.0], "cost_missed": [3.0]}
    )
    config = without(
        CONFIG,
        default_cost_false_alarm=1.0,
        default_cost_missed=3.0,
        detector=DetectorSettings(mode="fast", rank=1),
    )
    scores = []
    for folder, costs in (("plain", {}), ("table", {"costs": table})):
        fitted = fit_segments(prepared(tmp_path / folder, sales, config, **costs), config, tmp_path)
        probability = [one.fit.anomaly_probability_ for one in fitted]
        scores.append(decide(fitted, probability, WEEK, config))
    assert scores[0]["flagged"].any()
    pd.testing.assert_frame_equal(*scores)
