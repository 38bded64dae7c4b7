"""Compiled leave-one-out step of the variational factorisation; its sweeps are in ``_sweep_kernels``.

Symbols: X counts, L level (known per pair), W expected exposure, M = U V^T, so that X ~ Poisson(E L M).
``exposed`` below is W * L.
"""

from __future__ import annotations

import math

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.kernels import njit

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
