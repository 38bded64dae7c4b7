"""What a retailer could do instead, and the paper's own modes without oracle knowledge, as policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc

from ew_pipeline.backtest.evidence import Evidence
from ew_pipeline.backtest.policies import Score, trailing_flags
from ew_pipeline.backtest.view import PastView
from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import FitError
from ew_pipeline.method.detector import EntrywiseDetector

WEEKS = 16  # whose labels the constant rate is learnt from
TAIL = 0.05  # flagged when a pair so rarely sells so little


@dataclass(frozen=True)
class ConstantRate:
    """Flag where the costs alone say so. Nothing is flagged while no label is known."""

    name: str = "constant"

    def score(self, view: PastView) -> Score:
        labels = view.mature(WEEKS).values()
        known = sum(int(each.known.sum()) for each in labels)
        found = sum(int(each.anomaly.sum()) for each in labels)
        return Score(np.full(view.pairs.size, found / known if known else 0.0))


@dataclass(frozen=True)
class Ignore:
    """Never flag."""

    name: str = "ignore"

    def score(self, view: PastView) -> Score:
        return Score(np.zeros(view.pairs.size))


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


@dataclass(frozen=True)
class TrailingRule:
    """Flag when sales are at most half the mean of the past 5 weeks.

    With ``moved`` the mean is first multiplied by how the SKU moved in the whole chain this week.
    """

    moved: bool = False

    @property
    def name(self) -> str:
        return "trailing-sku" if self.moved else "trailing"

    def score(self, view: PastView) -> Score:
        if view.t < 1:
            return Score(np.zeros(view.pairs.size))
        evidence = view.evidence()
        mean = evidence.trailing * (evidence.sku_move_trailing if self.moved else 1.0)
        ranking = (mean + 0.1) / (mean + evidence.units + 0.2)
        return Score(trailing_flags(evidence, moved=self.moved), ranking)


@dataclass(frozen=True)
class TrailingTail:
    """Flag when P(N <= X) <= 5% for a negative binomial N with the pair's past mean, the chain's spread."""

    name: str = "trailing-tail"

    def score(self, view: PastView) -> Score:
        if view.t < 1:
            return Score(np.zeros(view.pairs.size))
        evidence = view.evidence()
        tail = _at_most(evidence, _size(evidence))
        flagged = (tail <= TAIL) & (evidence.trailing_weeks > 0)
        return Score(flagged.astype(np.float64), 1.0 - tail)


def _size(evidence: Evidence) -> float:
    """s0 by moments over the pairs' last weeks against their trailing means."""
    mean = np.maximum(evidence.trailing, 0.05)
    # Var(last - mean of 5) = 0.8 Var: the last week is itself one of the five.
    variance = (evidence.last - mean) ** 2 / 0.8
    return float(1.0 / np.clip(np.sum(variance - mean) / np.sum(mean**2), 0.01, 10.0))


def _at_most(evidence: Evidence, size: float) -> Float:
    mean = np.maximum(evidence.trailing, 0.05)
    return np.asarray(betainc(size, evidence.units + 1.0, size / (size + mean)))
