"""Small made-up files in the published formats become the long table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ew_pipeline.data.adapters.breakfast import read_breakfast
from ew_pipeline.data.adapters.dominicks import read_dominicks
from ew_pipeline.data.adapters.freshretailnet import read_freshretailnet
from ew_pipeline.data.adapters.m5 import read_m5
from ew_pipeline.errors import DataError
from ew_pipeline.evaluate.tables import read_history


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


def test_m5_sums_days_to_walmart_weeks_and_ranges_from_the_first_sale(tmp_path):
    dates = pd.date_range("2015-03-07", periods=17)
    calendar = pd.DataFrame(
        {
            "date": dates.strftime("%Y-%m-%d"),
            "wm_yr_wk": np.repeat([11506, 11507, 11508], [7, 7, 3]),
            "d": [f"d_{k + 1}" for k in range(17)],
        }
    )
    calendar.to_csv(tmp_path / "calendar.csv", index=False)
    days = {f"d_{k + 1}": [1, int(k >= 7), 0] for k in range(17)}
    sales = pd.DataFrame(
        {
            "item_id": ["F_1", "F_2", "H_1"],
            "dept_id": ["FOODS_1", "FOODS_1", "HOBBIES_1"],
            "store_id": ["CA_1"] * 3,
            **days,
        }
    )
    sales.to_csv(tmp_path / "sales_train_evaluation.csv", index=False)
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
