"""Compiled coordinate ascent of the variational Gamma-Poisson factorisation, many sweeps per call.

Symbols: X counts, L level (known per pair), W expected exposure, M = U V^T, so that X ~ Poisson(E L M).
``exposed`` is W * L. ``mean`` and ``geo`` are the mean and the exponential of the mean logarithm of the Gamma
factors, factor by factor: ``mean[k, i]`` is the k-th factor of line i (a row, or a column).

Single precision: a fixed point found by averages over a line's entries does not need more, and twice as
many fit into a vector. Lines are spread out or gathered as in ``_kernels.lines``.
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int32, Int64
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._kernels.fast_math import exp_inplace
from ew_pipeline.method._kernels.lines import SPREAD_FROM, ZERO, rates_of_line

ONE, TWO, THREE = np.float32(1.0), np.float32(2.0), np.float32(3.0)
TINY = np.float32(1e-30)
SMALLEST_RATE = np.float32(1e-12)
# exp(digamma(z + 1/2)) = z + C1/z + C3/z^3 + C5/z^5 + ..., which is within 1e-7 from z = 3.5 on
SHIFT = np.float32(3.5)
C1, C3, C5 = np.float32(1 / 24), np.float32(-37 / 5760), np.float32(10313 / 2903040)
RESOLVED = 1e-6  # of the diagonal
NEVER = 1e30  # s / alpha of a family whose anomalies sell nothing


@njit_fast
def sweeps(
    count: int,
    weigh: bool,
    indptr: Int64,
    cols: Int32,
    row_entry: Int64,
    counts: Float32,
    col_indptr: Int64,
    rows: Int32,
    col_entry: Int64,
    col_counts: Float32,
    level: Float32,
    seen: Float32,
    healthy: Float32,
    shape: float,
    shape_per_alpha: float,
    inverse_size: float,
    shape_left: float,
    shape_right: float,
    mean_left: Float32,
    geo_left: Float32,
    mean_right: Float32,
    geo_right: Float32,
    exposed: Float32,
) -> None:
    """``count`` sweeps over rows and columns, in place.

    ``weigh``: ``exposed`` is computed anew before each from f and a Gamma exposure of anomalies (shape s,
    mean alpha); else it stays as it is. A pair whose ``exposed`` is 0 is held out: neither its count nor
    its exposure is seen.
    """
    for _ in range(count):
        if weigh:
            _expose(
                indptr,
                cols,
                counts,
                level,
                seen,
                healthy,
                np.float32(shape),
                np.float32(shape_per_alpha),
                np.float32(inverse_size),
                mean_left,
                mean_right,
                exposed,
            )
        _update_lines(
            indptr, cols, row_entry, counts, exposed, shape_left, mean_left, geo_left, mean_right, geo_right
        )
        _update_lines(
            col_indptr,
            rows,
            col_entry,
            col_counts,
            exposed,
            shape_right,
            mean_right,
            geo_right,
            mean_left,
            geo_left,
        )


@njit_fast
def _expose(
    indptr: Int64,
    cols: Int32,
    counts: Float32,
    level: Float32,
    seen: Float32,
    healthy: Float32,
    shape: np.float32,
    shape_per_alpha: np.float32,
    inverse_size: np.float32,
    left: Float32,
    right: Float32,
    exposed: Float32,
) -> None:
    """(f tau0 + (1 - f) tau1) L: see ``_kernels.mixture.gamma_exposure_weights``."""
    m = right.shape[1]
    mu = np.empty(m, np.float32)
    own = np.empty(m, np.float32)
    for i in range(left.shape[1]):
        first = indptr[i]
        width = indptr[i + 1] - first
        rates_of_line(i, first, width, cols, left, right, SMALLEST_RATE, mu, own)
        for t in range(width):
            p = np.uint64(first + t)
            x = counts[p]
            rate = own[t] * level[p]
            tau0 = (x * inverse_size + ONE) / (ONE + rate * inverse_size)
            tau1 = (x + shape) / (shape_per_alpha + rate)
            exposed[p] = (tau1 + healthy[p] * (tau0 - tau1)) * level[p] * seen[p]


@njit_fast
def _update_lines(
    indptr: Int64,
    others: Int32,
    entry: Int64,
    counts: Float32,
    exposed: Float32,
    prior_shape: float,
    mean: Float32,
    geo: Float32,
    mean_other: Float32,
    geo_other: Float32,
) -> None:
    """One update of the Gamma factors of all lines of a side.

    shape = a + G * (Q G_other), rate = b + exposed E_other, with Q = X / (G G_other^T) on the observed set
    and b = a / mean(E). ``entry[p]`` is the row-major position of the p-th entry of this view; ``counts`` is
    in the order of the view.
    """
    rank, n = mean.shape
    n_other = mean_other.shape[1]
    count = np.empty(n_other, np.float32)
    weight = np.empty(n_other, np.float32)
    total = np.empty(n_other, np.float32)
    gathered = np.empty((2, rank, n_other), np.float32)
    shape = np.empty((rank, n), np.float32)
    rate = np.empty((rank, n), np.float32)
    a = np.float32(prior_shape)
    b = np.float32(prior_shape / average(mean))
    for i in range(n):
        first = indptr[i]
        width = indptr[i + 1] - first
        if SPREAD_FROM * width >= n_other:
            count[:] = ZERO
            weight[:] = ZERO
            for t in range(width):
                p = np.uint64(first + t)
                j = np.uint64(others[p])
                w = exposed[np.uint64(entry[p])]
                weight[j] = w
                count[j] = counts[p] if w > ZERO else ZERO
            _sum_line(i, n_other, a, b, geo, geo_other, mean_other, count, weight, total, shape, rate)
        else:
            for t in range(width):
                p = np.uint64(first + t)
                w = exposed[np.uint64(entry[p])]
                weight[t] = w
                count[t] = counts[p] if w > ZERO else ZERO
            for k in range(rank):
                for t in range(width):
                    j = np.uint64(others[np.uint64(first + t)])
                    gathered[0, k, t] = geo_other[k, j]
                    gathered[1, k, t] = mean_other[k, j]
            _sum_line(i, width, a, b, geo, gathered[0], gathered[1], count, weight, total, shape, rate)
    _mean_and_geo(shape.ravel(), rate.ravel(), mean.ravel(), geo.ravel())


@njit_fast
def _sum_line(
    i: int,
    length: int,
    a: np.float32,
    b: np.float32,
    geo: Float32,
    geo_other: Float32,
    mean_other: Float32,
    count: Float32,
    weight: Float32,
    total: Float32,
    shape: Float32,
    rate: Float32,
) -> None:
    """Shape and rate of line i; a pair that is not observed has no count and no weight."""
    rank = geo.shape[0]
    for t in range(length):
        total[t] = TINY
    for k in range(rank):
        own = geo[k, i]
        for t in range(length):
            total[t] += own * geo_other[k, t]
    for t in range(length):
        total[t] = count[t] / total[t]
    for k in range(rank):
        numerator = ZERO
        exposure = ZERO
        for t in range(length):
            numerator += total[t] * geo_other[k, t]
            exposure += weight[t] * mean_other[k, t]
        shape[k, i] = a + geo[k, i] * numerator
        rate[k, i] = b + exposure


@njit_fast
def _mean_and_geo(shape: Float32, rate: Float32, mean: Float32, geo: Float32) -> None:
    """E and exp(E log) of Gamma(shape, rate): shape / rate and exp(digamma(shape)) / rate.

    digamma(x) = digamma(x + 4) - (1/x + 1/(x+1) + 1/(x+2) + 1/(x+3)), and the four add up by pairs.
    """
    bits = np.empty(shape.size, np.int32)
    for e in range(shape.size):
        x = shape[e]
        y = x * (x + THREE)
        geo[e] = -(TWO * x + THREE) * (ONE / y + ONE / (y + TWO))
    exp_inplace(geo, bits, bits.view(np.float32), shape.size)
    for e in range(shape.size):
        x = shape[e]
        per_z = ONE / (x + SHIFT)
        square = per_z * per_z
        grown = x + SHIFT + per_z * (C1 + square * (C3 + square * C5))
        per_rate = ONE / rate[e]
        mean[e] = x * per_rate
        geo[e] *= grown * per_rate


@njit
def average(mean: Float32) -> float:
    """Of all factors of a side, in an order of its own: numpy's depends on the processor."""
    total = 0.0
    for value in mean.ravel():
        total += float(value)
    return max(total / mean.size, 1e-12)


