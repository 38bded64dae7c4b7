"""What a pair used to sell: its level from past weeks alone, for ``EntrywiseDetector.fit(sales, level=…)``.

The mean of a pair's last weeks is noisy where little is sold, and too low where the record has been wrong
for a while. So

1. a store-by-SKU expectation e of low rank is fitted to the sums of the window;
2. a week that looks like an anomaly counts less, by its probability of being healthy;
3. the pair's mean is drawn towards e as far as the data say (empirical Bayes): with tau² the spread of the
   pairs around e and v the variance of the pair's mean, both relative, it keeps tau²/(tau² + v).

Weeks on promotion are left out, and what moves a whole store or SKU from one week to the next is taken out
of the weeks before they are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit, gammaln, logit, xlogy

from ew_pipeline.data._level_kernels import sweep_factors
from ew_pipeline.data.panel import Panel
from ew_pipeline.errors import DataError, UsageError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ROUNDS = 3  # expectation, weights, expectation again: they have settled by then
SWEEPS = 40
LEAST_LEVEL = 0.02
LEAST_TAU2 = 1e-3
# Only to weigh past weeks: that a few records in a hundred are wrong, and then most sales are lost.
SUSPECT_RATE, SUSPECT_ALPHA = 0.05, 0.2
LEAST_WEIGHT = 0.02
SMOOTHING = 5.0  # units of expected sales that a store-week or SKU-week must overcome to move


@dataclass(frozen=True, eq=False)
class _Window:
    """Past rows as codes, and the pairs of the week in question in row-major order."""

    store: IntArray
    sku: IntArray
    week: IntArray
    units: FloatArray
    shape: tuple[int, int, int]
    wanted_store: IntArray
    wanted_sku: IntArray


def trailing_mean(frame: pd.DataFrame, week: str, weeks: int = 5) -> FloatArray:
    """Plain mean of the last ``weeks`` weeks for every pair of ``week``; NaN for a pair not seen in them.

    Order and arguments as ``trailing_level``; promotions are counted like any other week.
    """
    past = _window(frame, week, weeks, drop_promotions=False)
    pair, wanted = _pairs(past)
    count = np.bincount(pair, minlength=past.shape[0] * past.shape[1])
    total = np.bincount(pair, past.units, minlength=count.size)
    mean = np.full(count.size, np.nan)
    np.divide(total, count, out=mean, where=count > 0)
    return _frozen(mean[wanted])


def trailing_level(
    frame: pd.DataFrame, week: str, weeks: int = 8, prior_weeks: float | None = None, rank: int = 3
) -> FloatArray:
    """The level of every pair of ``week``, from the weeks before it.

    Parameters
    ----------
    frame : long sales: ``store_id``, ``sku_id``, ``week``, ``units`` and optionally ``promo``.
    week : as written in the table; weeks are ordered as text, which suits ISO weeks and dates.
    weeks : how many of the weeks before it are looked at.
    prior_weeks : how many weeks of its own the expectation is worth; None lets the data say.
    rank : of the store-by-SKU expectation.

    Returns
    -------
    Positive numbers in the order of ``SalesMatrix.from_long(frame, week)``. Only ratios matter to the
    detector, which finds the movement of this week's stores and SKUs by itself. A pair without a past has
    its expectation, a new SKU the mean over all of them.
    """
    if prior_weeks is not None and not prior_weeks > 0:
        raise UsageError(f"prior_weeks is {prior_weeks}; it must be positive.", "leave it out, or try 2.")
    if rank < 1:
        raise UsageError(f"rank is {rank}; it must be 1 or more.")
    return _level(_window(frame, week, weeks, drop_promotions=True), prior_weeks, rank)


def panel_level(
    panel: Panel, t: int, weeks: int = 8, prior_weeks: float | None = None, rank: int = 3
) -> FloatArray:
    """``trailing_level`` of the pairs observed in week ``t`` of a panel, in the panel's order."""
    if t < 1:
        raise DataError(f"the panel has no week before {panel.weeks[t]}.", "fit without a level.")
    first = max(0, t - weeks)
    kept = panel.observed[:, first:t].copy()
    if panel.promo is not None:
        kept &= ~panel.promo[:, first:t]
    row, week = np.nonzero(kept)
    now = np.flatnonzero(panel.observed[:, t])
    stores, store = np.unique(panel.store, return_inverse=True)
    skus, sku = np.unique(panel.sku, return_inverse=True)
    window = _Window(
        store=store[row].astype(np.int64),
        sku=sku[row].astype(np.int64),
        week=week.astype(np.int64),
        units=panel.units[:, first:t][kept].astype(np.float64),
        shape=(stores.size, skus.size, t - first),
        wanted_store=store[now].astype(np.int64),
        wanted_sku=sku[now].astype(np.int64),
    )
    return _level(window, prior_weeks, rank)


