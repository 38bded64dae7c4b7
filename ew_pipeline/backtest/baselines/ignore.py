"""Doing nothing, which is what costs are measured against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView


@dataclass(frozen=True)
class Ignore:
    """Never flag."""

    name: str = "ignore"

    def score(self, view: PastView) -> Score:
        return Score(np.zeros(view.pairs.size))
