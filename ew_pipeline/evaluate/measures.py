"""How a policy did on weeks whose labels are in: costs, ranking, calibration, by velocity.

Costs are ratios to never flagging (Ignore). ``cost_ratio`` is exact over uniform costs (``priced``), pooled
over weeks; its interval resamples whole weeks, since pairs of one week share its weather.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ew_pipeline.evaluate.metrics import auc, average_precision, calibration_table, true_positive_rate_at
from ew_pipeline.evaluate.priced import NOTEBOOK_COSTS, cost_ratio, ignore_cost, priced_cost

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

RATES = (0.01, 0.05, 0.1)
TOP_PER_STORE = 5
BANDS = (0.0, 1.0, 5.0, 20.0, np.inf)
RESAMPLES = 400
DRAWN_CELLS = 10_000_000  # pairs times cost draws


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The labelled pairs of all evaluated weeks, one after the other.

    Attributes
    ----------
    anomaly : labels.
    week, store : codes.
    velocity : units a week the pair used to sell, known beforehand.
    """

    anomaly: BoolArray
    week: IntArray
    store: IntArray
    velocity: FloatArray


@dataclass(frozen=True)
class Band:
    """The measures on pairs that used to sell from ``low`` to below ``high`` units a week."""

    low: float
    high: float
    pairs: int
    anomaly_rate: float
    cost_ratio: float
    auc: float


