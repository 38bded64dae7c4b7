"""Values of entries in row-major order, column by column.

Every column is a place that is written to, one number at a time. So many places as a chain has SKUs do not
fit in the near caches, and each number would cost a trip to memory; so the columns are done some thousand
at a time, and of every row, whose columns ascend, the stretch that belongs to them is looked up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.algorithm._blocks import run_blocks
from ew_pipeline.algorithm._numba import njit
from ew_pipeline.algorithm.types import Int32, Int64

TOGETHER = 4096  # columns: a cache line each, for rows and for counts, is half a megabyte


def columns_of(cols: Int32, n_columns: int) -> Int64:
    """Where each column begins."""
    starts = np.zeros(n_columns + 1, dtype=np.int64)
    np.cumsum(np.bincount(cols, minlength=n_columns), out=starts[1:])
    return starts


def by_column(
    indptr: Int64, cols: Int32, starts: Int64, values: NDArray[Any], threads: int = 1
) -> NDArray[Any]:
    """``values`` of the entries in column-major order, rows ascending."""
    out = np.empty_like(values)
    _in_groups(lambda first, end: _values(first, end, indptr, cols, starts, values, out), starts, threads)
    return out


def rows_and_counts_by_column(
    indptr: Int64, cols: Int32, starts: Int64, counts: Int32, threads: int = 1
) -> tuple[Int32, Int32]:
    """The row and the count of each entry in that order."""
    rows, turned = np.empty_like(counts), np.empty_like(counts)
    _in_groups(
        lambda first, end: _rows_and_counts(first, end, indptr, cols, starts, counts, rows, turned),
        starts,
        threads,
    )
    return rows, turned


def _in_groups(work: Any, starts: Int64, threads: int) -> None:
    n_columns = starts.size - 1
    cuts = np.append(np.arange(0, n_columns, TOGETHER), n_columns)
    run_blocks(work, cuts, min(threads, cuts.size - 1))


@njit
def _values(
    first: int, end: int, indptr: Int64, cols: Int32, starts: Int64, values: NDArray[Any], out: NDArray[Any]
) -> None:
    at = starts[first:end].copy()
    for i in range(indptr.size - 1):
        low = _first_from(cols, indptr[i], indptr[i + 1], first)
        for e in range(low, _first_from(cols, low, indptr[i + 1], end)):
            j = np.uint64(cols[e] - first)
            out[np.uint64(at[j])] = values[e]
            at[j] += 1


@njit
def _rows_and_counts(
    first: int,
    end: int,
    indptr: Int64,
    cols: Int32,
    starts: Int64,
    counts: Int32,
    rows: Int32,
    turned: Int32,
) -> None:
    at = starts[first:end].copy()
    for i in range(indptr.size - 1):
        low = _first_from(cols, indptr[i], indptr[i + 1], first)
        for e in range(low, _first_from(cols, low, indptr[i + 1], end)):
            j = np.uint64(cols[e] - first)
            place = np.uint64(at[j])
            rows[place] = i
            turned[place] = counts[e]
            at[j] += 1


@njit
def _first_from(cols: Int32, low: int, high: int, column: int) -> int:
    """The first entry of a row whose column is not below ``column``."""
    while low < high:
        middle = (low + high) // 2
        if cols[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low
