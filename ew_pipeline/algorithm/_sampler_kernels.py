"""Compiled steps of the Hamiltonian sampler around the gradient pass.

Coordinates: log U, log V, and t = (logit of log s0 between its bounds, logit alpha, logit p_A / 0.4, logit of
log s between its bounds).
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.algorithm._double_math import exp_inplace, log_into
from ew_pipeline.algorithm._gradient_kernels import CURVE_STEP, GAMMA, UNIFORM, ZERO
from ew_pipeline.algorithm._mixture_kernels import CHUNK
from ew_pipeline.algorithm._numba import njit, njit_fast
from ew_pipeline.algorithm._variational_kernels import digamma
from ew_pipeline.algorithm.anomaly_models import log_uniform
from ew_pipeline.algorithm.types import Float, Float32, Int32, Int64

LOG_SIZE_LOW, LOG_SIZE_HIGH = math.log(0.5), math.log(2000.0)
RATE_CAP = 0.4
RATE_PENALTY = 8.0  # p(p_A) ~ exp(-8 p_A): a mean of 0.1, and little weight on every third record wrong
T_LIMIT = 12.0
FAR = 12.0  # from the next smaller count on which a logarithm of Gamma is cheaper than a product
LOG_SHAPE_HIGH = math.log(200.0)  # s from 1, the exponential onset, to next to thinning
SHAPE_PRIOR = 0.5  # Beta on log s as a share of its range: most weight near the two ends, which have names
# Anomalies that all keep most of their sales cannot be told from chance: as s grows, alpha is held off 1.
SHALLOW_PENALTY = 2.0


@njit
def theta_of(t: Float, family: int) -> tuple[float, float, float]:
    """(s0, alpha, p_A) from the unconstrained coordinates."""
    g = 1.0 / (1.0 + math.exp(-t[0]))
    s0 = math.exp(LOG_SIZE_LOW + (LOG_SIZE_HIGH - LOG_SIZE_LOW) * g)
    alpha = 0.0 if family == ZERO else 1.0 / (1.0 + math.exp(-t[1]))
    return s0, alpha, RATE_CAP / (1.0 + math.exp(-t[2]))


@njit
def shape_of(t: Float) -> float:
    """The anomaly's shape s, where it is learnt."""
    return math.exp(LOG_SHAPE_HIGH / (1.0 + math.exp(-t[3])))


@njit
def theta_prior(t: Float, shape_free: bool, slope: Float) -> float:
    """log prior of t with Jacobians, and its gradient into ``slope``.

    log s0 uniform; p(alpha) ~ (1 - alpha)^c, c = 0.5; p(p_A) ~ exp(-8 p_A) on (0, 0.4). Where s is learnt,
    h = log s / log 200 ~ Beta(0.5, 0.5) and c = 0.5 + 2 h.
    """
    g = 1.0 / (1.0 + math.exp(-t[0]))
    alpha = 1.0 / (1.0 + math.exp(-t[1]))
    share = 1.0 / (1.0 + math.exp(-t[2]))
    slope[0] = 1.0 - 2.0 * g
    c, shape = 0.5, 0.0
    slope[3] = 0.0
    if shape_free:
        h = 1.0 / (1.0 + math.exp(-t[3]))
        c += SHALLOW_PENALTY * h
        shape = SHAPE_PRIOR * math.log(h * (1.0 - h)) + math.log(c + 1.0)
        slope[3] = SHAPE_PRIOR * (1.0 - 2.0 * h) + SHALLOW_PENALTY * h * (1.0 - h) * (
            math.log(1.0 - alpha) + 1.0 / (c + 1.0)
        )
    slope[1] = (1.0 - alpha) - (1.0 + c) * alpha
    slope[2] = (1.0 - 2.0 * share) - RATE_PENALTY * RATE_CAP * share * (1.0 - share)
    return (
        math.log(g * (1.0 - g))
        + math.log(alpha)
        + (1.0 + c) * math.log(1.0 - alpha)
        + math.log(share * (1.0 - share))
        - RATE_PENALTY * RATE_CAP * share
        + shape
    )


