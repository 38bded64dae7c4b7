"""The expectation of low rank behind a pair's level: many passes over the same cells, so compiled."""

from __future__ import annotations

import numpy as np

from ew_pipeline.algorithm._numba import njit
from ew_pipeline.algorithm.types import Float, Int64

LEAST_RATE = 1e-12


@njit
def sweep_factors(
    store: Int64, sku: Int64, sold: Float, exposure: Float, U: Float, V: Float, sweeps: int
) -> None:
    """sold ~ Poisson(exposure * (U V^T)) by multiplicative updates of U, then V, in place.

    One mean observation is added to every row and column, so that one without a past has the mean.
    """
    for _ in range(sweeps):
        _update(store, sku, sold, exposure, U, V)
        _update(sku, store, sold, exposure, V, U)


@njit
def _update(line: Int64, other: Int64, sold: Float, exposure: Float, moved: Float, fixed: Float) -> None:
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
