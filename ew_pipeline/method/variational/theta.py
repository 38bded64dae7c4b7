"""Step 2 on the cavity predictive: theta from counts against rates that have not seen them.

Healthy: NB(M_loo, 1 / (cv2 + 1 / s0)); anomalous: the family's law at M_loo. No free scale: the rates
estimate M* itself, and a scale lets the two components swap roles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from ew_pipeline.core.arrays import Float
from ew_pipeline.method._kernels import mixture
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.intervals import ThetaIntervals, Z, to_theta
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.paper.likelihood import ThetaEstimate
from ew_pipeline.method.theta import Theta
from ew_pipeline.method.variational._scoring_kernels import moved_in_logits, scoring_direction

SCORING_STEPS = (
    2  # after some sweeps: theta and M come to rest together, but with one step at times elsewhere
)
RATE_BOUNDS = (1e-4, 0.4)
INVERSE_SIZE_BOUNDS = (1e-4, 4.0)
# The information takes M as known; on the paper's ensemble this factor restores 90% coverage.
RATE_ERROR_WIDENING = 1.5


@dataclass(frozen=True)
class Parameters:
    """theta with the noise: alpha, p_A and 1 / s0 (0 for Poisson)."""

    alpha: float
    anomaly_rate: float
    inverse_size: float


@dataclass(frozen=True, eq=False)
class ThetaFit:
    """theta, the mixture's log-likelihood there, and the two components' of every entry."""

    parameters: Parameters
    log_likelihood: float
    log_healthy: Float
    log_anomalous: Float


def fit_theta(
    data: Observations,
    means: Float,
    cv2: Float,
    family: ExposureFamily,
    start: Parameters,
    *,
    seen: Float,
    clear: Float,
    learn_size: bool,
    iterations: int,
    anomalies: bool = True,
) -> ThetaFit:
    """Scoring steps for (alpha, p_A, s0) on the cavity predictive, in logit and log space.

    ``seen``: how often each entry counts, 0 for one that is held out.
    """
    alpha_bounds = family.alpha_bounds if family.alpha_free else (0.0, 1.0)
    lows = np.array([alpha_bounds[0], RATE_BOUNDS[0], INVERSE_SIZE_BOUNDS[0]])
    highs = np.array([alpha_bounds[1], RATE_BOUNDS[1], INVERSE_SIZE_BOUNDS[1]])
    free = np.array([family.alpha_free and anomalies, anomalies, learn_size])
    span = highs - lows
    values = np.array([start.alpha, start.anomaly_rate, start.inverse_size])
    inner = np.clip(values, lows + 1e-3 * span, highs - 1e-3 * span)
    values = np.where(free, inner, values)
    n = data.counts.size
    total_weight = float(seen.sum())
    step_size = 0.02

    slope = np.zeros(n)
    # what the best values give and what is being tried, in turn: new arrays cost as much as what fills them
    rooms = [np.empty(n) for _ in range(2 if learn_size else 1)]

    def healthy(inverse_size: float, out: Float) -> Float:
        mixture.healthy_log_pmf(data.counts, data.log_factorial, means, cv2, inverse_size, out)
        return out

    fixed_anomalous = None if family.alpha_free else family.terms(data, means, values[0])
    fixed = None if learn_size else healthy(values[2], rooms[0])

    def evaluate(at: Float, room: int, last: bool) -> tuple[float, Float, Float, Float, Float]:
        log_healthy = healthy(at[2], rooms[room]) if fixed is None else fixed
        if fixed is None and not last:
            np.subtract(healthy(at[2] * math.exp(step_size), slope), log_healthy, out=slope)
            np.divide(slope, at[2] * step_size, out=slope)
        log_anomalous, slope_anomalous = fixed_anomalous or family.terms(data, means, at[0])
        total, gradient, outer = mixture.mixture_scores(
            log_healthy, slope, log_anomalous, slope_anomalous, seen, clear, at[1]
        )
        return total, gradient, outer, log_healthy, log_anomalous

    room = 0
    best = evaluate(values, room, last=False)
    for iteration in range(iterations):
        total, gradient, outer, _, _ = best
        direction = scoring_direction(gradient, outer, values, lows, highs, free, 1e-6 * total_weight)
        moved = False
        for damping in (1.0, 0.5, 0.2, 0.05):
            trial = moved_in_logits(values, lows, highs, free, damping * direction)
            result = evaluate(trial, 1 - room, last=iteration + 1 == iterations)
            if result[0] > total:
                moved = True
                break
        if not moved:
            break
        gain = result[0] - total
        values, best, room = trial, result, 1 - room
        if gain < 1e-4:
            break
    theta = Parameters(float(values[0]), float(values[1]), float(values[2]))
    return ThetaFit(theta, best[0], best[3], best[4])


def entry_scores(log_healthy: Float, log_anomalous: Float, rate: Float) -> Float:
    """Log predictive of each count under the mixture; ``rate`` is P(anomaly) of each entry."""
    gap = np.minimum(log_anomalous - log_healthy, 600.0)
    return np.asarray(log_healthy + np.log1p(rate * np.expm1(gap)))


def update_theta(
    data: Observations,
    cavity: Float,
    cv2: Float,
    family: ExposureFamily,
    theta: Parameters | None,
    negative_binomial: bool,
    seen: Float,
    clear: Float,
    anomalies: bool,
) -> ThetaFit:
    """From two starts the first time, then a scoring step from where theta is."""
    inverse_size = 0.2 if negative_binomial else 0.0
    if theta is not None:
        starts, iterations = [theta], SCORING_STEPS
    else:
        low, high = family.alpha_bounds
        starts = [
            Parameters(low + share * (high - low), rate, inverse_size)
            for share, rate in ((0.2, 0.1), (0.6, 0.05))
        ]
        iterations = 8
    if negative_binomial:
        starts = [replace(t, inverse_size=max(t.inverse_size, 1e-3)) for t in starts]
    if not anomalies:
        starts = [replace(starts[0], anomaly_rate=0.0)]
    fits = [
        fit_theta(
            data,
            cavity,
            cv2,
            family,
            start,
            seen=seen,
            clear=clear,
            learn_size=negative_binomial,
            iterations=iterations,
            anomalies=anomalies,
        )
        for start in starts
    ]
    return max(fits, key=lambda fit: fit.log_likelihood)


def information_theta(
    data: Observations,
    family: ExposureFamily,
    parameters: Parameters,
    cavity_means: Float,
    cavity_cv2: Float,
    clear: Float,
    *,
    score: float,
    null_gain: float,
    converged: bool,
) -> Theta:
    """theta of a fit with 90% intervals from the empirical information on the logit scale."""
    n = data.counts.size
    p = parameters
    log_healthy = np.empty(n)
    mixture.healthy_log_pmf(
        data.counts, data.log_factorial, cavity_means, cavity_cv2, p.inverse_size, log_healthy
    )
    log_anomalous, slope = family.terms(data, cavity_means, p.alpha)
    _, _, outer = mixture.mixture_scores(
        log_healthy, np.zeros(n), log_anomalous, slope, np.ones(n), clear, p.anomaly_rate
    )
    alpha_bounds = family.alpha_bounds
    values = (p.alpha if family.alpha_free else alpha_bounds[0], p.anomaly_rate)
    bounds = (alpha_bounds, RATE_BOUNDS)
    free = [k for k in (0, 1) if bounds[k][1] > bounds[k][0]]
    jacobian = np.array([(values[k] - bounds[k][0]) * (bounds[k][1] - values[k]) for k in free])
    jacobian /= np.array([bounds[k][1] - bounds[k][0] for k in free])
    information = outer[np.ix_(free, free)] * np.outer(jacobian, jacobian) + 1e-6 * np.eye(len(free))
    reach = RATE_ERROR_WIDENING * Z * np.sqrt(np.diag(np.linalg.inv(information)))
    ends = {}
    for k, r in zip(free, reach, strict=True):
        low, high = bounds[k]
        share = min(max((values[k] - low) / (high - low), 1e-6), 1.0 - 1e-6)
        centre = math.log(share / (1.0 - share))
        ends[k] = tuple(low + (high - low) * float(expit(centre + sign * min(r, 30.0))) for sign in (-1, 1))
    edges = tuple(
        name
        for k, name in ((0, "alpha"), (1, "anomaly_rate"))
        if k in free
        and min(values[k] - bounds[k][0], bounds[k][1] - values[k]) < 0.005 * (bounds[k][1] - bounds[k][0])
    )
    estimate = ThetaEstimate(
        alpha=values[0],
        anomaly_rate=values[1],
        log_likelihood=score,
        log_likelihood_null=score - null_gain,
        at_bound=edges,
        converged=converged,
        n_evaluations=0,
        alpha_bounds=alpha_bounds,
        rate_bounds=RATE_BOUNDS,
    )
    alpha_ends = ends.get(0, alpha_bounds)
    return to_theta(
        estimate,
        ThetaIntervals((alpha_ends[0], alpha_ends[1]), (ends[1][0], ends[1][1]), "information"),
    )
