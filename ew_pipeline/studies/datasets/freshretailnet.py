"""FreshRetailNet-50K: hourly sales of fresh products, with the hours out of stock.

One row per store, product and day: ``store_id``, ``product_id``, ``dt``, ``hours_sale`` and
``hours_stock_status`` (24 values; 1 means out of stock), ``sale_amount`` (normalised), ``activity_flag``.
Only pairs that are carried have rows, so a pair without rows is not ranged.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd

from ew_pipeline.core.errors import DataError
from ew_pipeline.intake.sources import literal
from ew_pipeline.studies.datasets.reading import existing, require

COLUMNS = ("store_id", "product_id", "dt", "sale_amount", "hours_stock_status", "activity_flag")
OPENS, CLOSES = 6, 22
UNITS_PER_AMOUNT = 10.0  # the published amounts are normalised; ten times them are close to whole units


def read_freshretailnet(path: str | Path) -> pd.DataFrame:
    """Sales by week, with ``oos_frac``, the share of opening hours out of stock, and ``promo``.

    ``path`` is the parquet file of one split. Weeks are counted from the first day; a last week with fewer
    than seven days is left out. ``oos_frac`` is a truth for ``ew evaluate --truth``.
    """
    place = existing(path, "the parquet file of one split")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        source = f"read_parquet({literal(str(place))})"
        described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        require([name for name, *_ in described], COLUMNS, str(path))
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
