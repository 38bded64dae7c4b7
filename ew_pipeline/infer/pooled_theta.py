"""One theta for the chain beside those of its segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.theta import Theta

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


def on_log_odds(value: ArrayLike, interval: ArrayLike) -> tuple[Float, Float]:
    """Estimates and the variances that their 90% intervals (…, 2) stand for, on the log-odds scale."""
    low, high = np.moveaxis(_log_odds(interval), -1, 0)
    return _log_odds(value), np.maximum((high - low) / (2 * HALF_WIDTH), 1e-3) ** 2


def random_effects(centre: Float, variance: Float) -> tuple[float, float, float]:
    """(mean, its variance, variance between the true values), by DerSimonian and Laird."""
    fixed = 1.0 / variance
    mean = float(np.sum(fixed * centre) / np.sum(fixed))
    spread = np.sum(fixed * (centre - mean) ** 2) - (centre.size - 1)
    between = (
        max(0.0, spread / (np.sum(fixed) - np.sum(fixed**2) / np.sum(fixed))) if centre.size > 1 else 0.0
    )
    weight = 1.0 / (variance + between)
    return float(np.sum(weight * centre) / np.sum(weight)), 1.0 / float(np.sum(weight)), float(between)


def as_share(mean: float, variance: float) -> tuple[float, tuple[float, float]]:
    """Back from log-odds: the value and its 90% interval."""
    reach = HALF_WIDTH * float(np.sqrt(variance))
    return float(expit(mean)), (float(expit(mean - reach)), float(expit(mean + reach)))


def _pool(estimates: Sequence[tuple[float, tuple[float, float]]]) -> tuple[float, tuple[float, float]]:
    centre, variance = on_log_odds([value for value, _ in estimates], [ends for _, ends in estimates])
    mean, of_mean, _ = random_effects(centre, variance)
    return as_share(mean, of_mean)


def _log_odds(share: ArrayLike) -> Float:
    return np.asarray(logit(np.clip(np.asarray(share, dtype=np.float64), LEAST, MOST)))
