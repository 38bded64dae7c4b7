"""The compiled passes behind a level give what plain numpy gives, whatever the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, gammaln, logit, xlogy

from ew_pipeline.core.errors import DataError
from ew_pipeline.intake import history
from ew_pipeline.intake.history import LEAST_LEVEL, panel_level, trailing_level
from ew_pipeline.intake.panel import MOST_RUNS, Panel, compact, fill_table, pair_rows
from ew_pipeline.method._kernels.level import weigh_weeks


def plain_level(panel: Panel, t: int, weeks: int, prior_weeks: float | None, rank: int) -> np.ndarray:
    """The level written as a reader of the module would: one array per quantity and row, no passes."""
    known = panel.observed[:, max(0, t - weeks) : t]
    if panel.promo is not None:
        known = known & ~panel.promo[:, max(0, t - weeks) : t]
    pair, week = np.nonzero(known)
    x = panel.units[:, max(0, t - weeks) : t][known].astype(float)
    now = np.flatnonzero(panel.observed[:, t])
    if x.size == 0:
        return np.ones(now.size)
    stores, store = np.unique(panel.store, return_inverse=True)
    skus, sku = np.unique(panel.sku, return_inverse=True)
    rank = min(rank, stores.size, skus.size)
    cells, cell = np.unique(pair, return_inverse=True)
    weight, moved = np.ones(x.size), np.ones(x.size)
    for _ in range(history.ROUNDS):
        exposure, sold = np.bincount(cell, weight * moved), np.bincount(cell, weight * x)
        mean = max(sold.sum() / max(exposure.sum(), 1e-9), 1e-6)
        grid = 1.0 + 0.5 * np.cos(np.outer(np.arange(stores.size) + 1.0, np.arange(rank)) * 2.4)
        U, V = np.sqrt(mean / rank) * grid, np.full((skus.size, rank), np.sqrt(mean / rank))
        S, E = np.zeros((stores.size, skus.size)), np.zeros((stores.size, skus.size))
        S[store[cells], sku[cells]], E[store[cells], sku[cells]] = sold, exposure
        for _ in range(history.SWEEPS):
            U = U * ((S / np.maximum(U @ V.T, 1e-12)) @ V + V.mean(0)) / (E @ V + V.mean(0))
            V = V * ((S / np.maximum(U @ V.T, 1e-12)).T @ U + U.mean(0)) / (E.T @ U + U.mean(0))
        rates = np.maximum(U @ V.T, LEAST_LEVEL)
        expected = rates[store[cells], sku[cells]]
        i, j, T = store[pair], sku[pair], known.shape[1]
        by_store, by_sku = np.ones((stores.size, T)), np.ones((skus.size, T))
        for _ in range(2):
            for moves, line, other, across in ((by_store, i, by_sku, j), (by_sku, j, by_store, i)):
                units, due = np.zeros(moves.shape), np.zeros(moves.shape)
                np.add.at(units, (line, week), weight * x)
                np.add.at(due, (line, week), weight * expected[cell] * other[across, week])
                moves[:] = (units + history.SMOOTHING) / (due + history.SMOOTHING)
        moved = by_store[i, week] * by_sku[j, week]
        mu = expected[cell] * moved
        inverse_size = np.clip(
            np.sum(weight * ((x - mu) ** 2 - mu)) / np.sum(weight * mu**2), *history.INVERSE_SIZES
        )
        own = sold / exposure
        if prior_weeks is None:
            noise = (1.0 / expected + inverse_size) / exposure
            trust = 1.0 / (noise + 0.1) ** 2
            spread = np.sum(trust * ((own / expected - 1.0) ** 2 - noise)) / np.sum(trust)
            keep = max(history.LEAST_TAU2, spread) / (max(history.LEAST_TAU2, spread) + noise)
            level = keep * own + (1.0 - keep) * expected
        else:
            level = (sold + prior_weeks * expected) / (exposure + prior_weeks)
        weight = plain_weight(x, np.maximum(level[cell] * moved, LEAST_LEVEL), inverse_size)
    found = rates[store, sku]
    found[cells] = level
    return np.maximum(found[now], LEAST_LEVEL)


def plain_weight(x, mu, inverse_size) -> np.ndarray:
    """P(healthy), from the two distributions as they are written down."""
    s0, low = 1.0 / inverse_size, history.SUSPECT_ALPHA * mu
    healthy = gammaln(x + s0) - gammaln(s0) - gammaln(x + 1.0)
    healthy += s0 * np.log(s0 / (s0 + mu)) + xlogy(x, mu / (s0 + mu))
    wrong = xlogy(x, low) - (x + 1.0) * np.log1p(low)
    odds = logit(1.0 - history.SUSPECT_RATE) + healthy - wrong
    return np.maximum(expit(odds), history.LEAST_WEIGHT)


@st.composite
def panels(draw) -> Panel:
    """Few stores and SKUs with gaps of all kinds: pairs without a past, SKUs nobody has, promotions."""
    n, m, weeks = draw(st.integers(1, 7)), draw(st.integers(1, 7)), draw(st.integers(2, 17))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pairs = np.flatnonzero(rng.random(n * m) < draw(st.sampled_from([0.5, 1.0])))
    pairs = pairs if pairs.size else np.array([0])
    rate = rng.gamma(1.0, draw(st.sampled_from([0.3, 4.0, 300.0])), (pairs.size, 1))
    units = rng.poisson(rate, (pairs.size, weeks)).astype(np.float32)
    units[rng.random(units.shape) < draw(st.sampled_from([0.0, 0.4]))] = np.nan
    units[0, -1] = 1.0  # a week without a pair has no level
    promo = rng.random(units.shape) < 0.2 if draw(st.booleans()) else None
    return Panel(
        np.array([f"S{k}" for k in range(n)]),
        np.array([f"K{k}" for k in range(m)]),
        (pairs // m).astype(np.int32),
        (pairs % m).astype(np.int32),
        tuple(f"2026-W{w:02d}" for w in range(1, weeks + 1)),
        units,
        promo,
    )


@settings(max_examples=60, deadline=None)
@given(
    panel=panels(),
    weeks=st.sampled_from([3, 8, 13]),
    prior_weeks=st.sampled_from([None, 2.0]),
    rank=st.integers(1, 5),
)
def test_a_level_is_what_plain_numpy_gives(panel, weeks, prior_weeks, rank):
    t = panel.n_weeks - 1
    expected = plain_level(panel, t, weeks, prior_weeks, rank)
    np.testing.assert_allclose(panel_level(panel, t, weeks, prior_weeks, rank), expected, rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(panel=panels(), scale=st.sampled_from([1.0, 1 / 3]))
def test_a_long_table_has_the_level_of_its_panel(panel, scale):
    """Thirds of units, which single precision does not hold, are taken as they are."""
    pair, week = np.nonzero(panel.observed)
    frame = pd.DataFrame(
        {
            "store_id": panel.store_ids[panel.store[pair]],
            "sku_id": panel.sku_ids[panel.sku[pair]],
            "week": np.array(panel.weeks)[week],
            "units": panel.units[pair, week].astype(float) * scale,
        }
    )
    if panel.promo is not None:
        frame["promo"] = panel.promo[pair, week]
    seen = sorted(set(week))  # a table does not know of a week without a row
    if len(seen) < 2:
        return
    whole = Panel(
        panel.store_ids, panel.sku_ids, panel.store, panel.sku, tuple(panel.weeks[k] for k in seen),
        panel.units[:, seen].astype(float) * scale, None if panel.promo is None else panel.promo[:, seen],
    )  # fmt: skip
    now, before = len(seen) - 1, range(max(0, len(seen) - 9), len(seen) - 1)
    used = whole.observed[:, now].copy()
    for k in before:
        used |= whole.observed[:, k] & (True if whole.promo is None else ~whole.promo[:, k])
    expected = plain_level(whole.take(used), now, 8, None, 3)
    got = trailing_level(frame.sample(frac=1.0, random_state=0), whole.weeks[-1])
    np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("largest", [3.0, 20_000.0], ids=["in the table", "beyond it"])
@pytest.mark.parametrize("weeks", [5, 700], ids=["many cells at a time", "one"])
def test_a_week_is_weighed_by_its_probability_of_being_healthy(largest, weeks):
    rng = np.random.default_rng(3)
    store = np.repeat(np.arange(4), 150)
    starts, sku = np.searchsorted(store, np.arange(5)), np.tile(np.arange(150, dtype=np.int32), 4)
    units = np.floor(rng.random((600, weeks)) * (largest + 1.0))
    units[0, 0] = 2.5  # no count: worked out by itself
    known = rng.random(units.shape) < 0.8
    level, inverse_size = rng.gamma(1.0, largest, 600), 0.3
    by_store, by_sku = rng.uniform(0.5, 2.0, (4, weeks)), rng.uniform(0.5, 2.0, (150, weeks))
    weight, sold, exposure = known.astype(float), np.empty(600), np.empty(600)
    weigh_weeks(
        starts, sku, units, level, by_store, by_sku, inverse_size, history.SUSPECT_ALPHA,
        history._odds_of_counts(units, inverse_size), LEAST_LEVEL, history.LEAST_WEIGHT,
        weight, sold, exposure,
    )  # fmt: skip
    moved = by_store[store] * by_sku[sku]
    expected = known * plain_weight(units, np.maximum(level[:, None] * moved, LEAST_LEVEL), inverse_size)
    np.testing.assert_allclose(weight, expected, rtol=1e-9)
    np.testing.assert_allclose(sold, (expected * units).sum(1), rtol=1e-9)
    np.testing.assert_allclose(exposure, (expected * moved).sum(1), rtol=1e-9)


@given(
    runs=st.lists(st.lists(st.integers(0, 40), unique=True).map(sorted), max_size=8),
    shuffled=st.booleans(),
    repeats=st.sampled_from([1, 20]),
)
def test_keys_are_placed_among_those_that_occur(runs, shuffled, repeats):
    key = np.array([k for run in runs for k in run] * repeats, dtype=np.int64)
    if shuffled:
        key = np.random.default_rng(0).permutation(key)
    row, pairs = pair_rows(key)
    expected, place = np.unique(key, return_inverse=True)
    np.testing.assert_array_equal(pairs, expected)
    np.testing.assert_array_equal(row, place)


def test_keys_in_no_order_are_placed_too():
    key = np.arange(4 * MOST_RUNS, dtype=np.int64)[::-1] // 2
    row, pairs = pair_rows(key)
    np.testing.assert_array_equal(pairs[row], key)
    np.testing.assert_array_equal(pairs, np.arange(2 * MOST_RUNS))


def test_a_value_on_another_is_counted():
    table = np.full((2, 3), np.nan, dtype=np.float32)
    row, column = np.array([0, 1, 0], dtype=np.int32), np.array([2, 0, 2])
    assert fill_table(row, column, np.array([1, 2, 3]), table) == 1
    np.testing.assert_array_equal(table, [[np.nan, np.nan, 3], [2, np.nan, np.nan]])


@given(codes=st.lists(st.integers(0, 30)))
def test_codes_are_compacted_as_sorting_would(codes):
    used, place = compact(np.array(codes, dtype=np.int32), 31)
    expected, expected_place = np.unique(np.array(codes, dtype=np.int64), return_inverse=True)
    np.testing.assert_array_equal(used, expected)
    np.testing.assert_array_equal(place, expected_place)


def test_a_long_table_with_a_pair_twice_in_a_week_is_refused():
    frame = pd.DataFrame(
        {"store_id": "S", "sku_id": "K", "week": ["2026-W01", "2026-W01", "2026-W02"], "units": [1, 2, 3]}
    )
    with pytest.raises(DataError, match="1 rows repeat a pair in one week"):
        trailing_level(frame, "2026-W02")
