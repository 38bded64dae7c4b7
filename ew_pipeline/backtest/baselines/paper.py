"""The paper's own algorithm on one week, without oracle knowledge: Algorithm 1, and as section 4 runs it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.core.errors import FitError
from ew_pipeline.method.detector import EntrywiseDetector


@dataclass(frozen=True)
class PaperMode:
    """``mode`` is "paper" (SVD and moments) or "paper-practical" (soft-impute and maximum likelihood)."""

    mode: str

    @property
    def name(self) -> str:
        return self.mode

    def score(self, view: PastView) -> Score:
        sales = view.panel.sales(view.t)
        try:
            fit = EntrywiseDetector(self.mode, max_rank=5).fit(sales)
        except FitError:  # nothing sold, or too few pairs: the paper's algorithm has no answer
            return Score(np.zeros(sales.n_observed))
        return Score(fit.anomaly_probability_.copy())
