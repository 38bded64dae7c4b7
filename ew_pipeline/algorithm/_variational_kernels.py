"""Compiled passes of the variational Gamma-Poisson factorisation.

Symbols: X counts, L level (known per pair), W expected exposure, M = U V^T, so that
X ~ Poisson(E L M). ``exposed`` below is W * L. E_ and G_ are the mean and the exponential of the
mean logarithm of the Gamma factors.
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.algorithm._numba import njit
from ew_pipeline.algorithm.types import Float, Int32, Int64

LEVERAGE_LIMIT = 0.7  # above this a pair is mostly fitted by itself and its own residual says little
CV2_LIMIT = 2.0


@njit
def digamma(x: float) -> float:
    """Asymptotic series after shifting x above 6; |error| < 1e-10 for x > 0."""
    shift = 0.0
    while x < 6.0:
        shift -= 1.0 / x
        x += 1.0
    inverse = 1.0 / x
    square = inverse * inverse
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return shift + math.log(x) - 0.5 * inverse - series


@njit
def update_side(
    indptr: Int64,
    others: Int32,
    entry: Int64,
    counts: Float,
    exposed: Float,
    mean_other: Float,
    geo_other: Float,
    prior_shape: float,
    prior_rate: float,
    shape: Float,
    rate: Float,
    mean: Float,
    geo: Float,
) -> None:
    """One coordinate-ascent update of the Gamma factors of all rows (or columns), in place.

    shape = a + G * (Q G_other), rate = b + exposed E_other, with Q = X / (G G_other^T) on the
    observed set. ``entry[p]`` is the row-major position of the p-th entry of this view.
    """
    n, rank = shape.shape
    numerator = np.empty(rank)
    exposure = np.empty(rank)
    for i in range(n):
        for k in range(rank):
            numerator[k] = 0.0
            exposure[k] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = others[p]
            e = entry[p]
            w = exposed[e]
            x = counts[e]
            if w == 0.0:  # held out: neither count nor exposure is seen
                continue
            if x > 0.0:
                total = 1e-300
                for k in range(rank):
                    total += geo[i, k] * geo_other[j, k]
                q = x / total
                for k in range(rank):
                    numerator[k] += q * geo_other[j, k]
                    exposure[k] += w * mean_other[j, k]
            else:
                for k in range(rank):
                    exposure[k] += w * mean_other[j, k]
        for k in range(rank):
            shape[i, k] = prior_shape + geo[i, k] * numerator[k]
            rate[i, k] = prior_rate + exposure[k]
            mean[i, k] = shape[i, k] / rate[i, k]
            geo[i, k] = math.exp(digamma(shape[i, k])) / rate[i, k]


@njit
def mean_log(shape: Float, rate: Float) -> float:
    """Average of E[log factor] over all factors."""
    total = 0.0
    for i in range(shape.shape[0]):
        for k in range(shape.shape[1]):
            total += digamma(shape[i, k]) - math.log(rate[i, k])
    return float(total / (shape.shape[0] * shape.shape[1]))


@njit
def _inverse(matrix: Float, work: Float, out: Float) -> None:
    """Inverse of a small symmetric positive definite matrix by Cholesky, into ``out``."""
    r = matrix.shape[0]
    for i in range(r):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= work[i, k] * work[j, k]
            if i == j:
                work[i, i] = math.sqrt(max(total, 1e-300))
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


@njit
def side_variance(
    indptr: Int64,
    others: Int32,
    entry: Int64,
    exposed: Float,
    rates: Float,
    other: Float,
    ridge: float,
    variance: Float,
) -> None:
    """Add v_j' H_i^-1 v_j to ``variance`` for every observed (i, j) of this view.

    H_i = sum_j (exposed / M) v v' + ridge I is the information on row i's factors.
    """
    n = indptr.size - 1
    rank = other.shape[1]
    information = np.empty((rank, rank))
    work = np.zeros((rank, rank))
    inverse = np.empty((rank, rank))
    for i in range(n):
        for a in range(rank):
            for b in range(a + 1):
                information[a, b] = ridge if a == b else 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = others[p]
            e = entry[p]
            weight = exposed[e] / rates[e]
            for a in range(rank):
                scaled = weight * other[j, a]
                for b in range(a + 1):
                    information[a, b] += scaled * other[j, b]
        _inverse(information, work, inverse)
        for p in range(indptr[i], indptr[i + 1]):
            j = others[p]
            total = 0.0
            for a in range(rank):
                inner = 0.0
                for b in range(rank):
                    inner += inverse[a, b] * other[j, b]
                total += other[j, a] * inner
            variance[entry[p]] += total


@njit
def leave_one_out(
    counts: Float, exposed: Float, rates: Float, variance: Float, out_rates: Float, out_cv2: Float
) -> None:
    """Cavity means and squared coefficients of variation from the in-sample fit.

    h = Var exposed / M is the pair's own leverage; its residual is taken back out of M.
    """
    for e in range(counts.size):
        m = rates[e]
        h = min(LEVERAGE_LIMIT, variance[e] * exposed[e] / m)
        own = 0.0  # of a held-out pair: its count is not in m
        if exposed[e] > 0.0:
            own = variance[e] / m * (counts[e] - exposed[e] * m) / (1.0 - h)
        cavity = min(max(m - own, 0.2 * m), 5.0 * m)
        out_rates[e] = cavity
        out_cv2[e] = min(CV2_LIMIT, variance[e] / (1.0 - h) / (cavity * cavity))
