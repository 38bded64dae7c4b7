"""What is known of p_A once all else is given: whether there are anomalies at all.

Given M and the rest of theta, log p(x | p_A) is a sum of log(1 - p_A (1 - r)) over the entries, r being the
likelihood of the entry's count as an anomaly over that as a healthy one. So the posterior of p_A given one
draw of the rest is known in full, and its mass next to 0, averaged over draws, estimates what counting draws
of p_A there does, with less chance in it (Rao and Blackwell; Gelfand and Smith 1990). Short chains seldom
get near 0: counted, one healthy week had P(anomalies exist) of 0.99, 0.30, 0.02 and 0.03 in four runs; by
this, 0.50, 0.24, 0.05 and 0.17.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.theta import RATE_CAP, RATE_PENALTY

NEGLIGIBLE_RATE = 0.004
_STEPS = 200  # closer to each other next to 0, where few anomalies make a difference
RATES = RATE_CAP * (np.arange(_STEPS + 1) / _STEPS) ** 2
_NEGLIGIBLE = int(np.argmin(np.abs(RATES - NEGLIGIBLE_RATE))) + 1  # of RATES, up to the limit itself
_BIN = 0.1  # of log r; within a bin only the mean of r counts
_LEAST, _MOST = -12.0, 40.0  # of log r; what lies beyond is as certain


def likelihood_ratios(healthy: Float, prior_healthy: Float, rate: float) -> Float:
    """r of every entry from its f at p_A = ``rate``; ``prior_healthy`` is the 1 - p_A of f's prior, or less
    where stores or SKUs have an anomaly rate of their own, which then counts as given too."""
    odds = (1.0 - healthy) / np.maximum(healthy, 1e-200) * prior_healthy / (1.0 - prior_healthy)
    spared = prior_healthy / (1.0 - rate)
    return np.asarray(odds / (spared + (1.0 - spared) * odds))


def negligible_rate(ratios: Float, tilt: float = 0.0) -> tuple[float, float]:
    """(weight of p_A < NEGLIGIBLE_RATE, whole weight) of one draw of all but p_A.

    Sums of both over draws, the one over the other, are P(p_A < NEGLIGIBLE_RATE | x) under the prior
    exp(-(RATE_PENALTY - ``tilt``) p_A); draws are under the sampler's own, exp(-RATE_PENALTY p_A).
    """
    ratios = np.clip(ratios, np.exp(_LEAST), np.exp(_MOST))
    place = ((np.log(ratios) - _LEAST) / _BIN).astype(np.int64)
    entries = np.bincount(place)
    filled = np.flatnonzero(entries)
    mean = np.bincount(place, ratios)[filled] / entries[filled]
    log_density = np.log1p(np.outer(RATES, mean - 1.0)) @ entries[filled] - RATE_PENALTY * RATES
    density = np.exp(log_density - log_density.max())
    tilted = density * np.exp(tilt * (RATES - RATE_CAP))
    own = np.trapezoid(density, RATES)
    below = np.trapezoid(tilted[:_NEGLIGIBLE], RATES[:_NEGLIGIBLE])
    return float(below / own), float(np.trapezoid(tilted, RATES) / own)