def _level(past: _Window, prior_weeks: float | None, rank: int) -> FloatArray:
    code, wanted = _pairs(past)
    if code.size == 0:  # every past week was on promotion, or nothing was observed: no pair differs
        return _frozen(np.ones(wanted.size))
    cells, pair = np.unique(code, return_inverse=True)
    rank = min(rank, past.shape[0], past.shape[1])
    weight, effect = np.ones(past.units.size), np.ones(past.units.size)
    for _ in range(ROUNDS):
        exposure = np.bincount(pair, weight * effect).astype(np.float64)
        sold = np.bincount(pair, weight * past.units).astype(np.float64)
        U, V = _low_rank(cells, sold, exposure, past.shape, rank)
        expected = _rates(U, V, cells, past.shape)
        effect = _week_effects(past, weight, expected[pair])
        inverse_size = _dispersion(past.units, expected[pair] * effect, weight)
        level = _shrunk(sold, exposure, expected, inverse_size, prior_weeks)
        weight = _healthy(past.units, level[pair] * effect, inverse_size)
    position = np.minimum(np.searchsorted(cells, wanted), cells.size - 1)
    seen = cells[position] == wanted
    return _frozen(np.maximum(np.where(seen, level[position], _rates(U, V, wanted, past.shape)), LEAST_LEVEL))


def _window(frame: pd.DataFrame, week: str, weeks: int, *, drop_promotions: bool) -> _Window:
    if weeks < 1:
        raise UsageError(f"weeks is {weeks}; it must be 1 or more.")
    label, labels = _codes(frame["week"])
    if week not in labels:
        raise DataError(f"no row is of week {week}.", f"the table ends with {labels[-1:]}; choose from it.")
    before = labels[labels < week][-weeks:]
    if before.size == 0:
        raise DataError(f"the table has no week before {week}.", "fit without a level, or add earlier sales.")
    at = int(np.searchsorted(labels, week))
    kept = (label >= at - before.size) & (label < at)
    if drop_promotions and "promo" in frame:
        kept = kept & ~frame["promo"].to_numpy(dtype=bool)
    now = label == at
    either = kept | now
    store_code, stores = _codes(frame["store_id"][either])
    sku_code, skus = _codes(frame["sku_id"][either])
    past, wanted = kept[either], now[either]
    order = np.lexsort((sku_code[wanted], store_code[wanted]))
    return _Window(
        store=store_code[past],
        sku=sku_code[past],
        week=label[kept] - (at - before.size),
        units=frame["units"].to_numpy(dtype=np.float64)[kept],
        shape=(len(stores), len(skus), before.size),
        wanted_store=store_code[wanted][order],
        wanted_sku=sku_code[wanted][order],
    )


def _codes(column: pd.Series[Any]) -> tuple[IntArray, npt.NDArray[np.str_]]:
    """(each row's place among the texts, the texts that occur in ascending order).

    A text is made for every value that occurs, not for every row: ids often come as categories.
    """
    code, values = pd.factorize(column, use_na_sentinel=False)
    written = np.asarray(pd.Index(values).astype("str"), dtype=np.str_)
    texts, place = np.unique(written, return_inverse=True)
    return place[code].astype(np.int64), texts


def _pairs(past: _Window) -> tuple[IntArray, IntArray]:
    m = past.shape[1]
    return past.store * m + past.sku, past.wanted_store * m + past.wanted_sku


