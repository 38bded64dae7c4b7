"""A part of a week's rows as a week of its own."""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Float, Int64
from ew_pipeline.method.sales_matrix import SalesMatrix


def spread_rows(n_rows: int, n_wanted: int) -> Int64:
    """About ``n_wanted`` of the rows, evenly spread."""
    wanted = max(1, min(n_rows, n_wanted))
    return np.unique(np.linspace(0, n_rows - 1, wanted).astype(np.int64))


def spread_part(sales: SalesMatrix, level: Float | None, n_rows: int) -> tuple[SalesMatrix, Float | None]:
    """About so many rows, evenly spread, with their levels."""
    if n_rows >= sales.shape[0]:
        return sales, level
    rows = spread_rows(sales.shape[0], n_rows)
    return rows_of(sales, rows), None if level is None else level[entries_of(sales.indptr, rows)]


def rows_of(sales: SalesMatrix, rows: Int64) -> SalesMatrix:
    """These rows (ascending), all columns kept."""
    entries = entries_of(sales.indptr, rows)
    return SalesMatrix(
        indptr=np.concatenate([[0], np.cumsum(np.diff(sales.indptr)[rows])]).astype(np.int64),
        cols=sales.cols[entries],
        counts=sales.counts[entries],
        shape=(rows.size, sales.shape[1]),
        store_ids=sales.store_ids[rows],
        sku_ids=sales.sku_ids,
        week=sales.week,
    )


def entries_of(indptr: Int64, rows: Int64) -> Int64:
    """Where the entries of these rows are."""
    sizes = np.diff(indptr)[rows]
    ends = np.cumsum(sizes)
    return np.asarray(np.arange(ends[-1]) + np.repeat(indptr[rows] - (ends - sizes), sizes))
