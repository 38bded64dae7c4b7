"""Compiled passes of the large-scale fit: what each entry would be predicted to be without itself.

The factors come from scoring steps of the marginal likelihood (see ``_als_kernels.half_sweep``), so with
P_i, P_j the inverse informations of the entry's row and column

    Var = v' P_i v + u' P_j u        h = min(.7, Var w)        m_loo = m - Var (w y - w m) / (1 - h)

is the one-step leave-one-out estimate, as in ``_variational_kernels.leave_one_out``.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Int32, Int64, Real
from ew_pipeline.core.kernels import njit_fast
from ew_pipeline.method._layout import lay_out
from ew_pipeline.method.large._als_kernels import CHUNK, STRIDE, part_of, rates_of
from ew_pipeline.method.variational._variational_kernels import CV2_LIMIT, LEVERAGE_LIMIT


@njit_fast
def leave_one_out_lines(
    first_line: int,
    end_line: int,
    indptr: Int64,
    others: Int32,
    counts: Int32,
    level: Real,
    healthy: Real,
    left: Real,
    right: Real,
    left_inverses: Real,
    right_inverses: Real,
    floor: float,
    inverse_size: float,
    alpha: float,
    inverse_shape: float,
    means: Real,
    cavity: Real,
    cv2: Real,
) -> None:
    """In-sample and leave-one-out means (with the level), and the latter's squared coefficient of
    variation, of the entries of some rows; ``right`` is ``padded``."""
    r = left.shape[1]
    A = np.zeros((1 + right.shape[1], STRIDE), dtype=left.dtype)
    m = np.empty(STRIDE, dtype=left.dtype)
    var = np.empty(STRIDE, dtype=left.dtype)
    scratch = np.empty((2, STRIDE), dtype=left.dtype)
    uu = np.empty(left_inverses.shape[1], dtype=left.dtype)
    for i in range(first_line, end_line):
        t = 0
        for k in range(r):
            for q in range(k + 1):
                uu[t] = (left[i, k] * left[i, q] + left_inverses[i, t]) * (1.0 if k == q else 2.0)
                t += 1
        for first in range(indptr[i], indptr[i + 1], CHUNK):
            size = min(CHUNK, indptr[i + 1] - first)
            lay_out(first, size, others, right, A)
            rates_of(size, left, i, floor, A, m)
            _variance(first, size, others, left_inverses, right_inverses, uu, i, r, A, var)
            part_of(first, size, level, scratch[0])
            part_of(first, size, healthy, scratch[1])
            for c in range(size):
                e = first + c
                L = scratch[0, c]
                f = scratch[1, c]
                rate = float(m[c])
                mu = L * rate
                keep = f / (1.0 + mu * inverse_size)
                lost = (1.0 - f) / (1.0 + mu * alpha * inverse_shape)
                weight = L * (keep + alpha * lost) / rate
                score = counts[e] * (keep + lost) / rate - weight * rate
                h = min(LEVERAGE_LIMIT, var[c] * weight)
                loo = rate - var[c] * score / (1.0 - h)
                loo = min(max(loo, 0.2 * rate), 5.0 * rate)
                means[e] = mu
                cavity[e] = L * loo
                cv2[e] = min(CV2_LIMIT, var[c] / (1.0 - h) / (loo * loo))


@njit_fast
def _variance(
    first: int,
    size: int,
    others: Int32,
    left_inverses: Real,
    right_inverses: Real,
    uu: Real,
    i: int,
    r: int,
    A: Real,
    var: Real,
) -> None:
    start = np.uint64(first)
    for c in range(size):
        j = np.uint64(others[start + np.uint64(c)])
        total = var.dtype.type(0)
        for t in range(uu.size):
            total += right_inverses[j, t] * uu[t]
        var[c] = total
    t = 0
    for k in range(r):
        for q in range(k + 1):
            share = left_inverses[i, t]
            if k != q:
                share += share
            for c in range(size):
                var[c] += share * A[k + 1, c] * A[q + 1, c]
            t += 1