@njit
def mean_log(geo: Float32) -> float:
    """Average of E[log factor] over all factors of a side."""
    total = 0.0
    for value in geo.ravel():
        total += math.log(value)
    return total / geo.size


@njit_fast
def side_variance(
    indptr: Int64,
    others: Int32,
    entry: Int64,
    information_each: Float32,
    other: Float32,
    ridge: float,
    variance: Float,
) -> None:
    """Add v_j' H_i^-1 v_j to ``variance`` for every observed (i, j) of this view.

    H_i = sum_j (exposed / M) v v' + ridge I is the information on row i's factors; ``information_each`` is
    exposed / M, row-major.
    """
    rank, n_other = other.shape
    gathered = np.empty((rank, n_other), np.float32)
    weight = np.empty(n_other, np.float32)
    total = np.empty(n_other, np.float32)
    work = np.zeros((3, rank, rank))
    for i in range(indptr.size - 1):
        first = indptr[i]
        width = indptr[i + 1] - first
        if SPREAD_FROM * width >= n_other:
            weight[:] = ZERO
            for t in range(width):
                p = np.uint64(first + t)
                weight[np.uint64(others[p])] = information_each[np.uint64(entry[p])]
            _line_variance(n_other, other, weight, ridge, work, total)
            for t in range(width):
                p = np.uint64(first + t)
                variance[np.uint64(entry[p])] += total[np.uint64(others[p])]
        else:
            for t in range(width):
                weight[t] = information_each[np.uint64(entry[np.uint64(first + t)])]
            for k in range(rank):
                for t in range(width):
                    gathered[k, t] = other[k, np.uint64(others[np.uint64(first + t)])]
            _line_variance(width, gathered, weight, ridge, work, total)
            for t in range(width):
                variance[np.uint64(entry[np.uint64(first + t)])] += total[t]


