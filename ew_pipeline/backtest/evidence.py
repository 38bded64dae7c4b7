"""What speaks for and against each pair of one week, known at the end of it.

``gather`` looks at a panel that ends with the week in question and nowhere else: the pair's own past half a
year back, what its SKU and its store did this week in the whole chain, and the detector's view of the ratio
to the pair's level. ``gather_cross_section`` is the same week without a past.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.labels import mean_before, spread_before
from ew_pipeline.core.errors import DataError
from ew_pipeline.intake.history import panel_level
from ew_pipeline.intake.panel import Panel
from ew_pipeline.method.detector import FEWEST_ENTRIES, EntrywiseDetector
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sales_matrix import SalesMatrix

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

LONGEST_LOOK = 26  # weeks before a week that anything here looks at
LEVEL_WEEKS = 13  # a quarter: shorter is noisy where little is sold (M5), longer sees other seasons
RANKS_WITHOUT_HISTORY = (1, 3, 5)
UNCERTAIN = 0.5  # coefficient of variation of a level that nothing is compared with
LARGE_WEEK = 60_000  # pairs; from here the highest of the ranks costs more time than it is worth


@dataclass(frozen=True, eq=False)
class Evidence:
    """One value per pair observed in the week, in the panel's order.

    Attributes
    ----------
    pairs : rows of the panel.
    store, sku : codes of the panel.
    units : X, sold this week.
    trailing : mean of the last 5 weeks observed; the level where there is none.
    trailing_weeks : how many of them were observed.
    level : the pair's level from history (``panel_level``).
    last, mean_2, mean_10, mean_26 : the last week, and means over so many weeks.
    zero_share : share of the last 10 weeks without a sale.
    spread : log(1 + variance/mean) of the last 10 weeks.
    expected, expected_cv : demand by the detector with history as if the pair had not been seen.
    posterior : its P(anomaly).
    sku_move, store_move : this week's sales of the SKU (store) over the sum of levels; 1 for no movement.
    sku_move_trailing : the same over the sum of trailing means.
    promo, promo_past : on promotion now; share of the last 5 weeks on promotion.
    """

    pairs: IntArray
    store: IntArray
    sku: IntArray
    units: FloatArray
    trailing: FloatArray
    trailing_weeks: FloatArray
    level: FloatArray
    last: FloatArray
    mean_2: FloatArray
    mean_10: FloatArray
    mean_26: FloatArray
    zero_share: FloatArray
    spread: FloatArray
    expected: FloatArray
    expected_cv: FloatArray
    posterior: FloatArray
    sku_move: FloatArray
    sku_move_trailing: FloatArray
    store_move: FloatArray
    promo: FloatArray
    promo_past: FloatArray

    def take(self, rows: IntArray | BoolArray) -> Evidence:
        """Only some of the pairs."""
        return Evidence(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class CrossSection:
    """One value per pair observed in the week, from that week alone.

    Attributes
    ----------
    pairs, sku, units : as in ``Evidence``.
    expected : demand as if the pair had not been seen, averaged over ranks.
    expected_cv2 : squared coefficient of variation: the fits' own, what they disagree on, and the spread of
        pairs around any low rank, which one week cannot tell from noise.
    posterior : P(anomaly) under the mixture, averaged over ranks.
    """

    pairs: IntArray
    sku: IntArray
    units: FloatArray
    expected: FloatArray
    expected_cv2: FloatArray
    posterior: FloatArray

    def take(self, rows: IntArray | BoolArray) -> CrossSection:
        """Only some of the pairs."""
        return CrossSection(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class WeekFit:
    """What takes time in the evidence of a week, one value per observed pair; see ``Evidence``."""

    level: FloatArray
    expected: FloatArray
    expected_cv: FloatArray
    posterior: FloatArray


class WeekFits(Protocol):
    """Somewhere fits of past weeks are kept."""

    def find(self, past: Panel, make: Callable[[Panel], WeekFit]) -> WeekFit:
        """The fit of the last week of ``past``: the one kept for just this panel, or ``make(past)``."""


def gather(past: Panel, fits: WeekFits | None = None) -> Evidence:
    """The evidence of the last week of ``past``, from it and the ``LONGEST_LOOK`` weeks before.

    ``fits``: where to look for the fit before making it.
    """
    if past.n_weeks < 2:
        raise DataError(f"there is no week before {past.weeks[-1]}.", "use the cross-section alone.")
    recent, rows = past.recent(LONGEST_LOOK + 1)
    found = _gather(recent, fit_week(recent) if fits is None else fits.find(recent, fit_week))
    pairs = rows[found.pairs]
    return replace(
        found, pairs=pairs, store=past.store[pairs].astype(np.int64), sku=past.sku[pairs].astype(np.int64)
    )


def fit_week(past: Panel) -> WeekFit:
    """Level and detector of the last week of ``past``."""
    t = past.n_weeks - 1
    level = panel_level(past, t, weeks=LEVEL_WEEKS)
    return WeekFit(level, *_with_history(past, t, level))


def _gather(past: Panel, fit: WeekFit) -> Evidence:
    t = past.n_weeks - 1
    pairs = np.flatnonzero(past.observed[:, t])
    store, sku = past.store[pairs].astype(np.int64), past.sku[pairs].astype(np.int64)
    x = past.units[pairs, t].astype(np.float64)
    level = fit.level
    means = {weeks: _mean(past, pairs, weeks, level) for weeks in (2, 5, 10, LONGEST_LOOK)}
    (trailing, seen), mean_10 = means[5], means[10][0]
    zero_share, variance = np.empty(pairs.size), np.empty(pairs.size)
    spread_before(past.units, pairs, t, 10, mean_10, zero_share, variance)
    before = past.units[pairs, t - 1].astype(np.float64)
    promoted = past.promo
    return Evidence(
        pairs=pairs,
        store=store,
        sku=sku,
        units=x,
        trailing=trailing,
        trailing_weeks=seen,
        level=level,
        last=np.where(np.isnan(before), trailing, before),
        mean_2=means[2][0],
        mean_10=mean_10,
        mean_26=means[LONGEST_LOOK][0],
        zero_share=zero_share,
        spread=np.log1p(variance / (mean_10 + 0.1)),
        expected=fit.expected,
        expected_cv=fit.expected_cv,
        posterior=fit.posterior,
        sku_move=_move(sku, x, level),
        sku_move_trailing=_move(sku, x, trailing),
        store_move=_move(store, x, level),
        promo=np.zeros(pairs.size) if promoted is None else promoted[pairs, t].astype(np.float64),
        promo_past=np.zeros(pairs.size)
        if promoted is None
        else promoted[pairs, max(0, t - 5) : t].mean(axis=1),
    )


def gather_cross_section(past: Panel) -> CrossSection:
    """The last week of ``past`` by itself."""
    t = past.n_weeks - 1
    pairs = np.flatnonzero(past.observed[:, t])
    sales, units = past.sales(t), past.units[pairs, t].astype(np.float64)
    sku = past.sku[pairs].astype(np.int64)
    if _cannot_be_fitted(sales):  # one sells what it sells
        return CrossSection(pairs, sku, units, units, np.full(units.size, UNCERTAIN**2), np.zeros(units.size))
    highest = RANKS_WITHOUT_HISTORY[-1] if sales.n_observed < LARGE_WEEK else RANKS_WITHOUT_HISTORY[1]
    ranks = [r for r in RANKS_WITHOUT_HISTORY if r <= highest and r < min(sales.shape)] or [1]
    fits = [_detector(rank).fit(sales) for rank in ranks]
    mean = np.mean([fit.cavity_sales_ for fit in fits], axis=0)
    square = np.mean([fit.cavity_sales_**2 * (1.0 + fit.cavity_cv_**2) for fit in fits], axis=0)
    spread = float(np.mean([1.0 / fit.dispersion_size_ for fit in fits]))
    return CrossSection(
        pairs=pairs,
        sku=sku,
        units=units,
        expected=mean,
        expected_cv2=np.maximum(square / np.maximum(mean, 1e-9) ** 2 - 1.0, 0.0) + spread,
        posterior=np.mean([fit.posterior_ for fit in fits], axis=0),
    )


def _detector(rank: int) -> EntrywiseDetector:
    # Settled choices keep a backtest of fifty weeks within minutes; on real sales the negative binomial
    # always wins against Poisson, and theta, which the family decides about, is not what is priced here.
    return EntrywiseDetector(
        "variational", rank=rank, noise="negative_binomial", anomaly="exponential", random_state=0
    )


def _with_history(past: Panel, t: int, level: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    sales = past.sales(t)
    if _cannot_be_fitted(sales):
        return level, np.full(level.size, UNCERTAIN), np.zeros(level.size)
    fit: DetectorFit = _detector(1).fit(sales, level=level)
    return fit.cavity_sales_, fit.cavity_cv_, fit.posterior_


def _cannot_be_fitted(sales: SalesMatrix) -> bool:
    """Whether the detector would refuse the week: there is nothing to compare a pair with."""
    return sales.n_observed < FEWEST_ENTRIES or not sales.counts.any()


def _mean(past: Panel, pairs: IntArray, weeks: int, otherwise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean of the last weeks before the current one, and how many of them were observed."""
    mean, seen = otherwise.copy(), np.empty(pairs.size)
    mean_before(past.units, pairs, past.n_weeks - 1, weeks, mean, seen)
    return mean, seen


def _move(axis: IntArray, units: FloatArray, due: FloatArray) -> FloatArray:
    """Sales over what was due, per store or SKU; one unit of each keeps a small one near 1."""
    size = int(axis.max()) + 1
    sold, expected = np.bincount(axis, units, minlength=size), np.bincount(axis, due, minlength=size)
    return np.asarray(((sold + 1.0) / (expected + 1.0))[axis])