@dataclass(frozen=True)
class Measures:
    """One policy. Ratios are to Ignore, lower is better; below 1 pays for itself.

    Attributes
    ----------
    cost_ratio : exact over c0, c1 ~ U; ``cost_ratio_interval`` : 90%, over weeks.
    cost_ratio_drawn : mean over drawn costs; ``cost_ratio_drawn_interval`` : 90% over the draws.
    cost_ratio_notebook : exact for the notebook's costs, false alarm U[0, 10], missed U[0, 500].
    cost_per_pair : with costs U[0, 500].
    regret_to_constant : cost_ratio minus that of the best constant probability in hindsight.
    auc, average_precision : ranking within each week, the mean over weeks weighted by their anomalies: checks
        are chosen within a week. ``auc_pooled`` and ``average_precision_pooled`` rank across weeks too.
    tpr_at : the true-positive rate by false-positive rate, pooled.
    mean_predicted, anomaly_rate, calibration_gap : does the probability mean what it says.
    lift_top_k : anomalies among the top 5 of each store and week, over a random five.
    flagged_at_even_costs : share with probability >= 1/2.
    """

    cost_ratio: float
    auc: float
    average_precision: float
    auc_pooled: float
    average_precision_pooled: float
    cost_ratio_interval: tuple[float, float]
    cost_ratio_drawn: float
    cost_ratio_drawn_interval: tuple[float, float]
    cost_ratio_notebook: float
    cost_per_pair: float
    regret_to_constant: float
    tpr_at: Mapping[str, float]
    mean_predicted: float
    anomaly_rate: float
    calibration_gap: float
    lift_top_k: float
    flagged_at_even_costs: float
    cost_ratio_by_week: tuple[float, ...]
    bands: tuple[Band, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(probability: FloatArray, order: FloatArray, outcomes: Outcomes) -> Measures:
    """All measures of one policy; ``order`` ranks the pairs, higher is more suspicious."""
    y = outcomes.anomaly
    p = np.asarray(probability, dtype=np.float64)
    spent, ignored = priced_cost(p, y), ignore_cost(y)
    by_week = _by_week(spent, outcomes.week), _by_week(ignored, outcomes.week)
    drawn = _drawn_ratios(p, y)
    table = calibration_table(p, y)
    return Measures(
        cost_ratio=cost_ratio(p, y),
        auc=_within_weeks(auc, order, outcomes),
        average_precision=_within_weeks(average_precision, order, outcomes),
        auc_pooled=auc(order, y),
        average_precision_pooled=average_precision(order, y),
        cost_ratio_interval=_interval_over_weeks(*by_week),
        cost_ratio_drawn=float(drawn.mean()),
        cost_ratio_drawn_interval=_quantiles(drawn),
        cost_ratio_notebook=cost_ratio(p, y, NOTEBOOK_COSTS),
        cost_per_pair=float(spent.mean()),
        regret_to_constant=cost_ratio(p, y) - cost_ratio(np.full(y.size, y.mean()), y),
        tpr_at={f"{rate:g}": true_positive_rate_at(rate, order, y) for rate in RATES},
        mean_predicted=float(p.mean()),
        anomaly_rate=float(y.mean()),
        calibration_gap=table.largest_gap,
        lift_top_k=lift_in_top(order, outcomes, TOP_PER_STORE),
        flagged_at_even_costs=float((p >= 0.5).mean()),
        cost_ratio_by_week=tuple(float(r) for r in _divided(*by_week)),
        bands=_bands(p, order, outcomes),
    )


def lift_in_top(order: FloatArray, outcomes: Outcomes, top: int) -> float:
    """Share of anomalies among the ``top`` of each store in each week, over the share among all pairs."""
    group = outcomes.week * (int(outcomes.store.max()) + 1) + outcomes.store
    # Ties by a hash of the position: the order in the table must not decide.
    tie = (np.arange(order.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    by = np.lexsort((tie, -order, group))
    starts = np.flatnonzero(np.r_[True, np.diff(group[by]) != 0])
    place = np.arange(order.size) - np.repeat(starts, np.diff(np.r_[starts, order.size]))
    rate = outcomes.anomaly.mean()
    return float(outcomes.anomaly[by][place < top].mean() / rate) if rate > 0 else float("nan")


def _bands(probability: FloatArray, order: FloatArray, outcomes: Outcomes) -> tuple[Band, ...]:
    found = []
    for low, high in pairwise(BANDS):
        inside = (outcomes.velocity >= low) & (outcomes.velocity < high)
        if inside.any():
            y = outcomes.anomaly[inside]
            found.append(
                Band(
                    low,
                    high,
                    int(inside.sum()),
                    float(y.mean()),
                    cost_ratio(probability[inside], y),
                    auc(order[inside], y),
                )
            )
    return tuple(found)


def _within_weeks(
    ranking: Callable[[FloatArray, BoolArray], float], order: FloatArray, outcomes: Outcomes
) -> float:
    values, weights = [], []
    for week in range(int(outcomes.week.max()) + 1):
        inside = outcomes.week == week
        value = ranking(order[inside], outcomes.anomaly[inside])
        if np.isfinite(value):
            values.append(value)
            weights.append(float(outcomes.anomaly[inside].sum()))
    return float(np.average(values, weights=weights)) if values else float("nan")


def _by_week(cost: FloatArray, week: IntArray) -> FloatArray:
    return np.bincount(week, cost).astype(np.float64)


def _divided(spent: FloatArray, ignored: FloatArray) -> FloatArray:
    return np.asarray(np.divide(spent, ignored, out=np.full(spent.size, np.nan), where=ignored > 0))


def _interval_over_weeks(spent: FloatArray, ignored: FloatArray) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, spent.size, (RESAMPLES, spent.size))
    return _quantiles(_divided(spent[chosen].sum(axis=1), ignored[chosen].sum(axis=1)))


def _drawn_ratios(p: FloatArray, y: BoolArray) -> FloatArray:
    rng = np.random.default_rng(0)
    draws = int(np.clip(DRAWN_CELLS // y.size, 5, 200))
    spent, ignored = np.empty(draws), np.empty(draws)
    for draw in range(draws):
        c0, c1 = rng.random(y.size), rng.random(y.size)
        flagged = p * c1 >= (1.0 - p) * c0
        spent[draw] = np.where(flagged, np.where(y, 0.0, c0), np.where(y, c1, 0.0)).sum()
        ignored[draw] = c1[y].sum()
    # Over the mean of Ignore's cost: a ratio within each draw would be biased where anomalies are few.
    return spent / ignored.mean() if y.any() else np.full(draws, np.nan)


def _quantiles(values: FloatArray) -> tuple[float, float]:
    kept = values[np.isfinite(values)]
    if kept.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(kept, (0.05, 0.95))
    return float(low), float(high)
