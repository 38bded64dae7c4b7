"""One scoring step for (alpha, p_A, 1 / s0) between bounds, in logit space.

Compiled because it is taken thousands of times on three numbers, and because LAPACK rounds differently on
different processors.
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.kernels import njit

LONGEST_STEP = 1.5


@njit
def scoring_direction(
    gradient: Float, outer: Float, values: Float, lows: Float, highs: Float, free: Bool, ridge: float
) -> Float:
    """(J outer J + ridge)^-1 J gradient with the Jacobian J of the logits; 0 where a parameter is not free.

    The scores of a parameter that is not free may overflow (p_A = 0, a count that noise cannot explain), so
    they are not looked at.
    """
    n = values.size
    system = np.zeros((n, n + 1))
    for a in range(n):
        system[a, a] = 1.0
        if not free[a]:
            continue
        slope_a = (values[a] - lows[a]) * (highs[a] - values[a]) / (highs[a] - lows[a])
        for b in range(n):
            if free[b]:
                slope_b = (values[b] - lows[b]) * (highs[b] - values[b]) / (highs[b] - lows[b])
                system[a, b] = outer[a, b] * slope_a * slope_b
        system[a, a] += ridge
        system[a, n] = gradient[a] * slope_a
    for a in range(n):  # elimination; the matrix is positive definite, so that pivots need no search
        for b in range(a + 1, n):
            factor = system[b, a] / system[a, a]
            for c in range(a, n + 1):
                system[b, c] -= factor * system[a, c]
    direction = np.empty(n)
    for a in range(n - 1, -1, -1):
        total = system[a, n]
        for c in range(a + 1, n):
            total -= system[a, c] * direction[c]
        direction[a] = total / system[a, a]
    return np.minimum(np.maximum(direction, -LONGEST_STEP), LONGEST_STEP)


@njit
def moved_in_logits(values: Float, lows: Float, highs: Float, free: Bool, step: Float) -> Float:
    """The free values moved by ``step`` on the logit scale between their bounds."""
    out = values.copy()
    for a in range(values.size):
        if free[a]:
            logit = math.log(max(values[a] - lows[a], 1e-12) / max(highs[a] - values[a], 1e-12))
            moved = min(max(logit + step[a], -12.0), 12.0)
            out[a] = lows[a] + (highs[a] - lows[a]) / (1.0 + math.exp(-moved))
    return out