def _low_rank(
    cells: IntArray, sold: FloatArray, exposure: FloatArray, shape: tuple[int, int, int], rank: int
) -> tuple[FloatArray, FloatArray]:
    """sold ~ Poisson(exposure * (U V^T)) by multiplicative updates (KL-NMF), from a fixed start."""
    n, m, _ = shape
    mean = max(float(sold.sum() / max(exposure.sum(), 1e-9)), 1e-6)
    # A start that treats no direction like another, and is the same for the same table.
    grid = 1.0 + 0.5 * np.cos(np.outer(np.arange(n) + 1.0, np.arange(rank)) * 2.4)
    U = np.sqrt(mean / rank) * grid
    V = np.full((m, rank), np.sqrt(mean / rank))
    sweep_factors(cells // m, cells % m, sold, exposure, U, V, SWEEPS)
    return U, V


def _rates(U: FloatArray, V: FloatArray, cells: IntArray, shape: tuple[int, int, int]) -> FloatArray:
    m = shape[1]
    return np.asarray(np.maximum(np.einsum("er,er->e", U[cells // m], V[cells % m]), LEAST_LEVEL))


def _week_effects(past: _Window, weight: FloatArray, expected: FloatArray) -> FloatArray:
    """Per row: how its store and its SKU moved in its week, 1 for no movement."""
    n, m, T = past.shape
    store_week, sku_week = past.store * T + past.week, past.sku * T + past.week
    by_store, by_sku = np.ones(n * T), np.ones(m * T)
    sold_store = np.bincount(store_week, weight * past.units, minlength=n * T)
    sold_sku = np.bincount(sku_week, weight * past.units, minlength=m * T)
    for _ in range(2):
        due = np.bincount(store_week, weight * expected * by_sku[sku_week], minlength=n * T)
        by_store = (sold_store + SMOOTHING) / (due + SMOOTHING)
        due = np.bincount(sku_week, weight * expected * by_store[store_week], minlength=m * T)
        by_sku = (sold_sku + SMOOTHING) / (due + SMOOTHING)
    return np.asarray(by_store[store_week] * by_sku[sku_week])


def _dispersion(units: FloatArray, mean: FloatArray, weight: FloatArray) -> float:
    """1/s0 of a negative binomial by moments: Var = mean + mean²/s0."""
    excess = float(np.sum(weight * ((units - mean) ** 2 - mean)) / np.sum(weight * mean**2))
    return float(np.clip(excess, 0.01, 2.0))


def _shrunk(
    sold: FloatArray,
    exposure: FloatArray,
    expected: FloatArray,
    inverse_size: float,
    prior_weeks: float | None,
) -> FloatArray:
    if prior_weeks is not None:
        return np.asarray((sold + prior_weeks * expected) / (exposure + prior_weeks))
    seen = np.maximum(exposure, 1e-9)
    mean = sold / seen
    noise = (1.0 / expected + inverse_size) / seen
    # Pairs whose mean is noisy say little about the spread of the true ones.
    trust = 1.0 / (noise + 0.1) ** 2
    spread = (mean / expected - 1.0) ** 2 - noise
    tau2 = max(LEAST_TAU2, float(np.sum(trust * spread) / np.sum(trust)))
    keep = tau2 / (tau2 + noise)
    return np.asarray(keep * mean + (1.0 - keep) * expected)


def _healthy(units: FloatArray, mean: FloatArray, inverse_size: float) -> FloatArray:
    """P(healthy) of a pair's week: negative binomial around its level against exponential onset."""
    mu, s0 = np.maximum(mean, LEAST_LEVEL), 1.0 / inverse_size
    healthy = (
        _log_gamma(units, s0)
        - gammaln(s0)
        - _log_gamma(units, 1.0)
        - s0 * np.log1p(mu / s0)
        + xlogy(units, mu / (s0 + mu))
    )
    low = SUSPECT_ALPHA * mu
    wrong = xlogy(units, low) - (units + 1.0) * np.log1p(low)
    return np.maximum(expit(logit(1.0 - SUSPECT_RATE) + healthy - wrong), LEAST_WEIGHT)


def _log_gamma(units: FloatArray, added: float) -> FloatArray:
    """log Gamma(units + added). Sales repeat: worked out once for each number that may occur."""
    whole = units.astype(np.int64)
    most = int(whole.max(initial=0))
    if most > units.size or whole.min(initial=0) < 0 or not np.array_equal(whole, units):
        return np.asarray(gammaln(units + added))
    return np.asarray(gammaln(np.arange(most + 1) + added))[whole]


def _frozen(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values
