"""One leapfrog trajectory of the sampler, compiled as a whole.

A step is a gradient pass, a push of the momenta (``kick``) and a move of the positions (``drift``). theta
moves along with the factors: log U = log Utilde - log e(theta), so a change of theta shifts every line.
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int32, Int64
from ew_pipeline.core.kernels import njit
from ew_pipeline.method.sampler._gradient_kernels import gradient
from ew_pipeline.method.sampler._sampler_kernels import drift, kick
from ew_pipeline.method.sampler._theta_kernels import (
    LOG_SHAPE_HIGH,
    LOG_SIZE_HIGH,
    LOG_SIZE_LOW,
    T_LIMIT,
    shape_of,
    tables,
    theta_of,
    theta_prior,
)
from ew_pipeline.method.theta import RATE_CAP


@njit
def line_efficiency(side: int, spared: float, rate: float, alpha: float) -> float:
    """e(theta) of a store; of a SKU relative to one without a rate of its own."""
    e = 1.0 - (1.0 - (1.0 - rate) * spared) * (1.0 - alpha)
    return e if side == 0 else e / (1.0 - rate * (1.0 - alpha))


@njit
def shifts(
    side: int,
    axes: bool,
    spared: Float,
    rate: float,
    alpha: float,
    new_rate: float,
    new_alpha: float,
    out: Float,
) -> None:
    """log e(old theta) - log e(new theta) of every line."""
    if not axes:  # all stores alike, and no SKU of its own
        out[:] = 0.0
        if side == 0:
            out[:] = math.log(
                line_efficiency(0, 1.0, rate, alpha) / line_efficiency(0, 1.0, new_rate, new_alpha)
            )
        return
    for i in range(spared.size):
        old = line_efficiency(side, spared[i], rate, alpha)
        out[i] = math.log(old / line_efficiency(side, spared[i], new_rate, new_alpha))


@njit
def efficiency_slopes(
    side: int, spared: Float, totals: Float, rate: float, alpha: float
) -> tuple[float, float]:
    """Derivatives in alpha and p_A through the factors of a side, given those in their logs by line."""
    lost = 1.0 - alpha
    common = 1.0 - rate * lost
    d_alpha = 0.0
    d_rate = 0.0
    for i in range(totals.size):
        hit = 1.0 - (1.0 - rate) * spared[i]
        e = 1.0 - hit * lost
        in_alpha = hit / e
        in_rate = spared[i] * lost / e
        if side == 1:
            in_alpha -= rate / common
            in_rate -= lost / common
        d_alpha -= totals[i] * in_alpha
        d_rate += totals[i] * in_rate
    return d_alpha, d_rate


@njit
def leapfrog(
    n_steps: int,
    step: float,
    indptr: Int64,
    cols: Int32,
    kind: Int32,
    kinds: Float,
    counts: Float32,
    level: Float32,
    family: int,
    shape: float,
    shape_free: bool,
    axes: bool,
    curves: Float32,
    prior_shape: float,
    prior_rate: float,
    spared_left: Float,
    spared_right: Float,
    spared32_left: Float32,
    spared32_right: Float32,
    chol_left: Float,
    chol_right: Float,
    scales: Float,
    theta_momentum: Float,
    momentum_left: Float,
    momentum_right: Float,
    t: Float,
    logs_left: Float,
    logs_right: Float,
    factors_left: Float,
    factors_right: Float,
    single_left: Float32,
    single_right: Float32,
    healthy_table: Float,
    anomalous_table: Float,
    log_odds: Float32,
    slope_table: Float32,
    shape_slope: Float32,
) -> bool:
    """``n_steps`` leapfrog steps, in place; whether theta stayed within its limits."""
    pull_left = np.empty_like(single_left)
    pull_right = np.empty_like(single_right)
    totals_left = np.empty(logs_left.shape[0])
    totals_right = np.empty(logs_right.shape[0])
    slope = np.empty(t.size)
    s0, alpha, rate = theta_of(t, family)
    s = shape_of(t) if shape_free else shape
    for k in range(n_steps + 1):
        d_size, d_alpha, d_rate, d_shape = gradient(
            indptr,
            cols,
            kind,
            counts,
            level,
            single_left,
            single_right,
            axes,
            spared32_left,
            spared32_right,
            log_odds,
            slope_table,
            shape_slope,
            curves,
            s0,
            alpha,
            rate,
            s,
            family,
            pull_left,
            pull_right,
        )
        half = step if 0 < k < n_steps else 0.5 * step
        kick(momentum_left, factors_left, pull_left, chol_left, prior_shape, prior_rate, half, totals_left)
        kick(
            momentum_right,
            factors_right,
            pull_right,
            chol_right,
            prior_shape,
            prior_shape,
            half,
            totals_right,
        )
        through_left = efficiency_slopes(0, spared_left, totals_left, rate, alpha)
        d_alpha += through_left[0]
        d_rate += through_left[1]
        if axes:
            through_right = efficiency_slopes(1, spared_right, totals_right, rate, alpha)
            d_alpha += through_right[0]
            d_rate += through_right[1]
        theta_prior(t, shape_free, slope)
        g = 1.0 / (1.0 + math.exp(-t[0]))
        slope[0] += d_size * s0 * (LOG_SIZE_HIGH - LOG_SIZE_LOW) * g * (1.0 - g)
        slope[1] += d_alpha * alpha * (1.0 - alpha)
        slope[2] += d_rate * rate * (1.0 - rate / RATE_CAP)
        if shape_free:
            h = 1.0 / (1.0 + math.exp(-t[3]))
            slope[3] += d_shape * s * LOG_SHAPE_HIGH * h * (1.0 - h)
        for c in range(t.size):
            theta_momentum[c] += half * scales[c] * slope[c]
        if k == n_steps:
            break
        for c in range(t.size):
            t[c] += step * scales[c] * theta_momentum[c]
            if not abs(t[c]) <= T_LIMIT:
                return False
        old_rate, old_alpha = rate, alpha
        s0, alpha, rate = theta_of(t, family)
        s = shape_of(t) if shape_free else shape
        tables(
            kinds,
            s0,
            alpha,
            rate,
            s,
            family,
            healthy_table,
            anomalous_table,
            log_odds,
            slope_table,
            shape_slope,
        )
        shifts(0, axes, spared_left, old_rate, old_alpha, rate, alpha, totals_left)
        shifts(1, axes, spared_right, old_rate, old_alpha, rate, alpha, totals_right)
        drift(logs_left, factors_left, single_left, momentum_left, chol_left, step, totals_left)
        drift(logs_right, factors_right, single_right, momentum_right, chol_right, step, totals_right)
    return True
