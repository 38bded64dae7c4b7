"""The compiled passes over the weeks of every pair say what numpy says of the same windows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.backtest.labels import mean_around, mean_before, spread_before


@st.composite
def sales(draw) -> np.ndarray:
    """Pairs by weeks, with gaps and zeros."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    units = rng.poisson(draw(st.sampled_from([0.4, 20.0])), (30, 17)).astype(np.float32)
    units[rng.random(units.shape) < draw(st.sampled_from([0.0, 0.3, 0.8]))] = np.nan
    return units


@given(units=sales(), t=st.integers(0, 16), weeks=st.sampled_from([1, 5, 26]))
def test_means_and_spreads_are_of_the_weeks_before(units, t, weeks):
    pairs = np.arange(1, 30, 2)
    window = units[pairs, max(0, t - weeks) : t].astype(float)
    known = ~np.isnan(window)
    mean, seen = np.full(pairs.size, 7.0), np.empty(pairs.size)
    mean_before(units, pairs, t, weeks, mean, seen)
    np.testing.assert_array_equal(seen, known.sum(1))
    expected = np.where(seen > 0, np.nansum(window, 1) / np.maximum(seen, 1), 7.0)
    np.testing.assert_array_equal(mean, expected)

    zeros, variance = np.empty(pairs.size), np.empty(pairs.size)
    spread_before(units, pairs, t, weeks, mean, zeros, variance)
    np.testing.assert_array_equal(zeros, (window == 0).sum(1) / np.maximum(seen, 1))
    squares = np.where(known, (window - mean[:, None]) ** 2, 0.0)
    np.testing.assert_allclose(variance, squares.sum(1) / np.maximum(seen, 1), rtol=1e-12)


@pytest.mark.parametrize("week_counts", [0, 2])
@given(units=sales(), t=st.integers(5, 11), least=st.integers(1, 5))
def test_means_of_the_weeks_around(units, t, least, week_counts):
    sides = [units[:, t - 5 : t].astype(float), units[:, t + 1 : t + 6].astype(float)]
    counts = [(~np.isnan(side)).sum(1) for side in sides]
    total = sum(np.nansum(side, 1) for side in sides) + week_counts * np.nan_to_num(units[:, t].astype(float))
    with warnings.catch_warnings(action="ignore"):
        expected = total / (sum(counts) + week_counts)
    expected[(counts[0] < least) | (counts[1] < least)] = np.nan
    mean, sold_before = np.empty(30), np.empty(30, dtype=np.bool_)
    mean_around(units, t, 5, least, week_counts, mean, sold_before)
    np.testing.assert_array_equal(mean, expected)
    np.testing.assert_array_equal(sold_before, (units[:, :t] > 0).any(1))
