"""The passes behind a pair's level, compiled: over cells, and over the weeks of every cell.

A cell is a pair with a past; cells are in row-major order, so that those of a store lie together and
``starts`` says where. ``units`` and ``weight`` are cells x weeks, both 0 where a week was not observed. A
pass goes through the cells of a store as often as it must while they are in the nearest cache. There is one
thread, so no number depends on how many there are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Float, Int32, Int64
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._kernels.double_math import exp_inplace, log_into

Units = NDArray[np.floating[Any]]  # single precision where it holds the numbers

LEAST_RATE = 1e-12
IN_REGISTERS = 3  # ranks up to here; the usual rank is 3
TOGETHER = 512  # numbers whose logarithms are taken at a time


@njit
def fill_window(
    rows: Int64, table: Units, first: int, units: Units, weight: Float, sold: Float, exposure: Float
) -> None:
    """Units and a weight of 1 for every week observed; the sums of both by cell."""
    for c in range(rows.size):
        row = rows[c]
        for t in range(weight.shape[1]):
            x = table[row, first + t]
            if x == x:
                units[c, t], weight[c, t] = x, 1.0
                sold[c] += x
                exposure[c] += 1.0


def sweep_factors(
    starts: Int64, sku: Int32, sold: Float, exposure: Float, U: Float, V: Float, sweeps: int
) -> None:
    """sold ~ Poisson(exposure * (U V^T)) by multiplicative updates of U, then V, in place.

    One mean observation is added to every row and column, so that one without a past has the mean.
    """
    if U.shape[1] <= IN_REGISTERS:
        _sweep_low_rank(starts, sku, sold, exposure, U, V, sweeps)
        return
    store = np.repeat(np.arange(U.shape[0], dtype=np.int32), np.diff(starts))
    for _ in range(sweeps):
        _update(store, sku, sold, exposure, U, V)
        _update(sku, store, sold, exposure, V, U)


@njit
def _sweep_low_rank(
    starts: Int64, sku: Int32, sold: Float, exposure: Float, U: Float, V: Float, sweeps: int
) -> None:
    """Both updates of a sweep in one pass: a store's factors are done before the next store is looked at.

    Factors beyond the rank are zero and stay so.
    """
    n, rank = U.shape
    fixed = np.zeros((V.shape[0], 4))
    fixed[:, :rank] = V
    sums = np.empty((V.shape[0], 8))
    for _ in range(sweeps):
        sums[:] = 0.0
        m0, m1, m2 = fixed[:, 0].mean(), fixed[:, 1].mean(), fixed[:, 2].mean()
        for i in range(n):
            u0 = U[i, 0]
            u1 = U[i, 1] if rank > 1 else 0.0
            u2 = U[i, 2] if rank > 2 else 0.0
            o0 = o1 = o2 = d0 = d1 = d2 = 0.0
            for e in range(starts[i], starts[i + 1]):
                j, x = sku[e], exposure[e]
                v0, v1, v2 = fixed[j, 0], fixed[j, 1], fixed[j, 2]
                ratio = sold[e] / max(u0 * v0 + u1 * v1 + u2 * v2, LEAST_RATE)
                o0 += ratio * v0
                o1 += ratio * v1
                o2 += ratio * v2
                d0 += x * v0
                d1 += x * v1
                d2 += x * v2
            u0 *= (o0 + m0) / (d0 + m0)
            U[i, 0] = u0
            if rank > 1:
                u1 *= (o1 + m1) / (d1 + m1)
                U[i, 1] = u1
            if rank > 2:
                u2 *= (o2 + m2) / (d2 + m2)
                U[i, 2] = u2
            for e in range(starts[i], starts[i + 1]):
                j, x = sku[e], exposure[e]
                rate = u0 * fixed[j, 0] + u1 * fixed[j, 1] + u2 * fixed[j, 2]
                ratio = sold[e] / max(rate, LEAST_RATE)
                sums[j, 0] += ratio * u0
                sums[j, 1] += ratio * u1
                sums[j, 2] += ratio * u2
                sums[j, 4] += x * u0
                sums[j, 5] += x * u1
                sums[j, 6] += x * u2
        for k in range(rank):
            mean = U[:, k].mean()
            for j in range(V.shape[0]):
                fixed[j, k] *= (sums[j, k] + mean) / (sums[j, 4 + k] + mean)
    V[:] = fixed[:, :rank]


@njit
def _update(line: Int32, other: Int32, sold: Float, exposure: Float, moved: Float, fixed: Float) -> None:
    rank = moved.shape[1]
    over, under = np.zeros(moved.shape), np.zeros(moved.shape)
    for e in range(sold.size):
        a, b = line[e], other[e]
        rate = 0.0
        for k in range(rank):
            rate += moved[a, k] * fixed[b, k]
        ratio = sold[e] / max(rate, LEAST_RATE)
        for k in range(rank):
            over[a, k] += ratio * fixed[b, k]
            under[a, k] += exposure[e] * fixed[b, k]
    for k in range(rank):
        mean = fixed[:, k].mean()
        for a in range(moved.shape[0]):
            moved[a, k] *= (over[a, k] + mean) / (under[a, k] + mean)


@njit
def rates_at(store: Int32, sku: Int32, U: Float, V: Float, least: float, rates: Float) -> None:
    """rates = U V^T at these pairs, ``least`` at least."""
    for e in range(rates.size):
        rate = 0.0
        for k in range(U.shape[1]):
            rate += U[store[e], k] * V[sku[e], k]
        rates[e] = max(rate, least)


@njit_fast
def week_effects(
    starts: Int64,
    sku: Int32,
    units: Units,
    weight: Float,
    expected: Float,
    smoothing: float,
    by_store: Float,
    by_sku: Float,
) -> None:
    """How every store and every SKU moved in every week, 1 for no movement: sold over due, in turn, twice.

    ``by_store``: stores x weeks; ``by_sku``: SKUs x weeks. ``smoothing``: units of expected sales that either
    must overcome to move.
    """
    weeks = weight.shape[1]
    sold_store, sold_sku = np.zeros(by_store.shape), np.zeros(by_sku.shape)
    due, due_sku = np.zeros(weeks), np.zeros(by_sku.shape)
    by_sku[:] = 1.0
    for sweep in range(2):
        due_sku[:] = 0.0
        for i in range(by_store.shape[0]):
            due[:] = 0.0
            for c in range(starts[i], starts[i + 1]):
                j, e = sku[c], expected[c]
                for t in range(weeks):
                    due[t] += weight[c, t] * e * by_sku[j, t]
                if sweep == 0:
                    for t in range(weeks):
                        sold = weight[c, t] * float(units[c, t])
                        sold_store[i, t] += sold
                        sold_sku[j, t] += sold
            for t in range(weeks):
                by_store[i, t] = (sold_store[i, t] + smoothing) / (due[t] + smoothing)
            for c in range(starts[i], starts[i + 1]):
                j, e = sku[c], expected[c]
                for t in range(weeks):
                    due_sku[j, t] += weight[c, t] * e * by_store[i, t]
        for j in range(by_sku.shape[0]):
            for t in range(weeks):
                by_sku[j, t] = (sold_sku[j, t] + smoothing) / (due_sku[j, t] + smoothing)


@njit_fast
def excess_variance(
    starts: Int64,
    sku: Int32,
    units: Units,
    weight: Float,
    expected: Float,
    by_store: Float,
    by_sku: Float,
) -> float:
    """1/s0 of a negative binomial by moments: Var = mean + mean²/s0."""
    above, squares = 0.0, 0.0
    for i in range(by_store.shape[0]):
        store_above, store_squares = 0.0, 0.0  # by store first: sums of like size lose least
        for c in range(starts[i], starts[i + 1]):
            j, e = sku[c], expected[c]
            for t in range(weight.shape[1]):
                mean = e * by_store[i, t] * by_sku[j, t]
                off = float(units[c, t]) - mean
                store_above += weight[c, t] * (off * off - mean)
                store_squares += weight[c, t] * (mean * mean)
        above += store_above
        squares += store_squares
    return above / squares


@njit
def shrunk_levels(
    sold: Float, exposure: Float, expected: Float, inverse_size: float, least_tau2: float, level: Float
) -> None:
    """Each cell's mean, drawn towards what is expected by how noisy it is beside the spread of the cells."""
    trusted, weighed = 0.0, 0.0
    for c in range(sold.size):
        seen = max(exposure[c], 1e-9)
        noise = (1.0 / expected[c] + inverse_size) / seen
        # Pairs whose mean is noisy say little about the spread of the true ones.
        trust = 1.0 / (noise + 0.1) ** 2
        trusted += trust
        weighed += trust * ((sold[c] / seen / expected[c] - 1.0) ** 2 - noise)
    tau2 = max(least_tau2, weighed / trusted)
    for c in range(sold.size):
        seen = max(exposure[c], 1e-9)
        keep = tau2 / (tau2 + (1.0 / expected[c] + inverse_size) / seen)
        level[c] = keep * (sold[c] / seen) + (1.0 - keep) * expected[c]


