"""Gradient of the mixture log-likelihood in U, V and theta, for the sampler's trajectories.

Single precision, one pass over the observed entries, some rows at a time, anomaly states and exposures
integrated out. Factors are stored factor by factor (see ``_kernels.lines``).
"""

from __future__ import annotations

import math

import numba
import numpy as np

from ew_pipeline.core.arrays import Float32, Int32, Int64
from ew_pipeline.core.kernels import njit_fast
from ew_pipeline.method._kernels.fast_math import exp_inplace, log_into
from ew_pipeline.method._kernels.lines import pull_of_line, rates_of_line

GAMMA, THINNING, ZERO, UNIFORM = 0, 1, 2, 3  # how an anomalous count arises; see chain.py
ONE = np.float32(1.0)
TWO, THREE, ZERO32 = np.float32(2.0), np.float32(3.0), np.float32(0.0)
TINY = np.float32(1e-30)
CURVE_STEP = 1.0 / 16.0
PER_STEP = np.float32(1.0 / CURVE_STEP)
CURVE_START = -6.0  # log b below which the uniform family's likelihood does not depend on b
BLOCK = 1024  # entries that are worked on together: long loops, and all in the nearest cache


@njit_fast
def gradient(
    indptr: Int64,
    cols: Int32,
    kind: Int32,
    counts: Float32,
    level: Float32,
    left: Float32,
    right: Float32,
    axes: bool,
    spared_left: Float32,
    spared_right: Float32,
    log_odds: Float32,
    slope: Float32,
    shape_slope: Float32,
    curves: Float32,
    s0: float,
    alpha: float,
    rate: float,
    s: float,
    family: int,
    out_left: Float32,
    out_right: Float32,
) -> tuple[float, float, float, float]:
    """Fill d/dU and d/dV of sum log p(x | mu, theta); return the derivatives in s0, alpha, p_A and s.

    The last is 0 unless GAMMA.

    Arguments: the CSR of the observed entries; ``kind``, the index of each count among the distinct ones;
    counts and level; U, V; ``spared``, for stores and SKUs (see axis_rates.py), only looked at if ``axes``;
    the tables over distinct counts ``log_odds``, ``slope`` and ``shape_slope`` (see ``tables``), and
    ``curves`` (see ``uniform_curves``), only looked at for UNIFORM; s0, alpha, p_A, the anomaly's shape s and
    the family code.
    """
    n = left.shape[1]
    room = BLOCK
    for i in range(n):
        room = max(room, indptr[i + 1] - indptr[i])
    mu = np.empty(room, np.float32)
    y0 = np.empty(room, np.float32)
    y1 = np.ones(room, np.float32)
    log0 = np.empty(room, np.float32)
    log1 = np.zeros(room, np.float32)
    odds = np.empty(room, np.float32)
    tilt = np.ones(room, np.float32)
    pull = np.empty(room, np.float32)
    slope0 = np.empty(room, np.float32)
    slope1 = np.empty(room, np.float32)
    scratch = np.empty(room, np.int32)
    scratch_f = scratch.view(np.float32)
    y0_bits = y0.view(np.int32)
    y1_bits = y1.view(np.int32)
    spread = np.empty(right.shape[1], np.float32)
    per_s0 = np.float32(1.0 / s0)
    size0 = np.float32(s0)
    a = np.float32(alpha)
    size1 = np.float32(s)
    per_size1 = np.float32(1.0 / s)
    ratio1 = np.float32(alpha / s)
    per_a = np.float32(1.0 / alpha) if alpha > 0.0 else np.float32(0.0)
    common = np.float32(rate)
    shift = np.float32(math.log(2.0 * alpha) - CURVE_START) if family == UNIFORM else ONE
    last_node = numba.int32(curves.shape[1] - 2)
    d_size = 0.0
    d_alpha = 0.0
    d_shape = 0.0
    anomalies = 0.0
    common_anomalies = 0.0
    out_right[:] = ZERO32
    begin = 0
    while begin < n:
        end = begin + 1
        while end < n and indptr[end + 1] - indptr[begin] <= room:
            end += 1
        first = indptr[begin]
        start = np.uint64(first)
        w = indptr[end] - first
        for i in range(begin, end):
            at = indptr[i]
            width = indptr[i + 1] - at
            rates_of_line(i, at, width, cols, left, right, TINY, spread, mu[at - first :])
        for t in range(w):  # apart from the arithmetic: a loop that looks up is not vectorised
            p = start + np.uint64(t)
            q = np.uint64(kind[p])
            odds[t] = log_odds[q]
            slope0[t] = slope[q]
            slope1[t] = shape_slope[q]
        for t in range(w):
            p = start + np.uint64(t)
            mu[t] *= level[p]
            y0[t] = ONE + mu[t] * per_s0
        log_into(y0_bits, scratch, scratch_f, log0, w)
        if family == GAMMA:
            for t in range(w):
                y1[t] = ONE + mu[t] * ratio1
            log_into(y1_bits, scratch, scratch_f, log1, w)
            for t in range(w):
                p = start + np.uint64(t)
                x = counts[p]
                odds[t] += (x + size0) * log0[t] - (x + size1) * log1[t]
            for t in range(w):
                p = start + np.uint64(t)
                y1[t] = (counts[p] + size1) * per_size1 / y1[t]
        elif family == UNIFORM:
            for t in range(w):
                y1[t] = mu[t]
            log_into(y1_bits, scratch, scratch_f, log1, w)
            for t in range(w):
                p = start + np.uint64(t)
                place = max((log1[t] + shift) * PER_STEP, ZERO32)
                node = min(numba.int32(place), last_node)
                u = place - np.float32(node)
                q = kind[p]
                v0 = curves[q, node, 0]
                d0 = curves[q, node, 1]
                if u > ONE:  # beyond the table the curve is straight
                    value = curves[q, node + 1, 0] + (u - ONE) * curves[q, node + 1, 1]
                    rise = curves[q, node + 1, 1]
                else:  # cubic through both ends' values and slopes
                    gap = curves[q, node + 1, 0] - v0
                    bend = THREE * gap - TWO * d0 - curves[q, node + 1, 1]
                    twist = d0 + curves[q, node + 1, 1] - TWO * gap
                    value = v0 + u * (d0 + u * (bend + u * twist))
                    rise = d0 + u * (TWO * bend + THREE * u * twist)
                x = counts[p]
                odds[t] += (x + size0) * log0[t] + value
                y1[t] = -rise * PER_STEP * per_a / mu[t]
        else:
            for t in range(w):
                p = start + np.uint64(t)
                x = counts[p]
                odds[t] += (x + size0) * log0[t] - a * mu[t]
        exp_inplace(odds, scratch, scratch_f, w)
        if axes:
            for i in range(begin, end):
                for e in range(indptr[i], indptr[i + 1]):
                    # the share of the pair's rate 1 - (1 - p_A) spare that moves with p_A
                    spare = spared_left[i] * spared_right[cols[e]]
                    tilt[e - first] = spare * common / (ONE - (ONE - common) * spare)
                    odds[e - first] /= tilt[e - first]
        sum_size = ZERO32
        sum_alpha = ZERO32
        sum_shape = ZERO32
        sum_anomalous = ZERO32
        sum_common = ZERO32
        for t in range(w):  # y1: what an anomalous count pulls alpha mu by
            p = start + np.uint64(t)
            x = counts[p]
            healthy = ONE / (ONE + odds[t])
            anomalous = odds[t] * healthy
            pull0 = (x * per_s0 + ONE) / y0[t]
            pull[t] = (x / mu[t] - healthy * pull0 - anomalous * a * y1[t]) * level[p]
            sum_size += healthy * (slope0[t] - log0[t] - pull0)
            sum_alpha += anomalous * (x * per_a - y1[t] * mu[t])
            sum_shape += anomalous * (slope1[t] - log1[t] - y1[t])
            sum_anomalous += anomalous
            sum_common += anomalous * tilt[t]
        if family == GAMMA:
            d_shape += float(sum_shape)
        d_size += float(sum_size)
        d_alpha += float(sum_alpha)
        anomalies += float(sum_anomalous)
        common_anomalies += float(sum_common)
        for i in range(begin, end):
            at = indptr[i]
            width = indptr[i + 1] - at
            pull_of_line(i, at, width, cols, left, right, pull[at - first :], spread, out_left, out_right)
        begin = end
    d_rate = common_anomalies / rate - (cols.size - anomalies) / (1.0 - rate)
    return d_size, d_alpha, d_rate, d_shape
