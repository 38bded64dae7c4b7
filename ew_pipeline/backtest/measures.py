"""How a policy did on weeks whose labels are in: costs, ranking, calibration, by velocity and segment.

Costs are ratios to never flagging (Ignore). ``cost_ratio`` is exact over uniform costs (``priced``), pooled
over weeks. Its interval draws whole weeks again, since pairs of one week share its weather; a single week is
drawn again by stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.metrics import auc, average_precision, calibration_table, true_positive_rate_at
from ew_pipeline.backtest.parts import Band, Outcomes, Segment, by_band, by_segment, lift_in_top
from ew_pipeline.backtest.priced import (
    COSTS,
    PAPER_COSTS,
    UniformCosts,
    cost_ratio,
    ignore_cost,
    priced_cost,
)
from ew_pipeline.core.resample import interval, ratio, times_drawn

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
Ends = tuple[float, float]

RATES = (0.01, 0.05, 0.1)
TOP_PER_STORE = 5
TOPS = (1, 2, TOP_PER_STORE, 10, 20)
RESAMPLES = 400


@dataclass(frozen=True)
class CalibrationPoint:
    """Pairs of about the same probability: its mean, and the share that were anomalies."""

    predicted: float
    realised: float
    pairs: int


@dataclass(frozen=True)
class Measures:
    """One policy. Ratios are to Ignore, lower is better; below 1 pays for itself.

    Attributes
    ----------
    cost_ratio : exact over the uniform costs asked for; ``cost_ratio_interval`` : 90%, over weeks, or over
        stores when there is one week.
    cost_ratio_exact : the same for each cost law by name: the paper's text, the authors' notebook.
    regret_to_constant : cost_ratio minus that of the best constant probability in hindsight.
    auc, average_precision : ranking within each week, the mean over weeks weighted by their anomalies: checks
        are chosen within a week.
    tpr_at : the true-positive rate by false-positive rate, pooled.
    mean_predicted, anomaly_rate : do they agree on average.
    calibration_gap, calibration : the largest gap between predicted and realised over deciles; the curve, in
        ten bins of equal width.
    lift_top_k : anomalies among the top 5 of each store and week, over a random five; ``lift_at`` : by k.
    cost_ratio_by_week, cost_ratio_by_week_interval : each week alone; its interval is over stores.
    bands, segments : by what the pair used to sell; by the column that splits the chain.
    """

    cost_ratio: float
    auc: float
    average_precision: float
    cost_ratio_interval: Ends
    cost_ratio_exact: Mapping[str, float]
    regret_to_constant: float
    tpr_at: Mapping[str, float]
    mean_predicted: float
    anomaly_rate: float
    calibration_gap: float
    calibration: tuple[CalibrationPoint, ...]
    lift_top_k: float
    lift_at: Mapping[str, float]
    cost_ratio_by_week: tuple[float, ...]
    cost_ratio_by_week_interval: tuple[Ends, ...]
    bands: tuple[Band, ...]
    segments: tuple[Segment, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    probability: FloatArray, order: FloatArray, outcomes: Outcomes, costs: UniformCosts = PAPER_COSTS
) -> Measures:
    """All measures of one policy; ``order`` ranks the pairs, higher is more suspicious."""
    y = outcomes.anomaly
    p = np.asarray(probability, dtype=np.float64)
    spent, ignored = priced_cost(p, y, costs), ignore_cost(y, costs)
    several = bool(outcomes.week.max() > 0)
    cluster = outcomes.week if several else outcomes.store
    times = times_drawn(int(cluster.max()) + 1, RESAMPLES)
    curve = calibration_table(p, y, by="width")
    lift = lift_in_top(order, outcomes, TOPS)
    return Measures(
        cost_ratio=cost_ratio(p, y, costs),
        auc=_within_weeks(auc, order, outcomes),
        average_precision=_within_weeks(average_precision, order, outcomes),
        cost_ratio_interval=interval(ratio(times @ _sums(spent, cluster), times @ _sums(ignored, cluster))),
        cost_ratio_exact={name: cost_ratio(p, y, law) for name, law in COSTS.items()},
        regret_to_constant=cost_ratio(p, y, costs) - cost_ratio(np.full(y.size, y.mean()), y, costs),
        tpr_at={f"{rate:g}": true_positive_rate_at(rate, order, y) for rate in RATES},
        mean_predicted=float(p.mean()),
        anomaly_rate=float(y.mean()),
        calibration_gap=calibration_table(p, y).largest_gap,
        calibration=tuple(
            CalibrationPoint(float(predicted), float(realised), int(count))
            for predicted, realised, count in zip(
                curve.mean_predicted, curve.realised_share, curve.count, strict=True
            )
        ),
        lift_top_k=lift[TOP_PER_STORE],
        lift_at={str(top): value for top, value in lift.items()},
        cost_ratio_by_week=tuple(
            float(r) for r in ratio(_sums(spent, outcomes.week), _sums(ignored, outcomes.week))
        ),
        cost_ratio_by_week_interval=_by_week_intervals(spent, ignored, outcomes),
        bands=by_band(p, order, outcomes, costs),
        segments=by_segment(p, order, outcomes, costs),
    )


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


def _by_week_intervals(spent: FloatArray, ignored: FloatArray, outcomes: Outcomes) -> tuple[Ends, ...]:
    weeks, stores = int(outcomes.week.max()) + 1, int(outcomes.store.max()) + 1
    times = times_drawn(stores, RESAMPLES)
    cell = outcomes.week * stores + outcomes.store
    by_cell = [np.bincount(cell, cost, weeks * stores).reshape(weeks, stores) for cost in (spent, ignored)]
    drawn = ratio(times @ by_cell[0].T, times @ by_cell[1].T)  # draws x weeks
    return tuple(interval(drawn[:, week]) for week in range(weeks))


def _sums(values: FloatArray, code: IntArray) -> FloatArray:
    return np.bincount(code, values).astype(np.float64)