@njit_fast
def weigh_weeks(
    starts: Int64,
    sku: Int32,
    units: Units,
    level: Float,
    by_store: Float,
    by_sku: Float,
    inverse_size: float,
    suspect_alpha: float,
    of_count: Float,
    least_level: float,
    least_weight: float,
    weight: Float,
    sold: Float,
    exposure: Float,
) -> None:
    """A week's weight is its P(healthy): negative binomial around the level against exponential onset.

    With mu the level moved as the week was and s the size, x units have the log-odds

        of_count[x] - (s + x) log(1 + mu / s) + (x + 1) log(1 + alpha mu),

    in which x log mu has dropped out. ``sold`` and ``exposure`` are summed up anew.
    """
    weeks, size = weight.shape[1], 1.0 / inverse_size
    stretch = max(1, TOGETHER // weeks)  # cells
    room = stretch * weeks
    values, work, moved = np.empty(room), np.empty(room), np.empty(room)
    bent, lost = np.empty(room), np.empty(room)
    bits, work_bits = values.view(np.int64), work.view(np.int64)
    for i in range(by_store.shape[0]):
        for begin in range(starts[i], starts[i + 1], stretch):
            end = min(begin + stretch, starts[i + 1])
            n = (end - begin) * weeks
            for c in range(begin, end):
                at, j, mean = (c - begin) * weeks, sku[c], level[c]
                for t in range(weeks):
                    moved[at + t] = by_store[i, t] * by_sku[j, t]
                    mu = max(mean * moved[at + t], least_level)
                    values[at + t] = 1.0 + inverse_size * mu
                    lost[at + t] = 1.0 + suspect_alpha * mu
            log_into(values, bits, work, work_bits, bent, n)
            for k in range(n):
                values[k] = lost[k]
            log_into(values, bits, work, work_bits, lost, n)
            for c in range(begin, end):
                at = (c - begin) * weeks
                for t in range(weeks):
                    x = float(units[c, t])
                    odds = (size + x) * bent[at + t] - (x + 1.0) * lost[at + t]
                    values[at + t] = odds - _of_count(x, of_count, size, suspect_alpha)
            exp_inplace(values, work, work_bits, n)
            for c in range(begin, end):
                at, seen, total = (c - begin) * weeks, 0.0, 0.0
                for t in range(weeks):
                    w = max(np.divide(1.0, 1.0 + values[at + t]), least_weight)
                    w = w if weight[c, t] > 0.0 else 0.0
                    weight[c, t] = w
                    total += w * float(units[c, t])
                    seen += w * moved[at + t]
                sold[c], exposure[c] = total, seen


@njit
def _of_count(x: float, of_count: Float, size: float, suspect_alpha: float) -> float:
    """log Gamma(x + s) - log Gamma(s) - log x! - x log(s alpha) + the prior log-odds, ``of_count[0]``."""
    if 0.0 <= x < of_count.size and x == math.floor(x):
        return float(of_count[int(x)])
    combinations = math.lgamma(x + size) - math.lgamma(size) - math.lgamma(x + 1.0)
    return float(of_count[0]) + combinations - x * math.log(size * suspect_alpha)
