"""What was published for a week, measured once its labels are mature. Looks only; nothing flagged changes.

The published decisions are priced with the costs of the week; beside them stands every policy, scored with
what was known at the end of the week and priced with the same costs, on the same pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ew_pipeline.backtest.history import Grouping
from ew_pipeline.backtest.measures import Measures, measure
from ew_pipeline.backtest.policies import Policy
from ew_pipeline.backtest.priced import PAPER_COSTS, UniformCosts
from ew_pipeline.backtest.scoring import check_policies, outcomes_of, score_week
from ew_pipeline.backtest.view import LabelSource, Memory, PastView
from ew_pipeline.core.errors import DataError
from ew_pipeline.core.resample import Estimate, estimate, ratio, times_drawn
from ew_pipeline.intake.panel import Panel
from ew_pipeline.ledger.records import PUBLISHED

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

DRAWS = 1000


@dataclass(frozen=True)
class Decisions:
    """A set of flags with the week's own costs, over the labelled pairs. Intervals are 90%, over stores.

    Attributes
    ----------
    flagged, found : flags, and the anomalies among them.
    precision, recall : found of the flagged, and of all anomalies.
    cost : of the false alarms and the misses.
    cost_ignoring : had nothing been flagged.
    saving : the difference: what flagging was worth.
    """

    flagged: int
    found: int
    precision: Estimate
    recall: Estimate
    cost: Estimate
    cost_ignoring: Estimate
    saving: Estimate


@dataclass(frozen=True)
class Evaluated:
    """One way of choosing flags: what its decisions came to, and how good its probability is."""

    decisions: Decisions
    measures: Measures


@dataclass(frozen=True)
class PublishedMeasures:
    """How a published week turned out.

    Attributes
    ----------
    week, label_rule, label_version : what was evaluated, by which labels.
    data_hash : of the sales up to the last week that the labels need, and of outside truth.
    pairs_published, pairs, anomalies : published; those of them with a label; the anomalies among these.
    policies : ``published`` first, then every policy by name. Policies know no limit of checks per store.
    seconds : spent in each policy.
    """

    week: str
    label_rule: str
    label_version: str
    data_hash: str
    pairs_published: int
    pairs: int
    anomalies: int
    policies: Mapping[str, Evaluated]
    seconds: Mapping[str, float]

    @property
    def published(self) -> Evaluated:
        return self.policies[PUBLISHED]


def evaluate_published(
    published: pd.DataFrame,
    panel: Panel,
    week: str,
    labels: LabelSource,
    policies: Sequence[Policy] = (),
    *,
    costs: UniformCosts = PAPER_COSTS,
    memory: Memory | None = None,
) -> PublishedMeasures:
    """Measure one week's published decisions, and ``policies`` beside them.

    ``published``: every scored pair of the week with ``store_id``, ``sku_id``, ``anomaly_probability``,
    ``flagged``, ``cost_false_alarm`` and ``cost_missed``, and ``segment`` when there are several. ``panel``:
    sales that reach past the week; what lies beyond the label's last week is not looked at.
    """
    if policies:
        check_policies(policies)
    t = panel.index(week)
    panel = panel.until(min(t + labels.weeks_after, panel.n_weeks - 1))
    truth = labels.of(panel, t)
    if not truth.known.any():
        raise DataError(f"the labels of {week} are not mature.", "add the sales of the weeks after it.")
    row = panel.rows_of(published["store_id"], published["sku_id"])
    kept = np.flatnonzero((row >= 0) & truth.known[row] & panel.observed[row, t])
    if kept.size == 0:
        raise DataError(f"no published pair of {week} has a label.", "check the ids of the sales.")
    rows, row = published.iloc[kept], row[kept]
    outcomes = outcomes_of(panel, t, row, truth.anomaly[row], _grouping(rows, row, panel))
    c0, c1 = (rows[name].to_numpy(dtype=np.float64) for name in ("cost_false_alarm", "cost_missed"))
    p = rows["anomaly_probability"].to_numpy(dtype=np.float64)
    flags = rows["flagged"].to_numpy(dtype=np.bool_)
    found = {
        PUBLISHED: Evaluated(
            decided(flags, outcomes.anomaly, c0, c1, outcomes.store), measure(p, p, outcomes, costs)
        )
    }
    view = PastView(panel, t, labels, memory)
    scored = score_week(view, policies)
    at = np.searchsorted(view.pairs, row)
    for name, score in scored.scores.items():
        own = score.probability[at]
        found[name] = Evaluated(
            decided((own > 0) & (own * c1 >= (1.0 - own) * c0), outcomes.anomaly, c0, c1, outcomes.store),
            measure(own, score.order[at], outcomes, costs),
        )
    return PublishedMeasures(
        week=week,
        label_rule=labels.rule,
        label_version=labels.version,
        data_hash=labels.content_hash(panel, t),
        pairs_published=len(published),
        pairs=row.size,
        anomalies=int(outcomes.anomaly.sum()),
        policies=found,
        seconds=scored.seconds,
    )


def decided(
    flags: BoolArray, anomaly: BoolArray, c0: FloatArray, c1: FloatArray, store: IntArray
) -> Decisions:
    """What flags cost and find; false alarms cost ``c0``, misses ``c1``."""
    columns = [
        flags,
        flags & anomaly,
        anomaly,
        np.where(flags & ~anomaly, c0, 0.0),
        np.where(~flags & anomaly, c1, 0.0),
        np.where(anomaly, c1, 0.0),
    ]
    codes, place = np.unique(store, return_inverse=True)
    sums = np.stack([np.bincount(place, column, codes.size) for column in columns], axis=1)
    once = _figures(sums.sum(axis=0, keepdims=True))
    many = _figures(times_drawn(codes.size, DRAWS) @ sums)
    return Decisions(
        flagged=int(flags.sum()),
        found=int((flags & anomaly).sum()),
        **{name: estimate(float(once[name][0]), many[name]) for name in once},
    )


def _figures(sums: FloatArray) -> dict[str, FloatArray]:
    flagged, found, anomalies, wasted, missed, ignoring = sums.T
    return {
        "precision": ratio(found, flagged),
        "recall": ratio(found, anomalies),
        "cost": wasted + missed,
        "cost_ignoring": ignoring,
        "saving": ignoring - wasted - missed,
    }


def _grouping(rows: pd.DataFrame, row: IntArray, panel: Panel) -> Grouping | None:
    """The segments that were fitted; None when there was one."""
    if "segment" not in rows or rows["segment"].nunique() < 2:
        return None
    codes, names = pd.factorize(rows["segment"].astype("str"), sort=True)
    of = np.full(panel.n_pairs, -1, dtype=np.int64)
    of[row] = codes
    return Grouping(tuple(map(str, names)), of)
