"""dunnhumby "Breakfast at the Frat": 156 weeks of four categories.

The workbook's sheet ``dh Transaction Data`` has one row per week, store and UPC with a sale:
``WEEK_END_DATE``, ``STORE_NUM``, ``UPC``, ``UNITS``, ``PRICE``, ``FEATURE``, ``DISPLAY``, ``TPR_ONLY``.
Export it as CSV first, headed by these names. Weeks without a sale have no row: they are inferred.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ew_pipeline.studies.datasets.reading import read_csv

PROMOTED = ("FEATURE", "DISPLAY", "TPR_ONLY")
COLUMNS = ("WEEK_END_DATE", "STORE_NUM", "UPC", "UNITS", "PRICE", *PROMOTED)


def read_breakfast(path: str | Path) -> pd.DataFrame:
    """Sales by week (its first day, six days before ``WEEK_END_DATE``), with price and promo."""
    raw = read_csv(path, COLUMNS, "the sheet dh Transaction Data as CSV", text=("STORE_NUM", "UPC"))
    ended = pd.to_datetime(raw["WEEK_END_DATE"], format="mixed")
    return pd.DataFrame(
        {
            "store_id": raw["STORE_NUM"],
            "sku_id": raw["UPC"],
            "week": (ended - pd.Timedelta(days=6)).dt.strftime("%Y-%m-%d"),
            "units": raw["UNITS"].astype("int64"),
            "price": raw["PRICE"],
            "promo": raw[list(PROMOTED)].fillna(0).astype("int64").max(axis=1),
        }
    )
