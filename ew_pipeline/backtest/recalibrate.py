"""The calibrated probability of a week's pairs, for the weekly run: probability and record out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.calibration import Calibration
from ew_pipeline.backtest.policies import Calibrated, label_free
from ew_pipeline.backtest.registry import CALIBRATED
from ew_pipeline.backtest.view import LabelSource, Memory, PastView, RuleLabels
from ew_pipeline.core.errors import DataError, name_some
from ew_pipeline.intake.panel import Panel
from ew_pipeline.method.sales_matrix import SalesMatrix

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoredWeek:
    """Every pair observed in a week, in the panel's order (``view.pairs``).

    Attributes
    ----------
    probability : P(anomaly) in the form that the calibration chose.
    label_free : the same by the pair's own past, whatever the labels say.
    calibration : what was learnt, from which weeks, and whether it is used or why not.
    """

    view: PastView
    probability: FloatArray
    label_free: FloatArray
    calibration: Calibration

    def in_order_of(self, sales: SalesMatrix, probability: FloatArray) -> FloatArray:
        """One of the probabilities, for the entries of ``sales`` in their order."""
        panel, pairs = self.view.panel, self.view.pairs
        m = panel.sku_ids.size
        keys = panel.store[pairs].astype(np.int64) * m + panel.sku[pairs]
        store = _positions(panel.store_ids, sales.store_ids)[sales.rows]
        sku = _positions(panel.sku_ids, sales.sku_ids)[sales.cols]
        wanted = np.where((store >= 0) & (sku >= 0), store * m + sku, -1)
        at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        missing = np.flatnonzero(keys[at] != wanted)
        if missing.size:
            named = (f"{sales.store_ids[sales.rows[e]]}/{sales.sku_ids[sales.cols[e]]}" for e in missing)
            raise DataError(
                f"{missing.size} pairs of {sales.week} are not in the history: "
                f"{name_some(named, missing.size)}.",
                "pass a history that holds the week itself, with the same zeros.",
            )
        return probability[at]


def fit_weeks(panel: Panel, week: str, labels: LabelSource | None, memory: Memory, threads: int = 1) -> int:
    """Have ``memory`` hold all that ``score_week`` fits: past weeks to learn from, and the week against its
    past. How many are learnt from. The numbers do not depend on ``threads``."""
    view = PastView(panel, panel.index(week), labels or RuleLabels("pair"), memory)
    learnt_from = Calibrated(CALIBRATED).fit(view, threads)
    view.evidence()  # the label-free form is asked for also where all that is learnt from has no past
    return learnt_from


def score_week(
    panel: Panel, week: str, labels: LabelSource | None = None, memory: Memory | None = None
) -> ScoredWeek:
    """Score the pairs of ``week`` with what its past and the labels matured by then have taught.

    Weeks of the panel after ``week`` are never looked at.

    Parameters
    ----------
    labels : where labels come from; ``RuleLabels("pair")``, the drop that is the pair's own, by default.
        Outcomes of store checks: ``TruthLabels``.
    memory : keep one between calls in a process, and past weeks are not fitted again.
    """
    view = PastView(panel, panel.index(week), labels or RuleLabels("pair"), memory)
    score = Calibrated(CALIBRATED).score(view)
    assert score.calibration is not None  # a policy that learns always says what
    return ScoredWeek(view, score.probability, label_free(view.evidence(), view.rule), score.calibration)


def _positions(ids: npt.NDArray[np.str_], wanted: npt.NDArray[np.str_]) -> npt.NDArray[np.int64]:
    at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[at] == wanted, at, -1)