@njit
def tables(
    kinds: Float,
    s0: float,
    alpha: float,
    rate: float,
    s: float,
    family: int,
    healthy: Float,
    anomalous: Float,
    log_odds: Float32,
    slope: Float32,
    shape_slope: Float32,
) -> None:
    """Everything that depends on the count alone, over the distinct counts.

    healthy: log Gamma(x + s0) - log Gamma(s0) - x log s0, so that the healthy log-density is
    healthy + x log mu - (x + s0) log(1 + mu / s0) - log x!; anomalous likewise; log_odds: their
    difference plus log p / (1 - p); slope: d/ds0 of the healthy one plus 1; shape_slope: d/ds of
    the anomalous one plus 1, for GAMMA.
    """
    prior = math.log(rate / (1.0 - rate))
    _rising_sums(kinds, s0, healthy, slope)
    if family == GAMMA:
        _rising_sums(kinds, s, anomalous, shape_slope)
    for k in range(kinds.size):
        x = kinds[k]
        if family == GAMMA:
            anomalous[k] += x * math.log(alpha)
        elif family == ZERO:
            anomalous[k] = 0.0 if x == 0.0 else -1e4
        elif family == UNIFORM:
            anomalous[k] = x * math.log(2.0 * alpha)
        else:
            anomalous[k] = x * math.log(alpha)
        log_odds[k] = anomalous[k] - healthy[k] + prior


@njit
def _rising_sums(kinds: Float, size: float, log_rising: Float, slope: Float32) -> None:
    """log Gamma(x + size) - log Gamma(size) - x log size, and digamma(x + size) - digamma(size) + 1.

    Both are sums over the whole numbers below x; counts ascend, and each adds to the last unless it is far.
    """
    at = 0.0
    total, inverses = 0.0, 0.0
    for k in range(kinds.size):
        x = kinds[k]
        if x - at > FAR:
            total += math.lgamma(x + size) - math.lgamma(at + size) - (x - at) * math.log(size)
            inverses += digamma(x + size) - digamma(at + size)
            at = x
        product = 1.0
        while at < x:
            product *= 1.0 + at / size
            inverses += 1.0 / (at + size)
            at += 1.0
        total += math.log(product)
        log_rising[k] = total
        slope[k] = inverses + 1.0


@njit
def uniform_curve(x: float, b: float) -> float:
    """log P(x) + log x! - x log b for E ~ U(0, 2 alpha), b = 2 alpha mu."""
    shift = math.lgamma(x + 1.0) - x * math.log(b)
    return log_uniform(x, b, -b - shift) + shift


@njit
def uniform_curves(kinds: Float, start: float, out: Float32) -> None:
    """uniform_curve of each distinct count at log b = start + node CURVE_STEP, with its slope per node.

    It does not depend on theta, so that one table serves a whole chain's gradients.
    """
    for k in range(kinds.size):
        for node in range(out.shape[1]):
            b = math.exp(start + node * CURVE_STEP)
            value = uniform_curve(kinds[k], b)
            out[k, node, 0] = value
            out[k, node, 1] = (math.exp(-b - value) - 1.0 - kinds[k]) * CURVE_STEP


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


@njit
def sample_prior_shape(
    uniform: float,
    grid: Float,
    n: int,
    m: int,
    sum_logs: float,
    sum_right: float,
    prior_rate: float,
) -> float:
    """Draw the common prior shape a on a grid, given U ~ Gamma(a, b), V ~ Gamma(a, a)."""
    values = np.empty(grid.size)
    for g in range(grid.size):
        a = grid[g]
        values[g] = (
            n * (a * math.log(prior_rate) - math.lgamma(a))
            + m * (a * math.log(a) - math.lgamma(a))
            + (a - 1.0) * sum_logs
            - a * sum_right
        )
    values = np.exp(values - values.max())
    u = uniform * values.sum()
    for g in range(grid.size):
        u -= values[g]
        if u <= 0.0:
            return float(grid[g])
    return float(grid[grid.size - 1])
