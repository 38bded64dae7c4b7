"""The same probability for every pair: the share of anomalies in weeks whose labels have matured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView

WEEKS = 16


@dataclass(frozen=True)
class ConstantRate:
    """Flag where the costs alone say so. Nothing is flagged while no label is known."""

    name: str = "constant"

    def score(self, view: PastView) -> Score:
        labels = view.mature(WEEKS).values()
        known = sum(int(each.known.sum()) for each in labels)
        found = sum(int(each.anomaly.sum()) for each in labels)
        return Score(np.full(view.pairs.size, found / known if known else 0.0))
