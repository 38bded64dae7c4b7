"""The ideal policy pi*: what Step 3 would say if it knew everything (section 3.1).

pi* knows M*, alpha* and p_A*, and still makes mistakes, because sales are random. Regret is the cost
above that of pi*. It is a yardstick for simulated data and no part of the detector: nothing in the package
but evaluation may call it.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.anomalies import AnomalyModel
from ew_pipeline.method.noise import NoiseModel
from ew_pipeline.method.paper.posterior import healthy_probability


def ideal_healthy_probability(
    counts: ArrayLike,
    true_rates: ArrayLike,
    alpha: float,
    anomaly_rate: float,
    noise: NoiseModel,
    anomaly: AnomalyModel,
) -> Float:
    """f* = P(B = 0 | X_Omega), Eq. (fij-star), from the true M*, alpha*, p_A* and the true laws."""
    return healthy_probability(counts, true_rates, alpha, anomaly_rate, noise, anomaly)