@njit_fast
def _line_variance(
    length: int, v: Float32, weight: Float32, ridge: float, work: Float, total: Float32
) -> None:
    """v' H^-1 v of every entry of one line."""
    rank = v.shape[0]
    information, inverse = work[0], work[1]
    for k in range(rank):
        for t in range(length):
            total[t] = weight[t] * v[k, t]
        for q in range(k + 1):
            shared = ZERO
            for t in range(length):
                shared += total[t] * v[q, t]
            information[k, q] = float(shared)
        information[k, k] += ridge
    _inverse(information, work[2], inverse)
    for t in range(length):
        total[t] = ZERO
    for k in range(rank):
        for q in range(k + 1):
            c = np.float32(inverse[k, q] * (1.0 if q == k else 2.0))
            for t in range(length):
                total[t] += c * v[k, t] * v[q, t]


@njit
def _inverse(matrix: Float, work: Float, out: Float) -> None:
    """Inverse of a small symmetric positive definite matrix by Cholesky, into ``out``.

    Its entries are sums in single precision, and a pivot below what they can resolve is held there.
    """
    r = matrix.shape[0]
    for i in range(r):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= work[i, k] * work[j, k]
            if i == j:
                work[i, i] = math.sqrt(max(total, RESOLVED * matrix[i, i]))
            else:
                work[i, j] = total / work[j, j]
    for c in range(r):
        for i in range(r):
            total = 1.0 if i == c else 0.0
            for k in range(i):
                total -= work[i, k] * out[k, c]
            out[i, c] = total / work[i, i]
        for i in range(r - 1, -1, -1):
            total = out[i, c]
            for k in range(i + 1, r):
                total -= work[k, i] * out[k, c]
            out[i, c] = total / work[i, i]
