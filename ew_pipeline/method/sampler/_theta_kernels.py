"""theta of the sampler, compiled: its coordinates, its prior, and what depends on it and a count alone.

Coordinates: t = (logit of log s0 between its bounds, logit alpha, logit p_A / 0.4, logit of log s between its
bounds).
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float, Float32
from ew_pipeline.core.kernels import njit
from ew_pipeline.method.anomalies import log_uniform
from ew_pipeline.method.sampler._gradient_kernels import CURVE_STEP, GAMMA, UNIFORM, ZERO
from ew_pipeline.method.theta import RATE_CAP, RATE_PENALTY
from ew_pipeline.method.variational._variational_kernels import digamma

LOG_SIZE_LOW, LOG_SIZE_HIGH = math.log(0.5), math.log(2000.0)
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
