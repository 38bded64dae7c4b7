"""Values of entries in row-major order, column by column.

Every column is a place that is written to, one number at a time. Where there are more places than a cache
has room for, or than the processor keeps the pages of at hand, each number would cost a trip to memory; so
columns are done a few thousand at a time, and of every row, whose columns ascend, the stretch that belongs to
them is looked up. With four times as many together, rows and counts of 1e8 entries take 1.4 times as long;
with half as many no less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Int32, Int64
from ew_pipeline.core.kernels import njit
from ew_pipeline.method.entry_blocks import WORTH_A_THREAD, run_blocks

TOGETHER = 4_096  # columns at most: a cache line each, in two arrays, is half a megabyte


def columns_of(cols: Int32, n_columns: int) -> Int64:
    """Where each column begins."""
    starts = np.zeros(n_columns + 1, dtype=np.int64)
    _count(cols, starts)
    return np.cumsum(starts)


def by_column(
    indptr: Int64,
    cols: Int32,
    starts: Int64,
    values: NDArray[Any],
    threads: int = 1,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """``values`` of the entries in column-major order, rows ascending; in ``out`` if it is given."""
    found = np.empty_like(values) if out is None else out
    _in_groups(lambda first, end: _values(first, end, indptr, cols, starts, values, found), starts, threads)
    return found


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
    groups = max(threads, -(-n_columns // TOGETHER)) if starts[-1] >= WORTH_A_THREAD else 1
    run_blocks(work, np.linspace(0, n_columns, groups + 1).astype(np.int64), min(threads, groups))


@njit
def _count(cols: Int32, starts: Int64) -> None:
    """Entries of column j added to starts[j + 1]; numpy's own would first make all of them 64 bits wide."""
    for col in cols:
        starts[col + 1] += 1


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
