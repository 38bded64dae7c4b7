"""Theta of the chain from its segments, and of a week with the weeks before as a prior.

One week may say little about alpha and p_A. The weeks published before say where they usually lie (mean mu)
and how much they move from week to week (variance tau², random effects on the log-odds scale); with v the
variance of this week's own estimate y,

    prior  N(mu, tau² + Var(mu)),      estimate  (y / v + mu / prior variance) / (1 / v + 1 / prior variance).

It is published beside the week's own estimate, never instead of it: the drift chart looks at the own ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from ew_pipeline.core.arrays import Float
from ew_pipeline.expect.fit import SegmentResult
from ew_pipeline.method.theta import Theta

HALF_WIDTH = 1.6448536269514722  # of a 90% interval, in standard deviations
LEAST, MOST = 1e-6, 1.0 - 1e-6
POOLED = "pooled"  # the chain, among the names of segments
MOST_WEEKS = 26  # before this one, that are looked at
LEAST_WEEKS = 3  # fewer cannot tell how much theta moves
Estimate = tuple[float, tuple[float, float]]  # and its 90% interval


@dataclass(frozen=True)
class OverWeeks:
    """Theta of a segment with the weeks published before as a prior; ``weeks`` says how many."""

    theta: Theta
    weeks: int


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


def over_weeks(
    segments: Sequence[SegmentResult], pooled: Theta, published: pd.DataFrame
) -> dict[str, OverWeeks]:
    """By segment, and ``pooled``; what has no weeks to lean on is absent.

    ``published``: theta of the weeks before by week and segment (``Ledger.segments_series``). Weeks whose
    theta is not identified, or is that of another family of anomalies, say nothing.
    """
    found: dict[str, OverWeeks] = {}
    for name, theta, family in [*((s.name, s.theta, s.anomaly) for s in segments), (POOLED, pooled, None)]:
        rows = published[(published["segment"] == name) & published["identified"] & ~published["at_bound"]]
        if family is not None:
            rows = rows[rows["anomaly"] == family]
        before = _thetas(rows.tail(MOST_WEEKS))
        if len(before) >= LEAST_WEEKS:
            found[name] = OverWeeks(lean_on(theta, before), len(before))
    return found


def lean_on(own: Theta, before: Sequence[Theta]) -> Theta:
    """``own`` with the estimates ``before`` as a prior."""
    alpha, alpha_interval = _combine(
        (own.alpha, own.alpha_interval), [(one.alpha, one.alpha_interval) for one in before]
    )
    rate, rate_interval = _combine(
        (own.anomaly_rate, own.anomaly_rate_interval),
        [(one.anomaly_rate, one.anomaly_rate_interval) for one in before],
    )
    return Theta(
        alpha=alpha,
        anomaly_rate=rate,
        alpha_interval=alpha_interval,
        anomaly_rate_interval=rate_interval,
        at_bound=False,
        identified=True,
        reason="" if own.identified else "this week alone does not identify it",
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


def as_share(mean: float, variance: float) -> Estimate:
    """Back from log-odds: the value and its 90% interval."""
    reach = HALF_WIDTH * float(np.sqrt(variance))
    return float(expit(mean)), (float(expit(mean - reach)), float(expit(mean + reach)))


def _pool(estimates: Sequence[Estimate]) -> Estimate:
    centre, variance = on_log_odds([value for value, _ in estimates], [ends for _, ends in estimates])
    mean, of_mean, _ = random_effects(centre, variance)
    return as_share(mean, of_mean)


def _log_odds(share: ArrayLike) -> Float:
    return np.asarray(logit(np.clip(np.asarray(share, dtype=np.float64), LEAST, MOST)))


def _combine(own: Estimate, before: Sequence[Estimate]) -> Estimate:
    centre, variance = on_log_odds([value for value, _ in before], [ends for _, ends in before])
    mean, of_mean, between = random_effects(centre, variance)
    y, v = on_log_odds(*own)
    weight, weight_before = 1.0 / float(v), 1.0 / (between + of_mean)
    total = weight + weight_before
    return as_share((weight * float(y) + weight_before * mean) / total, 1.0 / total)


def _thetas(rows: pd.DataFrame) -> list[Theta]:
    names = ("alpha", "alpha_low", "alpha_high", "anomaly_rate", "anomaly_rate_low", "anomaly_rate_high")
    numbers = rows[list(names)].to_numpy(dtype=np.float64)
    return [
        Theta(
            alpha=float(a),
            anomaly_rate=float(p),
            alpha_interval=(float(a_low), float(a_high)),
            anomaly_rate_interval=(float(p_low), float(p_high)),
            at_bound=False,
            identified=True,
        )
        for a, a_low, a_high, p, p_low, p_high in numbers[np.isfinite(numbers).all(axis=1)]
    ]
