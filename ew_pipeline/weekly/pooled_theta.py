"""One theta for the chain beside those of its segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, logit

from ew_pipeline.algorithm.theta import Theta
from ew_pipeline.algorithm.types import Float

HALF_WIDTH = 1.6448536269514722  # of a 90% interval, in standard deviations
LEAST, MOST = 1e-6, 1.0 - 1e-6


def pool_theta(thetas: Sequence[Theta]) -> Theta:
    """Random-effects mean of the segments on the log-odds scale (DerSimonian and Laird).

    A segment counts by what its interval says it knows, and the segments may truly differ. Segments whose
    theta is not identified are left out unless none is.
    """
    if len(thetas) == 1:
        return thetas[0]
    known = [theta for theta in thetas if theta.identified]
    used = known or list(thetas)
    alpha, alpha_interval = _pool([(t.alpha, t.alpha_interval) for t in used])
    rate, rate_interval = _pool([(t.anomaly_rate, t.anomaly_rate_interval) for t in used])
    left_out = len(thetas) - len(known)
    return Theta(
        alpha=alpha,
        anomaly_rate=rate,
        alpha_interval=alpha_interval,
        anomaly_rate_interval=rate_interval,
        at_bound=any(theta.at_bound for theta in used),
        identified=bool(known),
        reason=f"{left_out} of {len(thetas)} segments are not identified" if left_out else "",
    )


def _pool(estimates: Sequence[tuple[float, tuple[float, float]]]) -> tuple[float, tuple[float, float]]:
    centre = _log_odds(np.array([value for value, _ in estimates]))
    low = _log_odds(np.array([interval[0] for _, interval in estimates]))
    high = _log_odds(np.array([interval[1] for _, interval in estimates]))
    variance = np.maximum((high - low) / (2 * HALF_WIDTH), 1e-3) ** 2
    fixed = 1.0 / variance
    mean = float(np.sum(fixed * centre) / np.sum(fixed))
    spread = np.sum(fixed * (centre - mean) ** 2) - (centre.size - 1)
    between = (
        max(0.0, spread / (np.sum(fixed) - np.sum(fixed**2) / np.sum(fixed))) if centre.size > 1 else 0.0
    )
    weight = 1.0 / (variance + between)
    mean = float(np.sum(weight * centre) / np.sum(weight))
    reach = HALF_WIDTH / float(np.sqrt(np.sum(weight)))
    return float(expit(mean)), (float(expit(mean - reach)), float(expit(mean + reach)))


def _log_odds(share: Float) -> Float:
    return np.asarray(logit(np.clip(share, LEAST, MOST)))
