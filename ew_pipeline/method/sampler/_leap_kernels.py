"""Compiled parts of theta's long moves (leaps.py)."""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float, Int32, Int64
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._kernels.double_math import exp_inplace, log_into
from ew_pipeline.method.sampler._gradient_kernels import GAMMA, UNIFORM
from ew_pipeline.method.sampler._theta_kernels import (
    shape_of,
    tables,
    theta_of,
    theta_prior,
    uniform_curve,
)


@njit
def fill_cells(
    kind: Int32, means: Float, scale: float, width: float, n_kinds: int
) -> tuple[Int64, Float, Float]:
    """Entries of one count and of nearly one mean, times ``scale``, as one cell: (kind, mean, entries)."""
    low, high = math.inf, 0.0
    for e in range(means.size):
        low, high = min(low, means[e]), max(high, means[e])
    start = math.log(low)
    bands = int((math.log(high) - start) / width) + 1
    entries, sums = np.zeros((n_kinds, bands)), np.zeros((n_kinds, bands))
    for e in range(means.size):
        band = min(int((math.log(means[e]) - start) / width), bands - 1)
        entries[kind[e], band] += 1.0
        sums[kind[e], band] += means[e]
    filled = 0
    for k in range(n_kinds):
        for b in range(bands):
            filled += entries[k, b] > 0.0
    kinds, centres, weights = np.empty(filled, np.int64), np.empty(filled), np.empty(filled)
    at = 0
    for k in range(n_kinds):
        for b in range(bands):
            if entries[k, b] > 0.0:
                kinds[at] = k
                centres[at] = scale * sums[k, b] / entries[k, b]
                weights[at] = entries[k, b]
                at += 1
    return kinds, centres, weights


@njit_fast
def log_posteriors(
    positions: Float,
    kinds: Float,
    cell_kind: Int64,
    cell_mean: Float,
    cell_entries: Float,
    s: float,
    shape_free: bool,
    family: int,
    out: Float,
) -> None:
    """log p(x | Mtilde, theta) + log prior of each theta, up to what does not depend on it.

    ``cell_mean`` is of Mtilde = M e(theta).
    """
    n_kinds, n = kinds.size, cell_kind.size
    healthy, anomalous = np.empty(n_kinds), np.empty(n_kinds)
    unused = np.empty((3, n_kinds), np.float32)
    slope = np.empty(positions.shape[1])
    x, y, logs, normal, odds, scratch = np.empty((6, n))
    y_bits, scratch_bits = y.view(np.int64), scratch.view(np.int64)
    entries, sold = 0.0, 0.0
    for c in range(n):
        x[c] = kinds[cell_kind[c]]
        entries += cell_entries[c]
        sold += cell_entries[c] * x[c]
    for k in range(positions.shape[0]):
        t = positions[k]
        s0, alpha, rate = theta_of(t, family)
        shape = shape_of(t) if shape_free else s
        tables(kinds, s0, alpha, rate, shape, family, healthy, anomalous, unused[0], unused[1], unused[2])
        log_odds = math.log(rate / (1.0 - rate))
        per_e = 1.0 / (1.0 - rate * (1.0 - alpha))
        for c in range(n):
            normal[c] = healthy[cell_kind[c]]
            odds[c] = anomalous[cell_kind[c]] + log_odds
        for c in range(n):
            y[c] = 1.0 + cell_mean[c] * (per_e / s0)
        log_into(y, y_bits, scratch, scratch_bits, logs, n)
        for c in range(n):
            normal[c] -= (x[c] + s0) * logs[c]
        if family == GAMMA:
            for c in range(n):
                y[c] = 1.0 + cell_mean[c] * (per_e * alpha / shape)
            log_into(y, y_bits, scratch, scratch_bits, logs, n)
            for c in range(n):
                odds[c] -= (x[c] + shape) * logs[c]
        elif family == UNIFORM:
            for c in range(n):
                odds[c] += uniform_curve(x[c], 2.0 * alpha * per_e * cell_mean[c])
        else:
            for c in range(n):
                odds[c] -= alpha * per_e * cell_mean[c]
        for c in range(n):
            odds[c] = min(odds[c] - normal[c], 600.0)
        exp_inplace(odds, scratch, scratch_bits, n)
        for c in range(n):
            y[c] = 1.0 + odds[c]
        log_into(y, y_bits, scratch, scratch_bits, logs, n)
        total = entries * math.log(1.0 - rate) + sold * math.log(per_e)
        for c in range(n):
            total += cell_entries[c] * (normal[c] + logs[c])
        out[k] = total + theta_prior(t, shape_free, slope)
