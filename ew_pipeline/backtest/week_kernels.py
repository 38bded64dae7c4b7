"""Passes over the weeks of every pair, read where they lie in a panel: units are NaN where not observed."""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Bool, Float, Float32, Int64
from ew_pipeline.core.kernels import njit


@njit
def mean_before(units: Float32, pairs: Int64, t: int, weeks: int, mean: Float, seen: Float) -> None:
    """Mean of the last weeks before week ``t`` and how many of them were observed; without any, the mean
    stays as it was given."""
    first = max(0, t - weeks)
    for e in range(pairs.size):
        row, total, known = pairs[e], 0.0, 0
        for k in range(first, t):
            x = units[row, k]
            if x == x:
                total += x
                known += 1
        seen[e] = known
        if known > 0:
            mean[e] = total / known


@njit
def spread_before(
    units: Float32, pairs: Int64, t: int, weeks: int, mean: Float, zeros: Float, variance: Float
) -> None:
    """Share of the last weeks before week ``t`` without a sale, and their variance around ``mean``; 0 where
    none was observed."""
    first = max(0, t - weeks)
    for e in range(pairs.size):
        row, known, nothing, squares = pairs[e], 0, 0, 0.0
        for k in range(first, t):
            x = units[row, k]
            if x == x:
                known += 1
                nothing += x == 0.0
                squares += (x - mean[e]) ** 2
        zeros[e] = nothing / max(known, 1)
        variance[e] = squares / max(known, 1)


@njit
def mean_around(
    units: Float32, t: int, width: int, least: int, week_counts: int, mean: Float, sold_before: Bool
) -> None:
    """Mean of ``width`` weeks on each side of week ``t``, that week itself counted ``week_counts`` times; NaN
    where either side has fewer than ``least``. And whether there was a sale in any week before."""
    for row in range(units.shape[0]):
        total, before, after = 0.0, 0, 0
        for k in range(t - width, t):
            x = units[row, k]
            if x == x:
                total += x
                before += 1
        for k in range(t + 1, t + width + 1):
            x = units[row, k]
            if x == x:
                total += x
                after += 1
        if week_counts > 0 and units[row, t] == units[row, t]:
            total += week_counts * float(units[row, t])
        enough = before >= least and after >= least
        mean[row] = total / max(before + after + week_counts, 1) if enough else np.nan
        sold_before[row] = False
        for k in range(t):
            if units[row, k] > 0.0:
                sold_before[row] = True
                break
