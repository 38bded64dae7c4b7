"""dunnhumby "Breakfast at the Frat" (from dunnhumby's source files page, under its terms): 156 weeks.

The workbook's sheet ``dh Transaction Data`` has one row per week, store and UPC with a sale:
``WEEK_END_DATE``, ``STORE_NUM``, ``UPC``, ``UNITS``, ``PRICE``, ``FEATURE``, ``DISPLAY``, ``TPR_ONLY``.
Export it as CSV first. Weeks without a sale have no row: evaluate with ``--zero-rule inferred``.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

PROMOTED = ("FEATURE", "DISPLAY", "TPR_ONLY")


def read_breakfast(path: str | Path) -> pd.DataFrame:
    """Sales by week (its first day, six days before ``WEEK_END_DATE``), with price and promo."""
    raw = pd.read_csv(path, dtype={"STORE_NUM": "str", "UPC": "str"})
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
