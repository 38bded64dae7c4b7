"""Small made-up files in the published formats become the long table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ew_pipeline.backtest.history import read_history
from ew_pipeline.cli.main import app
from ew_pipeline.core.errors import DataError
from ew_pipeline.studies.datasets import (
    DATASETS,
    read_breakfast,
    read_dominicks,
    read_freshretailnet,
    read_m5,
)


def test_freshretailnet_sums_hours_to_weeks_and_drops_the_short_one(tmp_path):
    days = pd.date_range("2024-03-28", periods=9)
    rows = [
        {
            "store_id": 3,
            "product_id": 4,
            "dt": day.strftime("%Y-%m-%d"),
            "sale_amount": 0.5,
            "activity_flag": int(k == 2),
            # out of stock from midnight to noon on the first day: six opening hours
            "hours_stock_status": [1] * 12 + [0] * 12 if k == 0 else [0] * 24,
        }
        for k, day in enumerate(days)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "train.parquet")
    found = read_freshretailnet(tmp_path / "train.parquet")
    assert len(found) == 1
    assert found.loc[0, ["store_id", "sku_id", "units", "promo"]].tolist() == ["3", "4", 35, 1]
    assert str(found.loc[0, "week"])[:10] == "2024-03-28"
    assert found.loc[0, "oos_frac"] == pytest.approx(6 / (7 * 16))


def small_m5(folder: Path) -> None:
    """Two whole weeks and a part of a third; the second product is launched in the second."""
    dates = pd.date_range("2015-03-07", periods=17)
    calendar = pd.DataFrame(
        {
            "date": dates.strftime("%Y-%m-%d"),
            "wm_yr_wk": np.repeat([11506, 11507, 11508], [7, 7, 3]),
            "d": [f"d_{k + 1}" for k in range(17)],
        }
    )
    calendar.to_csv(folder / "calendar.csv", index=False)
    days = {f"d_{k + 1}": [1, int(k >= 7), 0] for k in range(17)}
    sales = pd.DataFrame(
        {
            "item_id": ["F_1", "F_2", "H_1"],
            "dept_id": ["FOODS_1", "FOODS_1", "HOBBIES_1"],
            "store_id": ["CA_1"] * 3,
            **days,
        }
    )
    sales.to_csv(folder / "sales_train_evaluation.csv", index=False)


def test_m5_sums_days_to_walmart_weeks_and_ranges_from_the_first_sale(tmp_path):
    small_m5(tmp_path)
    found = read_m5(tmp_path, ("FOODS_1",))
    assert found.to_dict("records") == [
        {"store_id": "CA_1", "sku_id": "F_1", "week": "2015-03-07", "units": 7},
        {"store_id": "CA_1", "sku_id": "F_1", "week": "2015-03-14", "units": 7},
        {"store_id": "CA_1", "sku_id": "F_2", "week": "2015-03-14", "units": 7},
    ]
    with pytest.raises(DataError, match="no product"):
        read_m5(tmp_path, ("TOYS",))


def test_breakfast_dates_the_start_of_the_week(tmp_path):
    (tmp_path / "t.csv").write_text(
        "WEEK_END_DATE,STORE_NUM,UPC,UNITS,VISITS,HHS,SPEND,PRICE,BASE_PRICE,FEATURE,DISPLAY,TPR_ONLY\n"
        "14-Jan-09,367,0011,13,13,13,18.07,1.39,1.57,0,0,1\n"
        "21-Jan-09,367,0011,20,18,18,27.8,1.39,1.39,0,0,0\n"
    )
    found = read_breakfast(tmp_path / "t.csv")
    assert found["week"].tolist() == ["2009-01-08", "2009-01-15"]
    assert found[["store_id", "sku_id", "units", "promo"]].iloc[0].tolist() == ["367", "0011", 13, 1]
    found.to_parquet(tmp_path / "t.parquet")
    assert read_history(str(tmp_path / "t.parquet")).panel.n_weeks == 2


def test_dominicks_counts_weeks_from_september_1989_and_leaves_suspect_rows_out(tmp_path):
    (tmp_path / "wana.csv").write_text(
        "STORE,UPC,WEEK,MOVE,QTY,PRICE,SALE,PROFIT,OK\n"
        "2,1111,1,5,2,3.0,B,20,1\n"
        "2,1111,2,0,1,1.5,,20,1\n"
        "2,1111,3,9,1,1.5,,20,0\n"
    )
    found = read_dominicks(tmp_path / "wana.csv")
    assert found["week"].tolist() == ["1989-09-14", "1989-09-21"]
    assert found["units"].tolist() == [5, 0]
    assert found["price"].tolist() == [1.5, 1.5]
    assert found["promo"].tolist() == [1, 0]


def ew(*args: str, code: int = 0):
    result = CliRunner().invoke(app, ["convert", *args], prog_name="ew")
    assert result.exit_code == code, result.stderr
    return result


def test_a_dataset_becomes_a_table_that_evaluate_reads(tmp_path):
    small_m5(tmp_path)
    table = tmp_path / "out" / "m5.parquet"
    made = json.loads(ew("m5", str(tmp_path), "--to", str(table), "--department", "FOODS_1", "--json").stdout)
    assert (made["rows"], made["stores"], made["skus"], made["weeks"], made["units"]) == (3, 1, 2, 2, 21)
    assert made["next"] == f"ew evaluate --sales {table}"
    panel = read_history(str(table)).panel
    assert np.nansum(panel.units) == 21
    last = json.loads(ew("m5", str(tmp_path), "--to", str(table), "--weeks", "1", "--json").stdout)
    assert last["weeks"] == 1
    assert set(pd.read_parquet(table)["week"]) == {"2015-03-14"}


def test_the_table_can_be_csv_and_the_next_command_has_what_the_dataset_needs(tmp_path):
    text = (
        "WEEK_END_DATE,STORE_NUM,UPC,UNITS,PRICE,FEATURE,DISPLAY,TPR_ONLY\n14-Jan-09,367,0011,13,1.39,0,0,1\n"
    )
    (tmp_path / "t.csv").write_text(text)
    out = ew("breakfast", str(tmp_path / "t.csv"), "--to", str(tmp_path / "b.csv")).stdout
    assert "1 rows, 1 stores, 1 SKUs, 1 weeks, 13 units" in out
    assert f"Next: ew evaluate --sales {tmp_path / 'b.csv'} --zero-rule inferred" in out
    assert pd.read_csv(tmp_path / "b.csv", dtype={"sku_id": "str"})["sku_id"].tolist() == ["0011"]


def test_without_a_dataset_each_is_listed_with_its_source_and_terms():
    listed = ew().stdout
    for name, dataset in DATASETS.items():
        assert f"{name}\n" in listed
        assert dataset.publisher in listed
        assert f"terms: {dataset.terms}" in listed


@pytest.mark.parametrize("name", DATASETS)
def test_a_file_that_is_not_there_and_one_of_another_kind_are_refused_by_name(name, tmp_path):
    to = ("--to", str(tmp_path / "out.parquet"))
    gone = ew(name, str(tmp_path / "gone"), *to, code=1)
    assert "is not there" in gone.stderr
    other = tmp_path / "other"
    if name == "m5":
        other.mkdir()
        (other / "calendar.csv").write_text("a,b\n1,2\n")
    elif name == "freshretailnet":
        pd.DataFrame({"a": [1]}).to_parquet(other)
    else:
        other.write_text("a,b\n1,2\n")
    wrong = ew(name, str(other), *to, code=1)
    assert "has no column" in wrong.stderr
    assert "Next:" in wrong.stderr
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("walmart", "x", "--to", "y.parquet"), "there is no dataset 'walmart'"),
        (("m5", "x"), "ends in .parquet or .csv"),
        (("m5", "x", "--to", "y.xlsx"), "ends in .parquet or .csv"),
        (("dominicks", "x", "--to", "y.csv", "--weeks", "3"), "are of m5 alone"),
    ],
)
def test_a_wrong_call_says_what_is_right(args, words):
    assert words in ew(*args, code=2).stderr
