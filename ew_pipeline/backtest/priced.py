"""What a probability costs when it is priced with uniform costs, in closed form.

A pair is flagged iff p c1 >= (1 - p) c0, with c0 ~ U[0, a] (false alarm) and c1 ~ U[0, b] (missed) drawn per
pair. With odds q = (p / (1 - p)) b / a, that is u0 <= q u1 for u0, u1 ~ U[0, 1]:

    E[c0; flagged]      = a g(q),    g(q) = q² / 6 for q <= 1,   1/2 - 1/(3 q) beyond;
    E[c1; not flagged]  = b g(1/q).

Never flagging (Ignore) costs b/2 per anomaly. The mean over all costs is a proper score: nothing beats the
true probability.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import DataError, UsageError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class UniformCosts:
    """c0 ~ U[0, false_alarm_high] and c1 ~ U[0, missed_high], independent, one draw per pair."""

    false_alarm_high: float = 500.0
    missed_high: float = 500.0

    def __post_init__(self) -> None:
        if not (self.false_alarm_high > 0 and self.missed_high > 0):
            raise UsageError("the highest costs must be positive.")


PAPER_COSTS = UniformCosts()  # the text of section 4.2
NOTEBOOK_COSTS = UniformCosts(false_alarm_high=10.0)  # what the authors' notebook draws
COSTS: Mapping[str, UniformCosts] = {"text": PAPER_COSTS, "notebook": NOTEBOOK_COSTS}


def priced_cost(probability: FloatArray, anomaly: BoolArray, costs: UniformCosts = PAPER_COSTS) -> FloatArray:
    """Expected cost of each pair when its anomaly probability is priced; see the module."""
    p = np.asarray(probability, dtype=np.float64)
    if p.size and not (p.min() >= 0.0 and p.max() <= 1.0):  # also refuses NaN
        raise DataError("a probability is outside [0, 1] or not a number.", "score every pair.")
    a, b = costs.false_alarm_high, costs.missed_high
    # Odds up to 1e12 and not infinity: the cost has long reached its limit.
    odds = p / np.maximum(1.0 - p, 1e-12) * (b / a)
    return np.where(anomaly, b * _half(1.0 / np.maximum(odds, 1e-12)), a * _half(odds))


def ignore_cost(anomaly: BoolArray, costs: UniformCosts = PAPER_COSTS) -> FloatArray:
    """Expected cost of each pair when nothing is ever flagged."""
    return np.where(anomaly, costs.missed_high / 2.0, 0.0)


def cost_ratio(probability: FloatArray, anomaly: BoolArray, costs: UniformCosts = PAPER_COSTS) -> float:
    """Cost over that of Ignore; without anomalies NaN, or infinite where only Ignore is free."""
    ignored = float(ignore_cost(anomaly, costs).sum())
    spent = float(priced_cost(probability, anomaly, costs).sum())
    if ignored == 0.0:
        return float("nan") if spent == 0.0 else float("inf")
    return spent / ignored


def _half(q: FloatArray) -> FloatArray:
    return np.where(q <= 1.0, q**2 / 6.0, 0.5 - 1.0 / (3.0 * np.maximum(q, 1.0)))
