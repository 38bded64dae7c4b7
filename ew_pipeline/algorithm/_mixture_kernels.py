"""Compiled passes over the two-component mixture: healthy or anomalous.

All arrays are over the observed entries in row-major order. Healthy counts are negative binomial
with mean mu and a size per entry; anomalous counts are Poisson(E mu) with E ~ Gamma(s, mean alpha),
that is negative binomial with mean alpha mu and size s (s = 1 exponential onset, s = inf thinning).
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.algorithm._numba import njit
from ew_pipeline.algorithm.anomaly_models import log_uniform
from ew_pipeline.algorithm.types import Float

LOG_ZERO = -700.0  # exp of it is the smallest normal double; stands for "impossible"
SURELY_HEALTHY = 1.0 - 1e-5
LARGE_SIZE = 1e9  # a negative binomial of this size is Poisson to double precision for our counts


@njit
def log_rising(x: float, size: float) -> float:
    """log Gamma(x + size) - log Gamma(size), without cancellation for large size.

    For few counts the product size (size + 1) ... (size + x - 1) is exact and cheaper than lgamma.
    """
    if x <= 12.0 and size < 1e20:
        product = 1.0
        k = 0.0
        while k < x:
            product *= size + k
            k += 1.0
        return math.log(product)
    if size > 1e5 * (1.0 + x):
        return x * math.log(size) + x * (x - 1.0) / (2.0 * size)
    return math.lgamma(x + size) - math.lgamma(size)


@njit
def healthy_log_pmf(
    counts: Float, log_factorial: Float, means: Float, cv2: Float, inverse_size: float, out: Float
) -> None:
    """log NB(x; mean, 1 / (cv2 + inverse_size)); inverse_size = 0 is Poisson noise."""
    for e in range(counts.size):
        x = counts[e]
        mu = means[e]
        spread = cv2[e] + inverse_size
        if spread * LARGE_SIZE < 1.0:
            out[e] = x * math.log(mu) - mu - log_factorial[e]
        else:
            size = 1.0 / spread
            # x log(mu / (mu + size)) + size log(size / (mu + size))
            out[e] = (
                log_rising(x, size)
                - log_factorial[e]
                + x * math.log(mu / (mu + size))
                - size * math.log1p(mu * spread)
            )


@njit
def gamma_exposure_terms(
    counts: Float, log_factorial: Float, means: Float, alpha: float, s: float, log_pmf: Float, slope: Float
) -> None:
    """log NB(x; alpha mu, s) and its derivative in alpha."""
    for e in range(counts.size):
        x = counts[e]
        mu = alpha * means[e]
        if s > LARGE_SIZE:
            log_pmf[e] = x * math.log(mu) - mu - log_factorial[e]
            slope[e] = (x - mu) / alpha
        else:
            constant = 0.0 if s == 1.0 else log_rising(x, s) - log_factorial[e]
            log_pmf[e] = constant + x * math.log(mu / (mu + s)) - s * math.log1p(mu / s)
            slope[e] = (x - (x + s) * mu / (mu + s)) / alpha


@njit
def uniform_exposure_terms(
    counts: Float, log_factorial: Float, means: Float, alpha: float, log_pmf: Float, slope: Float
) -> None:
    """log P(x) for E ~ U(0, 2 alpha) and its derivative in alpha.

    With b = 2 alpha mu and p = P(x + 1, b) / b: d log p / d log b = Poisson(x; b) / p - 1.
    """
    for e in range(counts.size):
        x = counts[e]
        b = 2.0 * alpha * means[e]
        log_q = x * math.log(b) - b - log_factorial[e]
        log_pmf[e] = log_uniform(x, b, log_q)
        slope[e] = (math.exp(log_q - log_pmf[e]) - 1.0) / alpha


@njit
def uniform_exposure_weights(
    counts: Float,
    log_factorial: Float,
    means: Float,
    healthy: Float,
    alpha: float,
    inverse_size: float,
    level: Float,
    out: Float,
) -> None:
    """Expected exposure times level for E ~ U(0, 2 alpha); see gamma_exposure_weights.

    tau1 = (x + 1) p(x + 1) / (mu p(x)) (Robbins 1956) with p(x + 1) = p(x) - Poisson(x; b) / (x + 1).
    A pair surely healthy does not need it, and the sum behind p is not cheap.
    """
    for e in range(counts.size):
        x = counts[e]
        mu = means[e]
        tau0 = (x * inverse_size + 1.0) / (1.0 + mu * inverse_size)
        tau1 = 0.0
        if healthy[e] < SURELY_HEALTHY:
            b = 2.0 * alpha * mu
            log_q = x * math.log(b) - b - log_factorial[e]
            tau1 = max(x + 1.0 - math.exp(log_q - log_uniform(x, b, log_q)), 0.0) / mu
        out[e] = (healthy[e] * tau0 + (1.0 - healthy[e]) * tau1) * level[e]


@njit
def mixture_scores(
    log_healthy: Float,
    slope_healthy: Float,
    log_anomalous: Float,
    slope_anomalous: Float,
    weight: Float,
    clear: Float,
    rate: float,
) -> tuple[float, Float, Float]:
    """Log-likelihood of the mixture, its gradient in (alpha, p_A, log size) and the sum of outer
    products of the per-entry scores (the empirical information). ``weight``: how often each entry counts.

    An entry is healthy with probability (1 - p_A) clear; ``clear`` is 1 unless its store or SKU has a rate
    of its own (axis_rates.py).
    """
    total = 0.0
    gradient = np.zeros(3)
    outer = np.zeros((3, 3))
    score = np.empty(3)
    for e in range(log_healthy.size):
        if weight[e] == 0.0:
            continue
        difference = log_anomalous[e] - log_healthy[e]
        ratio = math.exp(min(difference, 600.0))
        healthy = (1.0 - rate) * clear[e]
        mix = healthy + (1.0 - healthy) * ratio
        total += weight[e] * (log_healthy[e] + math.log(mix))
        anomalous = (1.0 - healthy) * ratio / mix
        score[0] = anomalous * slope_anomalous[e]
        score[1] = clear[e] * (ratio - 1.0) / mix
        score[2] = (1.0 - anomalous) * slope_healthy[e]
        for a in range(3):
            gradient[a] += weight[e] * score[a]
            for b in range(a + 1):
                outer[a, b] += weight[e] * score[a] * score[b]
    for a in range(3):
        for b in range(a):
            outer[b, a] = outer[a, b]
    return total, gradient, outer


@njit
def healthy_share(log_healthy: Float, log_anomalous: Float, clear: Float, rate: float, out: Float) -> float:
    """f = P(healthy | x) per entry into ``out``; returns the mixture log-likelihood."""
    total = 0.0
    for e in range(log_healthy.size):
        difference = min(log_anomalous[e] - log_healthy[e], 600.0)
        healthy = (1.0 - rate) * clear[e]
        mix = healthy + (1.0 - healthy) * math.exp(difference)
        out[e] = healthy / mix
        total += log_healthy[e] + math.log(mix)
    return total


@njit
def gamma_exposure_weights(
    counts: Float,
    means: Float,
    healthy: Float,
    alpha: float,
    s: float,
    inverse_size: float,
    level: Float,
    out: Float,
) -> None:
    """Expected exposure times level: (f tau0 + (1 - f) tau1) L.

    tau0 = E[E | x, healthy] = (x + s0) / (s0 + mu), 1 for Poisson noise;
    tau1 = E[E | x, anomalous] = (x + s) / (s / alpha + mu), alpha for thinning. mu is in-sample.
    """
    for e in range(counts.size):
        x = counts[e]
        mu = means[e]
        tau0 = (x * inverse_size + 1.0) / (1.0 + mu * inverse_size)
        if s > LARGE_SIZE:
            tau1 = alpha
        elif s > 0.0:
            tau1 = (x + s) / (s / alpha + mu)
        else:
            tau1 = 0.0
        out[e] = (healthy[e] * tau0 + (1.0 - healthy[e]) * tau1) * level[e]
