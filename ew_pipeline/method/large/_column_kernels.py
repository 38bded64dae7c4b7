"""The column half of a sweep in two parts: normal equations of a block of rows, and their solution.

``_als_kernels.solve_lines`` does both at once where all rows are in one place. Here the sums of several
blocks are added in between; the arithmetic per entry is the same.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Float, Int32, Int64, Real
from ew_pipeline.core.kernels import njit_fast
from ew_pipeline.method.large._als_kernels import STRIDE, _invert, _solve, normal_equations


@njit_fast
def sum_columns(
    first_column: int,
    end_column: int,
    indptr: Int64,
    rows: Int32,
    counts: Int32,
    level: Real,
    healthy: Real,
    left: Real,
    right: Real,
    floor: float,
    constant: float,
    inverse_size: float,
    alpha: float,
    inverse_shape: float,
    sums: Float,
) -> None:
    """sums[j] = the lower triangle by rows of A diag(w) A^T over the column's entries in this block;
    ``left`` is ``padded``."""
    r = right.shape[1]
    even = (r + 2) // 2 * 2
    A = np.zeros((left.shape[1] + 2, STRIDE), dtype=left.dtype)
    w = np.empty(STRIDE, dtype=left.dtype)
    scratch = np.empty((2, STRIDE), dtype=left.dtype)
    G = np.empty((even, even))
    for j in range(first_column, end_column):
        normal_equations(
            j,
            indptr,
            rows,
            counts,
            level,
            healthy,
            left,
            right,
            floor,
            constant,
            inverse_size,
            alpha,
            inverse_shape,
            A,
            w,
            scratch,
            G,
        )
        t = 0
        for k in range(r + 1):
            for q in range(k + 1):
                sums[j, t] = G[k, q]
                t += 1


@njit_fast
def solve_columns(
    first_column: int,
    end_column: int,
    sums: Float,
    precision: Float,
    pull: Float,
    new: Real,
    inverses: Real,
) -> None:
    """New factors of the columns from their summed normal equations, and each (H + K)^-1."""
    r = new.shape[1]
    G = np.zeros((r + 1, r + 1))
    u = np.empty(r)
    for j in range(first_column, end_column):
        t = 0
        for k in range(r + 1):
            for q in range(k + 1):
                G[k, q] = sums[j, t]
                t += 1
        _solve(r, G, precision, pull, u)
        for k in range(r):
            new[j, k] = u[k]
        if inverses.size > 0:
            _invert(r, G, u, inverses, j)
