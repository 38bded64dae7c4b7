"""Compiled passes between entries and the table of ``binned.py``."""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int32, Int64
from ew_pipeline.core.kernels import njit, njit_fast
from ew_pipeline.method._kernels.fast_math import log_into

CV2_UNIT = 2.0**-30  # of the integer sums of cv2; whole numbers add up the same in any order
CHUNK = 1024  # entries that are placed at a time, so that their working space stays in the nearest cache


@njit_fast
def _place(
    first: int,
    size: int,
    bits: Int32,
    cv2: Float32,
    edges: Float32,
    low: float,
    width: float,
    n_bands: int,
    mantissa_bits: Int32,
    mantissa: Float32,
    logs: Float32,
    place: Int32,
) -> None:
    """class * n_bands + band of some entries; ``bits``: their means, read as integers.

    The logarithm is good to 3e-6 of bands that are 0.02 wide: an entry at an edge may change sides, but it is
    on the same side wherever it is asked for.
    """
    log_into(bits[first : first + size], mantissa_bits, mantissa, logs, size)
    start, per_band, last = np.float32(low), np.float32(1.0 / width), np.int32(n_bands - 1)
    for c in range(size):
        place[c] = min(max(np.int32((logs[c] - start) * per_band), np.int32(0)), last)
    own = cv2[first : first + size]
    bands = np.int32(n_bands)
    for edge in edges:
        for c in range(size):
            place[c] += bands if own[c] >= edge else np.int32(0)


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
    n_bands, n_counts = weights.shape[1:]
    last = np.int32(n_counts - 1)
    # by place: taken apart into class and band, each entry would cost a division
    flat_weights, flat_sold, flat_spread = weights.ravel(), sold.ravel(), spread.ravel()
    per_unit = np.float32(1.0 / CV2_UNIT)
    bits = means.view(np.int32)
    mantissa_bits, place = np.empty(CHUNK, dtype=np.int32), np.empty(CHUNK, dtype=np.int32)
    mantissa, logs = mantissa_bits.view(np.float32), np.empty(CHUNK, dtype=np.float32)
    for start in range(first, end, CHUNK):
        size = min(CHUNK, end - start)
        _place(start, size, bits, cv2, edges, low, width, n_bands, mantissa_bits, mantissa, logs, place)
        for k in range(size):
            e = np.uint64(start + k)
            at, x = np.uint64(place[k]), counts[e]
            flat_weights[at * np.uint64(n_counts) + np.uint64(min(x, last))] += 1
            flat_sold[at] += x
            flat_spread[at] += np.int64(cv2[e] * per_unit)


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
    flat = scale.ravel()
    bits = means.view(np.int32)
    mantissa_bits, place = np.empty(CHUNK, dtype=np.int32), np.empty(CHUNK, dtype=np.int32)
    mantissa, logs = mantissa_bits.view(np.float32), np.empty(CHUNK, dtype=np.float32)
    for start in range(first, end, CHUNK):
        size = min(CHUNK, end - start)
        _place(start, size, bits, cv2, edges, low, width, n_bands, mantissa_bits, mantissa, logs, place)
        for k in range(size):
            out[start + k] = means[start + k] * flat[place[k]]
