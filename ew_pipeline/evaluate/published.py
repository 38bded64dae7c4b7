"""What was published for a week, measured once its labels are mature. Looks only; nothing flagged changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ew_pipeline.data.panel import Panel
from ew_pipeline.errors import DataError
from ew_pipeline.evaluate.cost import expected_cost
from ew_pipeline.evaluate.measures import Measures, measure
from ew_pipeline.evaluate.parts import Outcomes
from ew_pipeline.evaluate.view import LabelSource


@dataclass(frozen=True)
class PublishedMeasures:
    """How the decisions of one week turned out.

    Attributes
    ----------
    week, rule : what was evaluated, by which labels.
    pairs, anomalies : published pairs that have a label, and the anomalies among them.
    flagged, flagged_anomalies : what was flagged of those, and how many were anomalies.
    cost, cost_of_ignoring : per pair, with the costs of the week: as decided, and had nothing been flagged.
    measures : the published probability under the usual measures.
    """

    week: str
    rule: str
    pairs: int
    anomalies: int
    flagged: int
    flagged_anomalies: int
    cost: float
    cost_of_ignoring: float
    measures: Measures


def evaluate_published(
    published: pd.DataFrame, panel: Panel, week: str, labels: LabelSource
) -> PublishedMeasures:
    """Measure one week's published decisions.

    ``published``: every scored pair of the week with ``store_id``, ``sku_id``, ``anomaly_probability``,
    ``flagged``, ``cost_false_alarm`` and ``cost_missed``. ``panel``: sales that reach past the week.
    """
    t = panel.index(week)
    truth = labels.of(panel, t)
    if not truth.known.any():
        raise DataError(f"the labels of {week} are not mature.", "add the sales of the weeks after it.")
    row = panel.rows_of(published["store_id"], published["sku_id"])
    kept = np.flatnonzero((row >= 0) & truth.known[row])
    if kept.size == 0:
        raise DataError(f"no published pair of {week} has a label.", "check the ids of the sales.")
    row, rows = row[kept], published.iloc[kept]
    anomaly, flags = truth.anomaly[row], rows["flagged"].to_numpy(dtype=np.bool_)
    c0, c1 = (rows[name].to_numpy(dtype=np.float64) for name in ("cost_false_alarm", "cost_missed"))
    healthy = (~anomaly).astype(np.float64)
    probability = rows["anomaly_probability"].to_numpy(dtype=np.float64)
    window = panel.units[row, max(0, t - 10) : t].astype(np.float64)
    seen = (~np.isnan(window)).sum(axis=1)
    velocity = np.nansum(window, axis=1) / np.maximum(seen, 1)
    outcomes = Outcomes(
        anomaly, np.zeros(row.size, dtype=np.int64), panel.store[row].astype(np.int64), velocity
    )
    return PublishedMeasures(
        week=week,
        rule=labels.rule,
        pairs=row.size,
        anomalies=int(anomaly.sum()),
        flagged=int(flags.sum()),
        flagged_anomalies=int((flags & anomaly).sum()),
        cost=expected_cost(flags, healthy, c0, c1),
        cost_of_ignoring=expected_cost(np.zeros_like(flags), healthy, c0, c1),
        measures=measure(probability, probability, outcomes),
    )
