"""The inner loops of ``als``: one half-sweep solves one small ridge problem per row (or per column).

Written for speed where the reason does not show. Accumulating the r x r normal equations in an array is
4-6 times slower than in scalars, so the factors of up to ``CHUNK`` entries are first laid out direction
by direction; each element of the normal equations is then a dot product over the entries with a scalar
sum. The compiler vectorises that at any rank, so nothing is specialised (or compiled again) per rank.
Indices are unsigned, and divisions go through ``np.divide``, because the checks that numba adds for
negative indices and zero divisors keep a loop from being vectorised.
"""

from __future__ import annotations

import numba
import numpy as np

from ew_pipeline.algorithm._numba import njit_fast, njit_parallel
from ew_pipeline.algorithm.types import Float, Int32, Int64

CHUNK = 256
# Not a power of two: rows of the buffer that lie 2^k bytes apart evict each other from the cache.
STRIDE = CHUNK + 8
# Lines per unit of parallel work, and the size from which many threads are worth waking: on a small
# problem, waiting for a busy core costs far more than the work.
BLOCK = 64
PARALLEL_ENTRIES = 200_000


def half_sweep(
    indptr: Int64,
    others: Int32,
    counts: Int32,
    level: Float,
    fixed: Float,
    current: Float,
    ridge: float,
    floor: float,
    constant: float,
) -> tuple[Float, Float]:
    """New factors of all lines given the factors of the other side, and the loss of each line.

    Line i minimises  sum_e w_e (x_e - L_e u.v_e)^2 + ridge |u|^2  over its entries e, with the weight
    w = 1 / (L max(u.v, floor)) taken at the current u, or w = 1 / (L constant) when ``constant`` is
    positive. An empty ``level`` means L = 1. The loss is the weighted sum of squares at the new u.
    """
    new = np.empty_like(current)
    loss = np.empty(len(current))
    solve = _solve_all if others.size >= PARALLEL_ENTRIES else _solve_lines
    solve(0, len(new), indptr, others, counts, level, fixed, current, ridge, floor, constant, new, loss)
    return new, loss


@njit_fast
def _solve_lines(
    first_line: int,
    end_line: int,
    indptr: Int64,
    others: Int32,
    counts: Int32,
    level: Float,
    fixed: Float,
    current: Float,
    ridge: float,
    floor: float,
    constant: float,
    new: Float,
    loss: Float,
) -> None:
    r = fixed.shape[1]
    padded = (r + 2) // 2 * 2  # 1 + r, made even; a spare row stays zero
    A = np.zeros((padded, STRIDE))  # row 0: y = x / L; row 1 + k: direction k of the other side's factors
    w = np.empty(STRIDE)  # w L^2, the weight of (y - u.v)^2
    G = np.empty((padded, padded))  # A diag(w) A^T, lower triangle
    for i in range(first_line, end_line):
        G[:] = 0.0
        for first in range(indptr[i], indptr[i + 1], CHUNK):
            size = min(CHUNK, indptr[i + 1] - first)
            _lay_out(first, size, others, counts, fixed, A)
            _weigh(first, size, level, current, i, floor, constant, A, w)
            _accumulate(size, A, w, G)
        loss[i] = _solve(r, G, ridge, new, i)


@njit_parallel
def _solve_all(
    first_line: int,
    end_line: int,
    indptr: Int64,
    others: Int32,
    counts: Int32,
    level: Float,
    fixed: Float,
    current: Float,
    ridge: float,
    floor: float,
    constant: float,
    new: Float,
    loss: Float,
) -> None:
    """The same on all threads. Lines do not depend on each other, so neither does the result on threads."""
    blocks = (end_line - first_line + BLOCK - 1) // BLOCK
    for block in numba.prange(blocks):
        first = first_line + block * BLOCK
        _solve_lines(
            first,
            min(first + BLOCK, end_line),
            indptr,
            others,
            counts,
            level,
            fixed,
            current,
            ridge,
            floor,
            constant,
            new,
            loss,
        )


@njit_fast
def _lay_out(first: int, size: int, others: Int32, counts: Int32, fixed: Float, A: Float) -> None:
    start = np.uint64(first)
    for c in range(size):
        A[0, c] = counts[start + np.uint64(c)]
    for k in range(fixed.shape[1]):
        for c in range(size):
            A[k + 1, c] = fixed[np.uint64(others[start + np.uint64(c)]), k]


@njit_fast
def _weigh(
    first: int,
    size: int,
    level: Float,
    current: Float,
    i: int,
    floor: float,
    constant: float,
    A: Float,
    w: Float,
) -> None:
    if constant > 0.0:
        w[:size] = 1.0 / constant
    else:
        w[:size] = 0.0
        for k in range(current.shape[1]):
            u = current[i, k]
            for c in range(size):
                w[c] += u * A[k + 1, c]
        for c in range(size):
            w[c] = np.divide(1.0, max(w[c], floor))
    if level.size > 0:
        start = np.uint64(first)
        for c in range(size):
            L = level[start + np.uint64(c)]
            A[0, c] = np.divide(A[0, c], L)
            w[c] *= L


@njit_fast
def _accumulate(size: int, A: Float, w: Float, G: Float) -> None:
    """G += A diag(w) A^T, lower triangle, in 2 x 2 blocks: four sums for four reads."""
    for k in range(0, G.shape[0], 2):
        for q in range(0, k + 1, 2):
            top_left = 0.0
            top_right = 0.0
            low_left = 0.0
            low_right = 0.0
            for c in range(size):
                a = w[c] * A[k, c]
                b = w[c] * A[k + 1, c]
                top_left += a * A[q, c]
                top_right += a * A[q + 1, c]
                low_left += b * A[q, c]
                low_right += b * A[q + 1, c]
            G[k, q] += top_left
            G[k, q + 1] += top_right
            G[k + 1, q] += low_left
            G[k + 1, q + 1] += low_right


@njit_fast
def _solve(r: int, G: Float, ridge: float, new: Float, i: int) -> float:
    """new[i] = u = (H + ridge)^-1 b by Cholesky in place, H and b inside G; returns the loss at u.

    As (H + ridge) u = b, the loss G_00 - 2 u.b + u'Hu is G_00 - u.b - ridge |u|^2.
    """
    for k in range(1, r + 1):
        pivot = G[k, k] + ridge
        for q in range(1, k):
            pivot -= G[k, q] * G[k, q]
        pivot = np.sqrt(pivot)
        G[k, k] = pivot
        inverse = np.divide(1.0, pivot)
        for below in range(k + 1, r + 1):
            total = G[below, k]
            for q in range(1, k):
                total -= G[below, q] * G[k, q]
            G[below, k] = total * inverse
    for k in range(1, r + 1):
        total = G[k, 0]
        for q in range(1, k):
            total -= G[k, q] * new[i, q - 1]
        new[i, k - 1] = np.divide(total, G[k, k])
    for k in range(r, 0, -1):
        total = new[i, k - 1]
        for q in range(k + 1, r + 1):
            total -= G[q, k] * new[i, q - 1]
        new[i, k - 1] = np.divide(total, G[k, k])
    loss = float(G[0, 0])
    for k in range(1, r + 1):
        u = new[i, k - 1]
        loss -= u * G[k, 0] + ridge * u * u
    return max(0.0, loss)
