"""Compiled steps of the Hamiltonian sampler around the gradient pass.

Coordinates: log U, log V, and those of theta (_theta_kernels.py).
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int32, Int64
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._kernels.double_math import exp_inplace, log_into
from ew_pipeline.method._kernels.mixture import CHUNK
from ew_pipeline.method.sampler._gradient_kernels import GAMMA, UNIFORM
from ew_pipeline.method.sampler._theta_kernels import uniform_curve


@njit_fast
def densities(
    indptr: Int64,
    cols: Int32,
    kind: Int32,
    kinds: Float,
    level: Float,
    log_factorial: Float,
    left: Float,
    right: Float,
    spared_left: Float,
    spared_right: Float,
    healthy: Float,
    anomalous: Float,
    s0: float,
    alpha: float,
    rate: float,
    s: float,
    family: int,
    out_means: Float,
    out_healthy: Float,
    out_density: Float,
) -> float:
    """log p(x | mu, theta) per entry with mu and f, in double precision; returns the sum."""
    rank = left.shape[1]
    y, logs = np.empty((3, CHUNK)), np.empty((3, CHUNK))
    x, normal = np.empty(CHUNK), np.empty(CHUNK)
    scratch = np.empty(CHUNK)
    total = 0.0
    i = 0
    for first in range(0, kind.size, CHUNK):
        n = min(CHUNK, kind.size - first)
        start = np.uint64(first)
        for t in range(n):
            while first + t >= indptr[i + 1]:
                i += 1
            p = start + np.uint64(t)
            j = np.uint64(cols[p])
            mu = 0.0
            for k in range(rank):
                mu += left[i, k] * right[j, k]
            q = np.uint64(kind[p])
            x[t] = kinds[q]
            normal[t] = (1.0 - rate) * spared_left[i] * spared_right[j]
            out_means[p] = mu * level[p] + 1e-300
            out_density[p] = healthy[q]
            out_healthy[p] = anomalous[q]
        for t in range(n):
            p = start + np.uint64(t)
            y[0, t] = out_means[p]
            y[1, t] = 1.0 + out_means[p] / s0
            y[2, t] = 1.0 + out_means[p] * (alpha / s)
        for k in range(3 if family == GAMMA else 2):
            log_into(y[k], y[k].view(np.int64), scratch, scratch.view(np.int64), logs[k], n)
        for t in range(n):
            p = start + np.uint64(t)
            out_density[p] -= (x[t] + s0) * logs[1, t]
        if family == GAMMA:
            for t in range(n):
                p = start + np.uint64(t)
                out_healthy[p] -= (x[t] + s) * logs[2, t]
        elif family == UNIFORM:
            for t in range(n):
                p = start + np.uint64(t)
                out_healthy[p] += uniform_curve(x[t], 2.0 * alpha * y[0, t])
        else:
            for t in range(n):
                p = start + np.uint64(t)
                out_healthy[p] -= alpha * y[0, t]
        for t in range(n):
            p = start + np.uint64(t)
            y[1, t] = min(out_healthy[p] - out_density[p], 600.0)
        exp_inplace(y[1], scratch, scratch.view(np.int64), n)
        for t in range(n):
            y[2, t] = normal[t] + y[1, t] * (1.0 - normal[t])
        log_into(y[2], y[2].view(np.int64), scratch, scratch.view(np.int64), logs[2], n)
        for t in range(n):
            p = start + np.uint64(t)
            out_healthy[p] = normal[t] / y[2, t]
            density = out_density[p] + logs[2, t] + x[t] * logs[0, t] - log_factorial[p]
            out_density[p] = density
            total += density
    return total


@njit
def entry_density(
    x: float,
    mu: float,
    healthy: float,
    anomalous: float,
    normal: float,
    s0: float,
    alpha: float,
    s: float,
    family: int,
) -> tuple[float, float]:
    """log p(x | mu, theta) + log x! and f of one entry that is healthy with probability ``normal``."""
    log_healthy = healthy - (x + s0) * math.log1p(mu / s0)
    if family == GAMMA:
        log_anomalous = anomalous - (x + s) * math.log1p(alpha * mu / s)
    elif family == UNIFORM:
        log_anomalous = anomalous + uniform_curve(x, 2.0 * alpha * mu)
    else:
        log_anomalous = anomalous - alpha * mu
    odds = math.exp(min(log_anomalous - log_healthy, 600.0)) * (1.0 - normal) / normal
    return log_healthy + math.log(normal * (1.0 + odds)) + x * math.log(mu), 1.0 / (1.0 + odds)


@njit
def move_lines(
    indptr: Int64,
    others: Int32,
    entry: Int64,
    kind: Int32,
    kinds: Float,
    log_factorial: Float,
    healthy: Float,
    anomalous: Float,
    s0: float,
    alpha: float,
    rate: float,
    s: float,
    family: int,
    extra_rates: Float,
    log_weights: Float,
    proposed: Int64,
    log_uniform: Float,
    prior_shape: float,
    prior_rate: float,
    spared_other: Float,
    spared: Float,
    at: Int64,
    logs: Float,
    means: Float,
    out_healthy: Float,
    density: Float,
) -> None:
    """Metropolis step on the extra anomaly rate of each store (or SKU), its demand moving along.

    ``at`` and ``proposed`` are indices into ``extra_rates``. The line's factors are scaled by e_old / e_new,
    so that its average sales stay (axis_rates.py); a shift of the logs has Jacobian one. ``means``,
    ``out_healthy`` and ``density`` of the line's entries follow.
    """
    rank = logs.shape[1]
    longest = 0
    for i in range(indptr.size - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    new_density, new_healthy = np.empty(longest), np.empty(longest)
    for i in range(indptr.size - 1):
        if proposed[i] == at[i]:
            continue
        spare = 1.0 - extra_rates[proposed[i]]
        e_old = 1.0 - (1.0 - (1.0 - rate) * spared[i]) * (1.0 - alpha)
        e_new = 1.0 - (1.0 - (1.0 - rate) * spare) * (1.0 - alpha)
        by = e_old / e_new
        change = log_weights[proposed[i]] - log_weights[at[i]]
        for k in range(rank):
            change += prior_shape * math.log(by) - prior_rate * math.exp(logs[i, k]) * (by - 1.0)
        first = indptr[i]
        for p in range(first, indptr[i + 1]):
            e = entry[p]
            q = kind[e]
            normal = (1.0 - rate) * spare * spared_other[others[p]]
            value, share = entry_density(
                kinds[q], means[e] * by, healthy[q], anomalous[q], normal, s0, alpha, s, family
            )
            new_density[p - first] = value - log_factorial[e]
            new_healthy[p - first] = share
            change += new_density[p - first] - density[e]
        if log_uniform[i] < change:
            at[i] = proposed[i]
            spared[i] = spare
            for k in range(rank):
                logs[i, k] += math.log(by)
            for p in range(first, indptr[i + 1]):
                e = entry[p]
                means[e] *= by
                density[e] = new_density[p - first]
                out_healthy[e] = new_healthy[p - first]


@njit
def inverse_cholesky(matrix: Float, out: Float) -> None:
    """Lower C with C C' = matrix^-1, from the lower triangle of ``matrix``, which is overwritten.

    With matrix = W W', W upper, C is the transposed inverse of W. Written out because LAPACK rounds
    differently on different processors, and a chain would end elsewhere.
    """
    r = matrix.shape[0]
    for j in range(r - 1, -1, -1):  # W[i, j] with i <= j goes to matrix[j, i]
        for i in range(j, -1, -1):
            total = matrix[j, i]
            for k in range(j + 1, r):
                total -= matrix[k, i] * matrix[k, j]
            matrix[j, i] = math.sqrt(total) if i == j else total / matrix[j, j]
    for j in range(r):
        for i in range(r):
            out[j, i] = 0.0
    for j in range(r):  # solve W z = e_j upwards; z is the j-th column of W^-1, the j-th row of C
        out[j, j] = 1.0 / matrix[j, j]
        for i in range(j - 1, -1, -1):
            total = 0.0
            for k in range(i + 1, j + 1):
                total += matrix[k, i] * out[j, k]
            out[j, i] = -total / matrix[i, i]


@njit
def metric(
    indptr: Int64,
    others: Int32,
    entry: Int64,
    weight: Float,
    means: Float,
    level: Float,
    own: Float,
    other: Float,
    prior_shape: float,
    out: Float,
) -> None:
    """Cholesky factors C_i of the inverse information on each row's log factors, into out[n, r, r].

    Information: sum_j weight p p' + a I with p_k the k-th factor's share of mu; ``weight`` is the
    information of one count on log mu.
    """
    n, rank = own.shape
    information = np.empty((rank, rank))
    share = np.empty(rank)
    for i in range(n):
        for a in range(rank):
            for b in range(rank):
                information[a, b] = prior_shape if a == b else 0.0
        for p in range(indptr[i], indptr[i + 1]):
            e = entry[p]
            scale = level[e] / means[e]
            for a in range(rank):
                share[a] = own[i, a] * other[others[p], a] * scale
            for a in range(rank):
                scaled = weight[e] * share[a]
                for b in range(a + 1):
                    information[a, b] += scaled * share[b]
        inverse_cholesky(information, out[i])


@njit
def kick(
    momentum: Float,
    factors: Float,
    pull: Float32,
    chol: Float,
    prior_shape: float,
    prior_rate: float,
    step: float,
    totals: Float,
) -> None:
    """Momentum update p += step C' d/d(log factors); that gradient summed by line into ``totals``."""
    n, rank = factors.shape
    slope = np.empty(rank)
    for i in range(n):
        total = 0.0
        for k in range(rank):
            slope[k] = factors[i, k] * (pull[k, i] - prior_rate) + prior_shape
            total += slope[k]
        totals[i] = total
        for k in range(rank):
            z = 0.0
            for q in range(k, rank):
                z += chol[i, q, k] * slope[q]
            momentum[i, k] += step * z


@njit
def drift(
    logs: Float,
    factors: Float,
    single: Float32,
    momentum: Float,
    chol: Float,
    step: float,
    shift: Float,
) -> None:
    """Position update log factors += step C p + shift."""
    n, rank = logs.shape
    for i in range(n):
        for k in range(rank):
            z = 0.0
            for q in range(k + 1):
                z += chol[i, k, q] * momentum[i, q]
            logs[i, k] += step * z + shift[i]
    exponentials(logs, factors, single)


@njit_fast
def exponentials(logs: Float, factors: Float, single: Float32) -> None:
    """Factors from their logarithms; factor by factor in single precision."""
    n, rank = logs.shape
    flat, source = factors.ravel(), logs.ravel()
    scratch = np.empty(flat.size)
    for e in range(flat.size):
        flat[e] = min(max(source[e], -60.0), 40.0)
    exp_inplace(flat, scratch, scratch.view(np.int64), flat.size)
    for i in range(n):
        for k in range(rank):
            single[k, i] = factors[i, k]
