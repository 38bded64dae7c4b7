"""Many entries as few: equal counts with nearly equal rates, and how many entries each stands for.

The likelihood of theta is a sum over entries of a smooth function of (count, rate). Past a hundred
thousand entries, one term per count and narrow band of rates gives the same theta to about 1e-4 and the
cost no longer grows with the data.
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.kernels import njit

WORTHWHILE = 100_000  # entries above which grouping pays
COUNTS = 256  # larger counts are rare and stay as they are
BANDS = 4096  # at most
BAND_WIDTH = 0.01  # of log rate


def group_entries(counts: Float, rates: Float) -> tuple[Float, Float, Float]:
    """(counts, rates, weights) with the same sum of weights; each rate is the mean of its group.

    Counts must be whole. A rate of zero or below is its own group.
    """
    positive = rates[rates > 0.0]
    low, high = (math.log(positive.min()), math.log(positive.max())) if positive.size else (0.0, 0.0)
    width = max(BAND_WIDTH, (high - low) / (BANDS - 2))
    n_bands = int((high - low) / width) + 2
    weight = np.zeros((COUNTS, n_bands))
    total = np.zeros((COUNTS, n_bands))
    _accumulate(counts, rates, low, width, weight, total)
    x, band = np.nonzero(weight)
    weights = weight[x, band]
    large = counts >= COUNTS
    return (
        np.concatenate([x.astype(np.float64), counts[large]]),
        np.concatenate([total[x, band] / weights, rates[large]]),
        np.concatenate([weights, np.ones(np.count_nonzero(large))]),
    )


@njit
def _accumulate(counts: Float, rates: Float, low: float, width: float, weight: Float, total: Float) -> None:
    """Band 0 holds the rates that are not positive."""
    last = weight.shape[1] - 1
    for e in range(counts.size):
        if counts[e] >= weight.shape[0]:
            continue
        band = 0
        if rates[e] > 0.0:
            band = 1 + min(int((math.log(rates[e]) - low) / width), last - 1)
        x = int(counts[e])
        weight[x, band] += 1.0
        total[x, band] += max(rates[e], 0.0)
