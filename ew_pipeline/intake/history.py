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
from scipy.special import gammaln, logit

from ew_pipeline.core.arrays import Int32, Int64
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.intake.panel import Panel, compact, fill_table, pair_rows
from ew_pipeline.method._kernels.level import (
    Units,
    excess_variance,
    fill_window,
    rates_at,
    shrunk_levels,
    sweep_factors,
    week_effects,
    weigh_weeks,
)

FloatArray = npt.NDArray[np.float64]

ROUNDS = 3  # expectation, weights, expectation again: they have settled by then
SWEEPS = 40
LEAST_LEVEL = 0.02
LEAST_TAU2 = 1e-3
# Only to weigh past weeks: that a few records in a hundred are wrong, and then most sales are lost.
SUSPECT_RATE, SUSPECT_ALPHA = 0.05, 0.2
LEAST_WEIGHT = 0.02
INVERSE_SIZES = (0.01, 2.0)  # of the negative binomial
MOST_COUNTS = 10_000  # in the table; larger ones are rare
SMOOTHING = 5.0  # units of expected sales that a store-week or SKU-week must overcome to move


@dataclass(frozen=True, eq=False)
class _Window:
    """Past weeks of pairs, and which of these the week in question has; pairs are in row-major order.

    ``table``: a row per pair, NaN where not observed; its columns from ``first`` to ``end`` are looked at.
    ``shape``: stores and SKUs. ``wanted``: rows.
    """

    store: Int32
    sku: Int32
    table: Units
    first: int
    end: int
    shape: tuple[int, int]
    wanted: Int64


def trailing_mean(frame: pd.DataFrame, week: str, weeks: int = 5) -> FloatArray:
    """Plain mean of the last ``weeks`` weeks for every pair of ``week``; NaN for a pair not seen in them.

    Order and arguments as ``trailing_level``; promotions are counted like any other week.
    """
    past = _window(frame, week, weeks, drop_promotions=False)
    window = past.table[past.wanted, past.first : past.end].astype(np.float64)
    count = np.count_nonzero(~np.isnan(window), axis=1)
    mean = np.full(count.size, np.nan)
    np.divide(np.nansum(window, axis=1), count, out=mean, where=count > 0)
    return _frozen(mean)


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
    table: Units = panel.units
    end = t
    if panel.promo is not None:
        table = np.where(panel.promo[:, first:t], np.float32(np.nan), table[:, first:t])
        first, end = 0, t - first
    stores, store = compact(panel.store, panel.store_ids.size)
    skus, sku = compact(panel.sku, panel.sku_ids.size)
    wanted = np.flatnonzero(panel.observed[:, t])
    window = _Window(store, sku, table, first, end, (stores.size, skus.size), wanted)
    return _level(window, prior_weeks, rank)


