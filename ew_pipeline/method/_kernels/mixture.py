"""Compiled passes over the two-component mixture: healthy or anomalous.

All arrays are over the observed entries in row-major order. Healthy counts are negative binomial
with mean mu and a size per entry; anomalous counts are Poisson(E mu) with E ~ Gamma(s, mean alpha),
that is negative binomial with mean alpha mu and size s (s = 1 exponential onset, s = inf thinning).
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._kernels.double_math import exp_inplace, log_into
from ew_pipeline.method.anomalies import log_uniform

LOG_ZERO = -700.0  # exp of it is the smallest normal double; stands for "impossible"
SURELY_HEALTHY = 1.0 - 1e-5
CHUNK = 512  # entries whose intermediate results stay in the nearest cache
MOST_FACTORS = 64.0  # counts up to this have log Gamma(x + size) - log Gamma(size) as a product
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


@njit_fast
def healthy_log_pmf(
    counts: Float, log_factorial: Float, means: Float, cv2: Float, inverse_size: float, out: Float
) -> None:
    """log NB(x; mean, 1 / (cv2 + inverse_size)); inverse_size = 0 is Poisson noise.

    Rearranged as in ``noise.nb_log_pmf``, so that nothing grows with the size:
    log prod_{k<x} (1 + k spread) + x log mu - (x + 1 / spread) log(1 + mu spread) - log x!.
    """
    y = np.empty((3, CHUNK))
    logs = np.empty((3, CHUNK))
    scratch = np.empty(CHUNK)
    for first in range(0, counts.size, CHUNK):
        n = min(CHUNK, counts.size - first)
        start = np.uint64(first)
        for t in range(n):
            p = start + np.uint64(t)
            spread = cv2[p] + inverse_size
            y[0, t] = _rising(counts[p], spread)
            y[1, t] = means[p]
            y[2, t] = 1.0 + means[p] * spread
        for k in range(3):
            log_into(y[k], y[k].view(np.int64), scratch, scratch.view(np.int64), logs[k], n)
        for t in range(n):
            p = start + np.uint64(t)
            x = counts[p]
            mu = means[p]
            spread = max(cv2[p] + inverse_size, 1e-300)
            z = mu * spread
            series = (x * z + mu) * (
                1.0 - z * (0.5 - z * (1 / 3 - z * 0.25))
            )  # where log(1 + z) loses digits
            grown = series if z < 1e-3 else (x + 1.0 / spread) * logs[2, t]
            value = logs[0, t] + x * logs[1, t] - grown - log_factorial[p]
            out[p] = value
        for t in range(n):
            p = start + np.uint64(t)
            if counts[p] > MOST_FACTORS:
                out[p] += log_rising_scaled(counts[p], cv2[p] + inverse_size)


@njit
def _rising(x: float, spread: float) -> float:
    """prod_{k<x} (1 + k spread), 1 for counts above MOST_FACTORS."""
    product = 1.0
    if x <= MOST_FACTORS:
        k = 1.0
        while k < x:
            product *= 1.0 + k * spread
            k += 1.0
    return product


@njit
def log_rising_scaled(x: float, spread: float) -> float:
    """log prod_{k<x} (1 + k spread) for large counts."""
    if spread * LARGE_SIZE < 1.0:
        return 0.0
    size = 1.0 / spread
    return log_rising(x, size) - x * math.log(size)


@njit_fast
def gamma_exposure_terms(
    counts: Float, log_factorial: Float, means: Float, alpha: float, s: float, log_pmf: Float, slope: Float
) -> None:
    """log NB(x; alpha mu, s) and its derivative in alpha."""
    y = np.empty((2, CHUNK))
    logs = np.empty((2, CHUNK))
    scratch = np.empty(CHUNK)
    poisson = s > LARGE_SIZE
    for first in range(0, counts.size, CHUNK):
        n = min(CHUNK, counts.size - first)
        start = np.uint64(first)
        for t in range(n):
            p = start + np.uint64(t)
            y[0, t] = alpha * means[p]
            y[1, t] = 1.0 if poisson else y[0, t] + s
        for k in range(1 if poisson else 2):
            log_into(y[k], y[k].view(np.int64), scratch, scratch.view(np.int64), logs[k], n)
        if poisson:
            for t in range(n):
                p = start + np.uint64(t)
                x = counts[p]
                log_pmf[p] = x * logs[0, t] - y[0, t] - log_factorial[p]
                slope[p] = (x - y[0, t]) / alpha
            continue
        for t in range(n):
            p = start + np.uint64(t)
            x = counts[p]
            log_pmf[p] = x * logs[0, t] - (x + s) * logs[1, t]
            slope[p] = (x - (x + s) * y[0, t] / y[1, t]) / alpha
        if s != 1.0:
            for t in range(n):
                p = start + np.uint64(t)
                constant = log_rising(counts[p], s) - log_factorial[p] + s * math.log(s)
                log_pmf[p] += constant


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


@njit_fast
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
    ratio, mix, log_mix = np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK)
    scratch = np.empty(CHUNK)
    total = g0 = g1 = g2 = h00 = h10 = h11 = h20 = h21 = h22 = 0.0
    for first in range(0, log_healthy.size, CHUNK):
        n = min(CHUNK, log_healthy.size - first)
        start = np.uint64(first)
        _mix(first, n, log_healthy, log_anomalous, clear, rate, ratio, mix, log_mix, scratch)
        for t in range(n):
            e = start + np.uint64(t)
            w = weight[e]
            healthy = (1.0 - rate) * clear[e]
            anomalous = (1.0 - healthy) * ratio[t] / mix[t]
            total += w * (log_healthy[e] + log_mix[t])
            s0 = anomalous * slope_anomalous[e]
            s1 = clear[e] * (ratio[t] - 1.0) / mix[t]
            s2 = (1.0 - anomalous) * slope_healthy[e]
            g0 += w * s0
            g1 += w * s1
            g2 += w * s2
            h00 += w * s0 * s0
            h10 += w * s1 * s0
            h11 += w * s1 * s1
            h20 += w * s2 * s0
            h21 += w * s2 * s1
            h22 += w * s2 * s2
    outer = np.array([[h00, h10, h20], [h10, h11, h21], [h20, h21, h22]])
    return total, np.array([g0, g1, g2]), outer


@njit_fast
def _mix(
    first: int,
    n: int,
    log_healthy: Float,
    log_anomalous: Float,
    clear: Float,
    rate: float,
    ratio: Float,
    mix: Float,
    log_mix: Float,
    scratch: Float,
) -> None:
    """Likelihood ratios, and the mixture's likelihood over the healthy one's with its logarithm."""
    start = np.uint64(first)
    for t in range(n):
        p = start + np.uint64(t)
        ratio[t] = min(log_anomalous[p] - log_healthy[p], 600.0)
    exp_inplace(ratio, scratch, scratch.view(np.int64), n)
    for t in range(n):
        p = start + np.uint64(t)
        healthy = (1.0 - rate) * clear[p]
        mix[t] = healthy + (1.0 - healthy) * ratio[t]
    log_into(mix, mix.view(np.int64), scratch, scratch.view(np.int64), log_mix, n)


@njit_fast
def healthy_share(
    log_healthy: Float, log_anomalous: Float, clear: Float, rate: float, out: Float, scores: Float
) -> None:
    """f = P(healthy | x) per entry into ``out``, its log predictive under the mixture into ``scores``."""
    ratio, mix, log_mix = np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK)
    scratch = np.empty(CHUNK)
    for first in range(0, log_healthy.size, CHUNK):
        n = min(CHUNK, log_healthy.size - first)
        start = np.uint64(first)
        _mix(first, n, log_healthy, log_anomalous, clear, rate, ratio, mix, log_mix, scratch)
        for t in range(n):
            p = start + np.uint64(t)
            out[p] = (1.0 - rate) * clear[p] / mix[t]
            scores[p] = log_healthy[p] + log_mix[t]


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
