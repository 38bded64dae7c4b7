"""Entries in any order as a matrix holds them: row by row, columns ascending.

Rows are counted and filled, then each is sorted by itself: a row is short enough for the nearest cache, and
rows are sorted side by side. For ten million entries that takes a third of the time of one long sort.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Int32, Int64, available_threads
from ew_pipeline.core.kernels import njit
from ew_pipeline.method.entry_blocks import in_line_blocks

RIDER = 32  # bits below the column's, for what goes with it


def row_major(rows: Int32, cols: Int32, riders: Int32, n_rows: int) -> tuple[Int64, Int32, Int32, bool]:
    """Where each row begins, its columns and what goes with them (not negative), and whether any two
    entries are of the same row and column; of such two, the smaller rider comes first."""
    indptr = np.zeros(n_rows + 1, dtype=np.int64)
    _count(rows, indptr)
    np.cumsum(indptr, out=indptr)
    packed = np.empty(rows.size, dtype=np.int64)
    _fill(rows, cols, riders, indptr[:-1].copy(), packed)
    found_cols, found_riders = np.empty_like(cols), np.empty_like(riders)
    repeats: list[int] = []

    def work(first: int, end: int) -> None:
        repeats.append(_sort_rows(first, end, indptr, packed, found_cols, found_riders))

    in_line_blocks(work, indptr, available_threads())
    return indptr, found_cols, found_riders, any(repeats)


@njit
def _count(rows: Int32, starts: Int64) -> None:
    for row in rows:
        starts[row + 1] += 1


@njit
def _fill(rows: Int32, cols: Int32, riders: Int32, at: Int64, packed: Int64) -> None:
    for e in range(rows.size):
        row = rows[e]
        packed[at[row]] = (np.int64(cols[e]) << RIDER) | riders[e]
        at[row] += 1


@njit
def _sort_rows(
    first: int, end: int, indptr: Int64, packed: Int64, cols: NDArray[np.int32], riders: NDArray[np.int32]
) -> int:
    """Entries that repeat the one before."""
    repeats = 0
    for i in range(first, end):
        line = packed[indptr[i] : indptr[i + 1]]
        for k in range(1, line.size):
            if line[k] < line[k - 1]:
                line.sort()
                break
        for k in range(line.size):
            e = indptr[i] + k
            cols[e] = line[k] >> RIDER
            riders[e] = line[k] & ((1 << RIDER) - 1)
            if k > 0 and cols[e] == cols[e - 1]:
                repeats += 1
    return repeats
