"""Compiled pass of the large-scale fit: the probability that an entry is healthy."""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int32
from ew_pipeline.core.kernels import njit_fast
from ew_pipeline.method._kernels.double_math import exp_inplace, log_into
from ew_pipeline.method._kernels.mixture import LARGE_SIZE, log_rising_scaled

CHUNK = 512
LEAST_SPREAD = 1e-9  # below it a negative binomial is Poisson to double precision
MOST_ODDS = 80.0
OVERFLOWING = 1e100
TOGETHER = 16
MOST_MULTIPLIED = 4096  # factors; beyond, the difference of two log Gammas is the quicker


@njit_fast
def healthy_entries(
    first: int,
    end: int,
    counts: Int32,
    means: Float32,
    cv2: Float32,
    alpha: float,
    anomaly_rate: float,
    inverse_size: float,
    shape: float,
    rising: Float,
    healthy: Float32,
) -> None:
    """f = P(healthy | x) of some entries, anomalous counts being NB(alpha mu, s); at ``shape`` or ``alpha`` 0
    they sell nothing.

    With c = cv2 + 1 / s0 and d = 1 / s, factorials and x log mu drop out of the odds of the two components,
    whose logarithm is that of p_A / (1 - p_A) plus

        x (log alpha + log(1 + c mu) - log(1 + d alpha mu)) + log(1 + c mu) / c - log(1 + d alpha mu) / d
        + sum over k < x of log(1 + k d)    (``rising[x]``, by log Gamma beyond it; nothing where it is empty)
        - sum over k < x of log(1 + k c)
    """
    prior = math.log(anomaly_rate / (1.0 - anomaly_rate)) if anomaly_rate > 0.0 else -2.0 * MOST_ODDS
    nothing_sold = shape == 0.0 or alpha == 0.0
    d = 1.0 if nothing_sold else 1.0 / min(shape, LARGE_SIZE)
    log_alpha = 0.0 if nothing_sold else math.log(alpha)
    a = 0.0 if nothing_sold else alpha
    values, work, bent = np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK)
    lost, product, rest = np.empty(CHUNK), np.empty(CHUNK), np.empty(CHUNK)
    bits, work_bits = values.view(np.int64), work.view(np.int64)
    for start in range(first, end, CHUNK):
        size = min(CHUNK, end - start)
        for k in range(size):
            values[k] = 1.0 + (cv2[start + k] + inverse_size + LEAST_SPREAD) * means[start + k]
        log_into(values, bits, work, work_bits, bent, size)
        for k in range(size):
            values[k] = 1.0 + d * a * means[start + k]
        log_into(values, bits, work, work_bits, lost, size)
        _rising(start, size, counts, cv2, inverse_size + LEAST_SPREAD, values, rest)
        log_into(values, bits, work, work_bits, product, size)
        for k in range(size):
            c = float(cv2[start + k]) + inverse_size + LEAST_SPREAD
            x = float(counts[start + k])
            product[k] = (
                prior
                + x * (log_alpha + bent[k] - lost[k])
                + np.divide(bent[k], c)
                - np.divide(lost[k], d)
                - product[k]
                - rest[k]
            )
        for k in range(size):
            x = counts[start + k]
            if x < rising.size:
                product[k] += rising[x]
            elif rising.size > 0:
                product[k] += log_rising_scaled(float(x), d)
            if nothing_sold and x > 0:
                product[k] = -2.0 * MOST_ODDS
        for k in range(size):
            product[k] = min(product[k], MOST_ODDS)
        exp_inplace(product, work, work_bits, size)
        for k in range(size):
            healthy[start + k] = np.divide(1.0, 1.0 + product[k])


@njit_fast
def _rising(
    start: int, size: int, counts: Int32, cv2: Float32, spread: float, product: Float, rest: Float
) -> None:
    """log product + rest = the sum over k < x of log(1 + k c), c = cv2 + ``spread``.

    The first factors of all entries side by side, those that a small count does not have being one; what the
    few large counts have beyond is multiplied up one by one, and not at all where there are very many.
    """
    for e in range(size):
        c = float(cv2[start + e]) + spread
        x = float(counts[start + e])
        both = 1.0
        for k in range(1, TOGETHER):
            both *= 1.0 + (float(k) if float(k) < x else 0.0) * c
        product[e] = both
    for e in range(size):
        rest[e] = 0.0
        if counts[start + e] > MOST_MULTIPLIED:
            product[e] = 1.0
            rest[e] = log_rising_scaled(float(counts[start + e]), float(cv2[start + e]) + spread)
        elif counts[start + e] > TOGETHER:
            c = float(cv2[start + e]) + spread
            for k in range(TOGETHER, counts[start + e]):
                product[e] *= 1.0 + k * c
                if product[e] > OVERFLOWING:
                    rest[e] += math.log(product[e])
                    product[e] = 1.0
