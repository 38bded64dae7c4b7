"""theta = (alpha, p_A): how often records are wrong, and how deep sales fall when they are.

Section 2 of the paper: with probability ``p_A`` a ranged pair is anomalous and sells a fraction
``g(alpha)`` of its expected sales. The paper carries a point estimate; we deviate and carry intervals
and a verdict, because a theta that the data do not identify must not be priced with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ew_pipeline.core.errors import UsageError

RATE_CAP = 0.4  # of p_A: above, healthy pairs and anomalies may swap roles
RATE_PENALTY = 8.0  # p(p_A) ~ exp(-8 p_A): a mean of 0.1, and little weight on every third record wrong


@dataclass(frozen=True)
class Theta:
    """An estimate of the anomaly parameters and what it is worth.

    Attributes
    ----------
    alpha : severity; the expected share of its normal sales that an anomalous pair still sells.
        Lower is worse.
    anomaly_rate : p_A, the share of observed pairs that are anomalous, in [0, 1].
    alpha_interval, anomaly_rate_interval : 90% intervals, low end first.
    at_bound : a parameter ended on the edge of its allowed range.
    identified : False when the interval is too wide, the likelihood flat, or the model without
        anomalies fits as well.
    reason : the verdict in words; never empty when ``identified`` is False.
    """

    alpha: float
    anomaly_rate: float
    alpha_interval: tuple[float, float]
    anomaly_rate_interval: tuple[float, float]
    at_bound: bool
    identified: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 0.0):
            raise UsageError(f"alpha is {self.alpha}; it must be a finite number >= 0.")
        if not 0.0 <= self.anomaly_rate <= 1.0:
            raise UsageError(f"anomaly_rate is {self.anomaly_rate}; it must lie in [0, 1].")
        for name in ("alpha_interval", "anomaly_rate_interval"):
            low, high = getattr(self, name)
            if not low <= high:
                raise UsageError(f"{name} is ({low}, {high}); the low end comes first and neither is NaN.")
        if not self.identified and not self.reason:
            raise UsageError("theta is marked as not identified without a reason.", "say why in `reason`.")