def _level(past: _Window, prior_weeks: float | None, rank: int) -> FloatArray:
    cells = np.flatnonzero(~np.isnan(past.table[:, past.first : past.end]).all(axis=1))
    if cells.size == 0:  # every past week was on promotion, or nothing was observed: no pair differs
        return _frozen(np.ones(past.wanted.size))
    n, m = past.shape
    rank, weeks = min(rank, n, m), past.end - past.first
    starts = np.searchsorted(past.store[cells], np.arange(n + 1)).astype(np.int64)
    store, sku = past.store[cells], past.sku[cells]
    units, weight = np.zeros((cells.size, weeks), dtype=past.table.dtype), np.zeros((cells.size, weeks))
    sold, exposure, expected, level = (np.zeros(cells.size) for _ in range(4))
    by_store, by_sku = np.empty((n, weeks)), np.empty((m, weeks))
    fill_window(cells, past.table, past.first, units, weight, sold, exposure)
    for left in reversed(range(ROUNDS)):
        U, V = _low_rank(starts, sku, sold, exposure, (n, m), rank)
        rates_at(store, sku, U, V, LEAST_LEVEL, expected)
        week_effects(starts, sku, units, weight, expected, SMOOTHING, by_store, by_sku)
        excess = excess_variance(starts, sku, units, weight, expected, by_store, by_sku)
        inverse_size = float(np.clip(excess, *INVERSE_SIZES))
        if prior_weeks is not None:
            level = (sold + prior_weeks * expected) / (exposure + prior_weeks)
        else:
            shrunk_levels(sold, exposure, expected, inverse_size, LEAST_TAU2, level)
        if left:
            weigh_weeks(
                starts, sku, units, level, by_store, by_sku, inverse_size, SUSPECT_ALPHA,
                _odds_of_counts(units, inverse_size), LEAST_LEVEL, LEAST_WEIGHT, weight, sold, exposure,
            )  # fmt: skip
    everywhere = np.empty(past.store.size)
    rates_at(past.store, past.sku, U, V, LEAST_LEVEL, everywhere)
    everywhere[cells] = np.maximum(level, LEAST_LEVEL)
    return _frozen(everywhere[past.wanted])


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
    column = label[either] - (at - before.size)  # the week itself is the last
    units = frame["units"].to_numpy(dtype=np.float64)[either]
    single = units.astype(np.float32)
    exact = np.array_equal(single, units)  # sales are: half the memory, and one kind of table
    row, pairs = pair_rows(store_code * len(skus) + sku_code)
    table = np.full((pairs.size, before.size + 1), np.nan, dtype=np.float32 if exact else np.float64)
    repeated = fill_table(row, column, units, table)
    if repeated:
        raise DataError(
            f"{repeated} rows repeat a pair in one week of {before[0]} to {week}.",
            "sum them to one row per store, SKU and week.",
        )
    store, sku = np.divmod(pairs, len(skus))
    return _Window(
        store=store.astype(np.int32),
        sku=sku.astype(np.int32),
        table=table,
        first=0,
        end=before.size,
        shape=(len(stores), len(skus)),
        wanted=np.flatnonzero(~np.isnan(table[:, -1])),
    )


def _codes(column: pd.Series[Any]) -> tuple[Int64, npt.NDArray[np.str_]]:
    """(each row's place among the texts, the texts that occur in ascending order).

    A text is made for every value that occurs, not for every row: ids often come as categories.
    """
    code, values = pd.factorize(column, use_na_sentinel=False)
    written = np.asarray(pd.Index(values).astype("str"), dtype=np.str_)
    texts, place = np.unique(written, return_inverse=True)
    return place[code].astype(np.int64), texts


def _low_rank(
    starts: Int64, sku: Int32, sold: FloatArray, exposure: FloatArray, shape: tuple[int, int], rank: int
) -> tuple[FloatArray, FloatArray]:
    """sold ~ Poisson(exposure * (U V^T)) by multiplicative updates (KL-NMF), from a fixed start."""
    n, m = shape
    mean = max(float(sold.sum() / max(exposure.sum(), 1e-9)), 1e-6)
    # A start that treats no direction like another, and is the same for the same table.
    grid = 1.0 + 0.5 * np.cos(np.outer(np.arange(n) + 1.0, np.arange(rank)) * 2.4)
    U = np.sqrt(mean / rank) * grid
    V = np.full((m, rank), np.sqrt(mean / rank))
    sweep_factors(starts, sku, sold, exposure, U, V, SWEEPS)
    return U, V


def _odds_of_counts(units: Units, inverse_size: float) -> FloatArray:
    """What ``weigh_weeks`` adds for every count. Sales repeat: worked out once for each that may occur."""
    x, size = np.arange(min(float(units.max()), MOST_COUNTS) + 1.0), 1.0 / inverse_size
    combinations = gammaln(x + size) - gammaln(size) - gammaln(x + 1.0)
    return np.asarray(logit(1.0 - SUSPECT_RATE) + combinations - x * np.log(size * SUSPECT_ALPHA))


def _frozen(values: FloatArray) -> FloatArray:
    values.setflags(write=False)
    return values
