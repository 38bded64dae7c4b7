"""Compiled passes between entries and the table of ``binned.py``."""

from __future__ import annotations

import math

from ew_pipeline.algorithm._numba import njit
from ew_pipeline.algorithm.types import Float, Float32, Int32, Int64

CV2_UNIT = 2.0**-30  # of the integer sums of cv2; whole numbers add up the same in any order


@njit
def _class_of(value: float, edges: Float32) -> int:
    place = 0
    for edge in edges:
        if value >= edge:
            place += 1
    return place


@njit
def _band_of(mean: float, low: float, width: float, n_bands: int) -> int:
    return min(max(int((math.log(mean) - low) / width), 0), n_bands - 1)


@njit
def bin_entries(
    first: int,
    end: int,
    counts: Int32,
    means: Float32,
    cv2: Float32,
    edges: Float32,
    low: float,
    width: float,
    weights: Int64,
    sold: Int64,
    spread: Int64,
) -> None:
    """Add the entries from ``first`` to before ``end`` to the tables."""
    n_bands, last = weights.shape[1], weights.shape[2] - 1
    for e in range(first, end):
        c = _class_of(cv2[e], edges)
        b = _band_of(means[e], low, width, n_bands)
        weights[c, b, min(counts[e], last)] += 1
        sold[c, b] += counts[e]
        spread[c, b] += int(cv2[e] / CV2_UNIT)


@njit
def scale_entries(
    first: int,
    end: int,
    means: Float32,
    cv2: Float32,
    edges: Float32,
    low: float,
    width: float,
    scale: Float,
    out: Float32,
) -> None:
    """out = means times scale[class, band], for the entries from ``first`` to before ``end``."""
    n_bands = scale.shape[1]
    for e in range(first, end):
        out[e] = means[e] * scale[_class_of(cv2[e], edges), _band_of(means[e], low, width, n_bands)]
