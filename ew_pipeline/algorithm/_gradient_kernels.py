"""Gradient of the mixture log-likelihood in U, V and theta, for the sampler's trajectories.

Single precision, one pass over the observed entries row by row, anomaly states and exposures
integrated out. The number of factors is a compile-time constant (ranks are padded with zero
columns to a multiple of four), so that the inner loops are unrolled: this is what makes a pass
2-3 times faster than the generic loop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numba
import numpy as np

from ew_pipeline.algorithm._fast_math import exp_inplace, log_into
from ew_pipeline.algorithm.types import Float32, Int32, Int64

GAMMA, THINNING, ZERO, UNIFORM = 0, 1, 2, 3  # how an anomalous count arises; see sampler.py
ONE = np.float32(1.0)
TWO, THREE, ZERO32 = np.float32(2.0), np.float32(3.0), np.float32(0.0)
TINY = np.float32(1e-30)
CURVE_STEP = 1.0 / 16.0
PER_STEP = np.float32(1.0 / CURVE_STEP)

Gradient = Callable[..., tuple[float, float, float, float]]


def padded(rank: int) -> int:
    """The compiled width that holds ``rank`` factors."""
    return 4 * ((rank + 3) // 4)


@cache
def gradient_kernel(width: int) -> Gradient:
    """The compiled pass for ``width`` factors.

    It fills d/dU and d/dV of sum log p(x | mu, theta) and returns the derivatives in s0, alpha, p_A
    and s (0 unless GAMMA).
    Arguments: the CSR of the observed entries; ``kind``, the index of each count among the distinct ones;
    counts and level; U, V; ``spared``, for stores and SKUs (see axis_rates.py), only looked at if ``axes``;
    the tables over distinct counts ``log_odds``, ``slope`` and ``shape_slope`` (see sampler_tables), and
    ``curves`` (see uniform_curves), only looked at for UNIFORM; s0, alpha, p_A, the anomaly's shape s and the
    family code.
    """

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
        curve_start: float,
        s0: float,
        alpha: float,
        rate: float,
        s: float,
        family: int,
        longest_row: int,
        out_left: Float32,
        out_right: Float32,
    ) -> tuple[float, float, float, float]:
        n = left.shape[0]
        mu = np.empty(longest_row, np.float32)
        y0 = np.empty(longest_row, np.float32)
        y1 = np.empty(longest_row, np.float32)
        log0 = np.empty(longest_row, np.float32)
        log1 = np.empty(longest_row, np.float32)
        odds = np.empty(longest_row, np.float32)
        tilt = np.ones(longest_row, np.float32)
        pull = np.empty(longest_row, np.float32)
        scratch = np.empty(longest_row, np.int32)
        scratch_f = scratch.view(np.float32)
        y0_bits = y0.view(np.int32)
        y1_bits = y1.view(np.int32)
        per_s0 = np.float32(1.0 / s0)
        size0 = np.float32(s0)
        a = np.float32(alpha)
        size1 = np.float32(s)
        ratio1 = np.float32(alpha / s)
        per_a = np.float32(1.0 / alpha) if alpha > 0.0 else np.float32(0.0)
        common = np.float32(rate)
        shift = np.float32(np.log(2.0 * alpha) - curve_start) if family == UNIFORM else ONE
        last_node = numba.int32(curves.shape[1] - 2)
        d_size = 0.0
        d_alpha = 0.0
        d_shape = 0.0
        anomalies = 0.0
        common_anomalies = 0.0
        out_right[:] = np.float32(0.0)
        for i in range(n):
            first = indptr[i]
            w = indptr[i + 1] - first
            for t in range(w):
                j = cols[first + t]
                total = np.float32(0.0)
                for k in range(width):
                    total += left[i, k] * right[j, k]
                mu[t] = total * level[first + t] + TINY
            for t in range(w):
                y0[t] = ONE + mu[t] * per_s0
            log_into(y0_bits, scratch, scratch_f, log0, w)
            if family == GAMMA:
                for t in range(w):
                    y1[t] = ONE + mu[t] * ratio1
                log_into(y1_bits, scratch, scratch_f, log1, w)
                for t in range(w):
                    x = counts[first + t]
                    odds[t] = log_odds[kind[first + t]] + (x + size0) * log0[t] - (x + size1) * log1[t]
            elif family == UNIFORM:
                for t in range(w):
                    y1[t] = mu[t]
                log_into(y1_bits, scratch, scratch_f, log1, w)
                for t in range(w):
                    at = max((log1[t] + shift) * PER_STEP, ZERO32)
                    node = min(numba.int32(at), last_node)
                    u = at - np.float32(node)
                    q = kind[first + t]
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
                    x = counts[first + t]
                    odds[t] = log_odds[q] + (x + size0) * log0[t] + value
                    y1[t] = -rise * PER_STEP * per_a / mu[t]
            else:
                for t in range(w):
                    x = counts[first + t]
                    odds[t] = log_odds[kind[first + t]] + (x + size0) * log0[t] - a * mu[t]
                    y1[t] = ONE
            exp_inplace(odds, scratch, scratch_f, w)
            if axes:
                for t in range(w):
                    # the share of the pair's rate 1 - (1 - p_A) spare that moves with p_A
                    spare = spared_left[i] * spared_right[cols[first + t]]
                    tilt[t] = spare * common / (ONE - (ONE - common) * spare)
                    odds[t] /= tilt[t]
            sum_size = np.float32(0.0)
            sum_alpha = np.float32(0.0)
            sum_anomalous = np.float32(0.0)
            sum_common = np.float32(0.0)
            for t in range(w):
                x = counts[first + t]
                healthy = ONE / (ONE + odds[t])
                anomalous = ONE - healthy
                pull0 = (x * per_s0 + ONE) / y0[t]
                pull1 = (x + size1) / (size1 * y1[t]) if family == GAMMA else y1[t]
                pull[t] = (x / mu[t] - healthy * pull0 - anomalous * a * pull1) * level[first + t]
                sum_size += healthy * (slope[kind[first + t]] - log0[t] - pull0)
                sum_alpha += anomalous * (x * per_a - pull1 * mu[t])
                sum_anomalous += anomalous
                sum_common += anomalous * tilt[t]
            if family == GAMMA:
                sum_shape = np.float32(0.0)
                for t in range(w):
                    pull1 = (counts[first + t] + size1) / (size1 * y1[t])
                    anomalous = odds[t] / (ONE + odds[t])
                    sum_shape += anomalous * (shape_slope[kind[first + t]] - log1[t] - pull1)
                d_shape += float(sum_shape)
            d_size += float(sum_size)
            d_alpha += float(sum_alpha)
            anomalies += float(sum_anomalous)
            common_anomalies += float(sum_common)
            for k in range(width):
                out_left[i, k] = np.float32(0.0)
            for t in range(w):
                j = cols[first + t]
                q = pull[t]
                for k in range(width):
                    out_left[i, k] += q * right[j, k]
                    out_right[j, k] += q * left[i, k]
        d_rate = common_anomalies / rate - (cols.size - anomalies) / (1.0 - rate)
        return d_size, d_alpha, d_rate, d_shape

    compiled: Gradient = numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")(gradient)
    return compiled
