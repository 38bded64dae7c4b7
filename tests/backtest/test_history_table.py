"""Reading sales of many weeks: weeks in every spelling, zeros by rule, faults refused and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ew_pipeline.backtest.history import read_history, read_truth
from ew_pipeline.core.errors import DataError, UsageError

ROWS = pd.DataFrame(
    {
        "store_id": ["007", "007", "8", "8"],
        "sku_id": ["a", "a", "a", "a"],
        "week": ["2026-W01", "2026-W03", "2026-W01", "2026-W02"],
        "units": [3, 4, 5, 0],
    }
)


def written(frame: pd.DataFrame, path: Path, kind: str = "parquet") -> str:
    target = path / f"t.{kind}"
    if kind == "csv":
        frame.to_csv(target, index=False)
    else:
        frame.to_parquet(target)
    return str(target)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_rows_become_a_panel_with_ids_as_written(tmp_path, kind):
    table = read_history(written(ROWS, tmp_path, kind))
    assert table.panel.store_ids.tolist() == ["007", "8"]
    assert table.panel.weeks == ("2026-W01", "2026-W02", "2026-W03")
    np.testing.assert_array_equal(table.panel.units, [[3, np.nan, 4], [5, 0, np.nan]])
    assert (table.zero_rule, table.numbered) == ("explicit", False)


@pytest.mark.parametrize(
    "weeks",
    [
        ["2025-12-29", "2026-01-12", "2025-12-29", "2026-01-05"],
        ["2025-12-27", "2026-01-10", "2025-12-27", "2026-01-03"],  # weeks that start on Saturday
        pd.to_datetime(["2025-12-29", "2026-01-12", "2025-12-29", "2026-01-05"]),
        [7, 9, 7, 8],
        ["2026W01", "2026W03", "2026W01", "2026W02"],
    ],
    ids=["monday", "saturday", "timestamp", "number", "compact"],
)
def test_weeks_may_be_written_in_many_ways(tmp_path, weeks):
    table = read_history(written(ROWS.assign(week=weeks), tmp_path))
    np.testing.assert_array_equal(table.panel.units, [[3, np.nan, 4], [5, 0, np.nan]])
    assert table.position(table.panel.weeks[2]) == 2


def test_without_zeros_a_pair_that_sold_lately_counts_as_carried(tmp_path):
    sold = pd.concat([ROWS[ROWS["units"] > 0], ROWS.iloc[[3]].assign(sku_id="b", units=1)])
    table = read_history(written(sold, tmp_path))
    assert table.zero_rule == "inferred"
    np.testing.assert_array_equal(table.panel.units[1], [5, 0, np.nan])  # 8/a; store 8 has no row in W03
    table = read_history(written(sold, tmp_path), zeros="explicit")
    np.testing.assert_array_equal(table.panel.units[1], [5, np.nan, np.nan])


def test_a_listing_says_what_is_ranged(tmp_path):
    (tmp_path / "l").mkdir()
    listing = pd.DataFrame(
        {
            "store_id": ["007", "8"],
            "sku_id": ["a", "a"],
            "first_week": ["", ""],
            "last_week": ["", "2026-W01"],
        }
    )
    extra = pd.concat([ROWS, ROWS.iloc[[0]].assign(sku_id="b", week="2026-W02")])
    table = read_history(written(extra, tmp_path), written(listing, tmp_path / "l", "csv"))
    assert table.zero_rule == "listing"
    assert table.panel.n_pairs == 2  # 007/b is not ranged
    np.testing.assert_array_equal(table.panel.units, [[3, 0, 4], [5, np.nan, np.nan]])


def test_promotions_in_every_spelling(tmp_path):
    table = read_history(written(ROWS.assign(promo=["1", "0", "true", "no"]), tmp_path, "csv"))
    assert table.panel.promo is not None
    assert table.panel.promo.sum() == 2
    assert table.panel.promo[0, 0]
    assert table.panel.promo[1, 0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"units": [1, -1, 2, 3]}, "negative or not whole: 007/a 2026-W03: -1"),
        ({"units": [1, 1.5, 2, 3]}, "not whole"),
        ({"units": [1, None, 2, 3]}, "no number as units"),
        ({"week": ["2026-W01", "2026-W01", "2026-W01", "2026-W02"]}, "repeat a pair"),
        ({"store_id": ["007", None, "8", "8"]}, "lack a store"),
    ],
    ids=["negative", "fraction", "missing", "twice", "no store"],
)
def test_faulty_rows_are_refused_and_named(tmp_path, change, match):
    with pytest.raises(DataError, match=match):
        read_history(written(ROWS.assign(**change), tmp_path))


def test_missing_columns_unknown_weeks_and_rules_are_refused(tmp_path):
    with pytest.raises(DataError, match="has no column units"):
        read_history(written(ROWS.drop(columns="units"), tmp_path))
    with pytest.raises(UsageError, match="is not a week"):
        read_history(written(ROWS.assign(week=["x", "y", "x", "z"]), tmp_path))
    with pytest.raises(UsageError, match="choose one of auto"):
        read_history(written(ROWS, tmp_path), zeros="guess")
    table = read_history(written(ROWS.assign(week=[7, 9, 7, 8]), tmp_path))
    with pytest.raises(UsageError, match="whole numbers"):
        table.position("2026-W01")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("label", [1, 0, 0]),
        ("oos_frac", [0.5, 0.49, 0.1]),
        ("outcome", ["confirmed", "healthy", "not_checked"]),
        ("anomaly", [True, False, False]),
    ],
)
def test_truth_in_many_forms(tmp_path, column, values):
    (tmp_path / "t").mkdir()
    table = read_history(written(ROWS, tmp_path))
    truth = ROWS.iloc[:3][["store_id", "sku_id", "week"]].assign(**{column: values})
    labels = read_truth(written(truth, tmp_path / "t"), table, None, 0.5)
    assert labels.anomaly[0, 0]
    assert labels.anomaly.sum() == 1
    assert labels.known[0, 2]
    assert labels.known[1, 0] == (column != "outcome")


def test_truth_of_other_pairs_is_refused(tmp_path):
    (tmp_path / "t").mkdir()
    table = read_history(written(ROWS, tmp_path))
    truth = ROWS[["store_id", "sku_id", "week"]].assign(label=1)
    with pytest.raises(DataError, match="no row of"):
        read_truth(written(truth.assign(store_id="z"), tmp_path / "t"), table, None, 0.5)
    with pytest.raises(DataError, match="name the one that tells"):
        read_truth(written(truth.drop(columns="label"), tmp_path / "t"), table, None, 0.5)


def test_pairs_are_split_by_a_column_of_the_sales_or_the_listing(tmp_path):
    rows = pd.concat([ROWS, ROWS.assign(sku_id="b")], ignore_index=True)
    coloured = rows.assign(colour=np.where(rows["sku_id"] == "a", "red", "blue"))
    table = read_history(written(coloured, tmp_path), segment_by="colour")
    assert [table.grouping.names[code] for code in table.grouping.of] == ["red", "blue"] * 2
    assert table.ignored == ()
    (tmp_path / "l").mkdir()
    listing = pd.DataFrame({"store_id": ["007", "8"], "sku_id": "a", "region": ["north", "south"]})
    table = read_history(
        written(ROWS, tmp_path), written(listing, tmp_path / "l", "csv"), segment_by="region"
    )
    assert [table.grouping.names[code] for code in table.grouping.of] == ["north", "south"]
    with pytest.raises(UsageError, match="no column 'shade' to split by"):
        read_history(written(coloured, tmp_path), segment_by="shade")


def test_the_latest_row_of_a_pair_says_its_segment(tmp_path):
    moved = ROWS.assign(tier=["new", "old", "old", "new"])  # by week: new then old; old then new
    table = read_history(written(moved.sample(frac=1, random_state=3), tmp_path), segment_by="tier")
    assert [table.grouping.names[code] for code in table.grouping.of] == ["old", "new"]
