"""Public sales data as our long table: whose they are, under which terms, and how they are read.

The files are not part of this project. The user downloads them from their publishers under their terms and
passes the path; `ew convert` writes the table. Every reader returns a pandas frame that can be written to
parquet and given to ``ew run --sales`` or ``ew evaluate --sales``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from ew_pipeline.core.errors import DataError
from ew_pipeline.intake.sources import literal

PROMOTED = ("FEATURE", "DISPLAY", "TPR_ONLY")
BREAKFAST_COLUMNS = ("WEEK_END_DATE", "STORE_NUM", "UPC", "UNITS", "PRICE", *PROMOTED)
DOMINICKS_COLUMNS = ("STORE", "UPC", "WEEK", "MOVE", "QTY", "PRICE", "SALE", "OK")
DOMINICKS_BEGIN = pd.Timestamp("1989-09-14")  # the first day of week 1
FRESHRETAILNET_COLUMNS = (
    *("store_id", "product_id", "dt"),
    *("sale_amount", "hours_stock_status", "activity_flag"),
)
OPENS, CLOSES = 6, 22  # the hours of the day in which stores of FreshRetailNet sell
UNITS_PER_AMOUNT = 10.0  # its published amounts are normalised; ten times them are close to whole units
DAYS_IN_A_WEEK = 7


@dataclass(frozen=True)
class Dataset:
    """One dataset. Nothing of it is handed out with this project.

    Attributes
    ----------
    publisher : who publishes it, and where.
    terms : under which conditions, as far as we know; the publisher's words decide.
    file : what the user passes.
    reader : the function of this module that reads it.
    evaluate : what to give `ew evaluate` beside the converted file.
    """

    title: str
    publisher: str
    terms: str
    file: str
    reader: str
    evaluate: str = ""


DATASETS: Mapping[str, Dataset] = {
    "freshretailnet": Dataset(
        "FreshRetailNet-50K: hourly sales of fresh products, with the hours out of stock",
        "Dingdong-Inc, on Hugging Face (Dingdong-Inc/FreshRetailNet-50K)",
        "CC-BY-4.0",
        "the parquet file of one split",
        "read_freshretailnet",
        "--truth {to} --truth-column oos_frac --truth-threshold 0.5",
    ),
    "m5": Dataset(
        "M5 Forecasting: daily sales of 3,049 products in ten Walmart stores",
        "Walmart and the University of Nicosia, on Kaggle (m5-forecasting-accuracy)",
        "the rules of the competition, to be accepted on Kaggle",
        "the folder with calendar.csv and sales_train_evaluation.csv",
        "read_m5",
    ),
    "breakfast": Dataset(
        "Breakfast at the Frat: 156 weeks of four categories in 77 stores",
        "dunnhumby, on its source files page",
        "dunnhumby's terms of use for its source files",
        "the sheet dh Transaction Data of the workbook, saved as CSV",
        "read_breakfast",
        "--zero-rule inferred",
    ),
    "dominicks": Dataset(
        "Dominick's Finer Foods: weekly scanner data of about 100 stores, 1989 on",
        "Kilts Center for Marketing, University of Chicago Booth School of Business",
        "academic research only, with acknowledgement of the Kilts Center",
        "a movement file as CSV, such as wana.csv",
        "read_dominicks",
    ),
}


def existing(path: str | Path, what: str) -> Path:
    """``path`` if it is there; ``what`` says which file of the dataset was expected."""
    found = Path(path)
    if not found.exists():
        raise DataError(f"{path} is not there; {what} was expected.", "download it and pass its place.")
    return found


def read_csv(
    path: str | Path,
    columns: Sequence[str],
    what: str,
    text: Sequence[str] = (),
    *,
    all_columns: bool = False,
) -> pd.DataFrame:
    """The named columns of a CSV file, or all of them; ``text`` ones are kept as they are written."""
    place = existing(path, what)
    kept = pd.read_csv(place, nrows=0).columns
    require(kept, columns, f"{path} ({what})")
    chosen = None if all_columns else list(columns)
    return pd.read_csv(place, usecols=chosen, dtype=dict.fromkeys(text, "str"))


def require(present: Sequence[str] | pd.Index[str], columns: Sequence[str], what: str) -> None:
    """Refuse a table without one of ``columns``."""
    missing = [name for name in columns if name not in present]
    if missing:
        raise DataError(
            f"{what} has no column {', '.join(missing)}; it begins with {', '.join(list(present)[:8])}.",
            "pass the file as its publisher hands it out.",
        )


def read_breakfast(path: str | Path) -> pd.DataFrame:
    """Sales by week (its first day, six days before ``WEEK_END_DATE``), with price and promo.

    The sheet has one row per week, store and UPC with a sale. Weeks without one have no row.
    """
    raw = read_csv(path, BREAKFAST_COLUMNS, "the sheet dh Transaction Data as CSV", text=("STORE_NUM", "UPC"))
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


def read_dominicks(path: str | Path) -> pd.DataFrame:
    """Sales by week (the Thursday it starts), with price and promo; suspect rows (``OK`` 0) are left out.

    A file is of one category: a row per UPC, store and week, with ``MOVE`` units and the ``PRICE`` of ``QTY``
    units. ``SALE`` is a code, or empty. Zeros are rows with ``MOVE`` 0.
    """
    raw = read_csv(path, DOMINICKS_COLUMNS, "a movement file such as wana.csv", text=("STORE", "UPC", "SALE"))
    raw = raw[raw["OK"] == 1]
    return pd.DataFrame(
        {
            "store_id": raw["STORE"],
            "sku_id": raw["UPC"],
            "week": (DOMINICKS_BEGIN + pd.to_timedelta(7 * (raw["WEEK"] - 1), unit="D")).dt.strftime(
                "%Y-%m-%d"
            ),
            "units": raw["MOVE"].astype("int64"),
            "price": (raw["PRICE"] / raw["QTY"].where(raw["QTY"] > 0)).round(4),
            "promo": raw["SALE"].fillna("").str.strip().ne("").astype("int64"),
        }
    ).reset_index(drop=True)


def read_freshretailnet(path: str | Path) -> pd.DataFrame:
    """Sales by week, with ``oos_frac``, the share of opening hours out of stock, and ``promo``.

    ``path`` is the parquet file of one split: a row per store, product and day, ``hours_stock_status`` of 24
    values, 1 for out of stock. A pair without rows is not ranged. Weeks are counted from the first day; a
    last week with fewer than seven days is left out. ``oos_frac`` is a truth for ``ew evaluate --truth``.
    """
    place = existing(path, "the parquet file of one split")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        source = f"read_parquet({literal(str(place))})"
        described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        require([name for name, *_ in described], FRESHRETAILNET_COLUMNS, str(path))
        first, last = connection.execute(
            f"SELECT min(CAST(dt AS DATE)), max(CAST(dt AS DATE)) FROM {source}"
        ).fetchone() or (None, None)
        if first is None:
            raise DataError(f"{path} has no rows.", "download it again.")
        whole = ((last - first).days + 1) // 7
        out = f"list_sum(list_slice(hours_stock_status, {OPENS + 1}, {CLOSES}))"
        return connection.execute(
            f"""
            SELECT CAST(store_id AS VARCHAR) AS store_id, CAST(product_id AS VARCHAR) AS sku_id,
                   DATE {literal(str(first))} + CAST(7 * w AS INTEGER) AS week,
                   CAST(round(sum(sale_amount) * {UNITS_PER_AMOUNT}) AS BIGINT) AS units,
                   max(activity_flag) AS promo, sum(out) / (count(*) * {CLOSES - OPENS}.0) AS oos_frac
            FROM (SELECT *, (CAST(dt AS DATE) - DATE {literal(str(first))}) // 7 AS w, {out} AS out
                  FROM {source})
            WHERE w < {whole}
            GROUP BY 1, 2, w ORDER BY 1, 2, 3
            """
        ).df()


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
