"""Dominick's Finer Foods: store-level scanner data, one movement file a category.

A movement file (``wana.csv`` for analgesics) has one row per UPC, store and week: ``STORE``, ``UPC``,
``WEEK`` (1 is the week of 14 September 1989), ``MOVE`` (units), ``QTY``, ``PRICE`` (for QTY units), ``SALE``
(a code, or empty) and ``OK`` (0 marks suspect data). Zeros are rows with MOVE = 0 and count as ranged.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ew_pipeline.studies.datasets.reading import read_csv

FIRST_WEEK = pd.Timestamp("1989-09-14")
COLUMNS = ("STORE", "UPC", "WEEK", "MOVE", "QTY", "PRICE", "SALE", "OK")


def read_dominicks(path: str | Path) -> pd.DataFrame:
    """Sales by week (the Thursday it starts), with price and promo; suspect rows are left out."""
    raw = read_csv(path, COLUMNS, "a movement file such as wana.csv", text=("STORE", "UPC", "SALE"))
    raw = raw[raw["OK"] == 1]
    return pd.DataFrame(
        {
            "store_id": raw["STORE"],
            "sku_id": raw["UPC"],
            "week": (FIRST_WEEK + pd.to_timedelta(7 * (raw["WEEK"] - 1), unit="D")).dt.strftime("%Y-%m-%d"),
            "units": raw["MOVE"].astype("int64"),
            "price": (raw["PRICE"] / raw["QTY"].where(raw["QTY"] > 0)).round(4),
            "promo": raw["SALE"].fillna("").str.strip().ne("").astype("int64"),
        }
    ).reset_index(drop=True)
