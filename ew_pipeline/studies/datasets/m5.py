"""M5 Forecasting: daily unit sales of 3,049 Walmart products in ten stores.

``sales_train_evaluation.csv`` has one row per product and store with a column per day (``d_1`` …);
``calendar.csv`` says which date a day is and which Walmart week (``wm_yr_wk``, Saturday to Friday).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ew_pipeline.core.errors import DataError
from ew_pipeline.studies.datasets.reading import existing, read_csv

DAYS_IN_A_WEEK = 7


def read_m5(folder: str | Path, departments: tuple[str, ...] = (), last_weeks: int = 63) -> pd.DataFrame:
    """Sales by Walmart week (the Saturday it starts), the last ``last_weeks`` whole ones.

    A product is ranged in a store from its first sale on: earlier zeros have no row, later ones are zeros.
    ``departments`` such as ``("FOODS_3",)`` keeps only those.
    """
    folder = existing(folder, "a folder with calendar.csv and sales_train_evaluation.csv")
    calendar = read_csv(folder / "calendar.csv", ("d", "date", "wm_yr_wk"), "the calendar")
    names = ("item_id", "dept_id", "store_id")
    wide = read_csv(folder / "sales_train_evaluation.csv", names, "the daily sales", all_columns=True)
    if departments:
        wide = wide[wide["dept_id"].isin(departments)]
        if wide.empty:
            raise DataError(f"no product is of department {', '.join(departments)}.")
    calendar = calendar[calendar["d"].isin(wide.columns)].sort_values("date")
    size = calendar.groupby("wm_yr_wk")["d"].size()
    whole = np.sort(size.index[size == DAYS_IN_A_WEEK].to_numpy())
    calendar = calendar[calendar["wm_yr_wk"].isin(whole)]
    daily = wide[calendar["d"].tolist()].to_numpy()
    weekly = daily.reshape(len(wide), whole.size, DAYS_IN_A_WEEK).sum(axis=2)
    launched = np.cumsum(weekly, axis=1) > 0
    row, week = np.nonzero(launched[:, -last_weeks:])
    week += max(whole.size - last_weeks, 0)
    starts = calendar["date"].to_numpy()[::DAYS_IN_A_WEEK]
    return pd.DataFrame(
        {
            "store_id": wide["store_id"].to_numpy()[row],
            "sku_id": wide["item_id"].to_numpy()[row],
            "week": starts[week],
            "units": weekly[row, week],
        }
    )
