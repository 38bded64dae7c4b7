"""Intervals by drawing whole clusters again: stores or weeks, since the pairs of one share its people and its
weather."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

LEVEL = 0.9


@dataclass(frozen=True)
class Estimate:
    """A figure and the ends of its 90% interval; NaN where the data cannot tell."""

    value: float
    low: float
    high: float


def times_drawn(clusters: int, draws: int, seed: int = 0) -> FloatArray:
    """How often each cluster is in each of the draws: draws x clusters."""
    if clusters == 0:
        return np.zeros((draws, 0))
    chosen = np.random.default_rng(seed).multinomial(clusters, np.full(clusters, 1 / clusters), draws)
    return chosen.astype(np.float64)


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """NaN where there is nothing to divide by."""
    return np.asarray(np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0))


def interval(drawn: FloatArray) -> tuple[float, float]:
    """The middle 90% of what is a number."""
    known = drawn[np.isfinite(drawn)]
    if known.size == 0:
        return math.nan, math.nan
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def estimate(value: float, drawn: FloatArray) -> Estimate:
    """The figure with the interval of its draws; a figure that is not known has none."""
    low, high = interval(drawn) if math.isfinite(value) else (math.nan, math.nan)
    return Estimate(float(value), low, high)
