"""M = U V^T at the observed entries of one line, in single precision.

Where enough of a line's pairs are observed, what is known of them is spread out over all lines of the other
side, so that inner loops run over adjacent numbers; of a sparse line the other side's factors are gathered.
Both ways add up the same terms. Factors are stored factor by factor: ``left[k, i]``. Indices that are looked
up are made unsigned: of a signed one compiled code asks each time whether it counts from the end.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Float32, Int32
from ew_pipeline.core.kernels import njit_fast

ZERO = np.float32(0.0)
SPREAD_FROM = 4  # a line is spread out if at least one in this many of its pairs is observed


@njit_fast
def rates_of_line(
    i: int,
    first: int,
    width: int,
    cols: Int32,
    left: Float32,
    right: Float32,
    floor: np.float32,
    spread: Float32,
    out: Float32,
) -> None:
    """M + ``floor`` at the ``width`` observed entries of row i from ``first`` on, in their order."""
    rank, m = right.shape
    if SPREAD_FROM * width >= m:
        spread[:] = floor
        for k in range(rank):
            factor = left[k, i]
            for j in range(m):
                spread[j] += factor * right[k, j]
        for t in range(width):
            out[t] = spread[np.uint64(cols[np.uint64(first + t)])]
    else:
        for t in range(width):
            at = np.uint64(cols[np.uint64(first + t)])
            total = floor
            for k in range(rank):
                total += left[k, i] * right[k, at]
            out[t] = total


@njit_fast
def pull_of_line(
    i: int,
    first: int,
    width: int,
    cols: Int32,
    left: Float32,
    right: Float32,
    pull: Float32,
    spread: Float32,
    out_left: Float32,
    out_right: Float32,
) -> None:
    """d/dU of row i, and its part of d/dV added to ``out_right``, from d/dM at its observed entries."""
    rank, m = right.shape
    if SPREAD_FROM * width >= m:
        spread[:] = ZERO
        for t in range(width):
            spread[np.uint64(cols[np.uint64(first + t)])] = pull[t]
        for k in range(rank):
            factor = left[k, i]
            total = ZERO
            for j in range(m):
                total += spread[j] * right[k, j]
            for j in range(m):
                out_right[k, j] += factor * spread[j]
            out_left[k, i] = total
    else:
        for k in range(rank):
            factor = left[k, i]
            total = ZERO
            for t in range(width):
                at = np.uint64(cols[np.uint64(first + t)])
                total += pull[t] * right[k, at]
                out_right[k, at] += factor * pull[t]
            out_left[k, i] = total
