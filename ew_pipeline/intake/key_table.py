"""Long rows of pairs and weeks as a table, one row per pair, one column per week.

Keys mostly come week below week, ascending in each: such runs are merged, which takes a tenth of the time of
hashing every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Int32, Int64
from ew_pipeline.core.kernels import njit

MOST_RUNS = 64  # every run is a pass over the pairs; more than this is no order at all
Whole = NDArray[np.signedinteger[Any]]


def pair_rows(key: Int64) -> tuple[Int32, Int64]:
    """(the place of every key among those that occur, these in ascending order)."""
    starts = np.concatenate([[0], np.flatnonzero(key[1:] <= key[:-1]) + 1, [key.size]])
    if starts.size - 1 > MOST_RUNS:
        place, found = pd.factorize(key, sort=True)
        return place.astype(np.int32), np.asarray(found)
    pairs = key[: starts[1]]
    for k in range(1, starts.size - 1):
        run = key[starts[k] : starts[k + 1]]
        merged = np.empty(pairs.size + run.size, dtype=np.int64)
        count = _merge(pairs, run, merged)
        if count > pairs.size:
            pairs = merged[:count].copy()
    row = np.empty(key.size, dtype=np.int32)
    for k in range(starts.size - 1):
        _place(pairs, key, starts[k], starts[k + 1], row)
    return row, pairs


@njit
def fill_table(row: Int32, column: Whole, values: NDArray[Any], table: NDArray[np.floating[Any]]) -> int:
    """Put every value in its place in a table of NaN; how many had to go where another was."""
    repeated = 0
    for e in range(row.size):
        i, j = row[e], column[e]
        if table[i, j] == table[i, j]:
            repeated += 1
        table[i, j] = values[e]
    return repeated


@njit
def _merge(one: Int64, other: Int64, merged: Int64) -> int:
    """Both ascending runs as one without repeats; its length."""
    i, j, n = 0, 0, 0
    while i < one.size and j < other.size:
        a, b = one[i], other[j]
        merged[n] = a if a <= b else b
        n += 1
        i += a <= b
        j += b <= a
    while i < one.size:
        merged[n] = one[i]
        n, i = n + 1, i + 1
    while j < other.size:
        merged[n] = other[j]
        n, j = n + 1, j + 1
    return n


@njit
def _place(pairs: Int64, key: Int64, begin: int, end: int, row: Int32) -> None:
    at = 0
    for e in range(begin, end):
        while pairs[at] < key[e]:
            at += 1
        row[e] = at
