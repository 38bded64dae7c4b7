"""How sure theta is: 90% intervals, and whether the data identify it at all.

The paper bounds the error of theta (Eq. (step-2-accuracy), section 3.3) by a constant that is never
computed. Here:

- ``information_interval``: the curvature of the log-likelihood on the logit scale, so that an interval
  never leaves the range of its parameter; where that is no good approximation (a parameter on or near a
  bound, a flat or wrongly bent top), the profile likelihood instead;
- ``theta_from_draws``: from a sampler's posterior draws.

All of them take the rates as known: error in the rates is not in the likelihood intervals. The sampler's
draws carry it.

The verdict. theta is *not identified* when
1. the model without anomalies is not beaten: twice the gain in log-likelihood is at most 5.14, the 95%
   point of a half-half mixture of chi-square with one and two degrees of freedom (p_A on its bound takes
   alpha with it); 2.71, of chi-square with zero and one, where alpha is fixed;
2. the interval of a parameter covers more than 0.8 of its range;
3. p_A is on its upper bound: the healthy and the anomalous component may have swapped roles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtri

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.paper._scoring import EDGE, Top
from ew_pipeline.method.paper.likelihood import STARTS, MixtureProblem, ThetaEstimate, grouped
from ew_pipeline.method.theta import Theta

COVERAGE = 0.9
Z = float(ndtri(0.5 + COVERAGE / 2.0))
NULL_BEATEN = {1: 2.71, 2: 5.14}  # by number of free parameters
WIDEST_SHARE = 0.8
STEP = 0.02  # for second differences, on the logit scale
PARABOLA = (0.8, 1.25)  # true over quadratic fall of the profile at the ends of the interval
SCAN = 6  # points on each side at which a profile is looked at before its end is bisected
NEGLIGIBLE_RATE = 0.002

Method = Literal["information", "profile"]


@dataclass(frozen=True)
class ThetaIntervals:
    """Equal-tailed 90% intervals, low end first, and how they were found."""

    alpha: tuple[float, float]
    anomaly_rate: tuple[float, float]
    method: Method


def information_interval(problem: MixtureProblem, estimate: ThetaEstimate) -> ThetaIntervals:
    """estimate +- 1.645 standard errors on the logit scale, from the observed information.

    The profile likelihood takes over when the estimate is on a bound, when the information is not positive
    definite, when the profile at the ends of the interval is not what a parabola would have there (with
    p_A small or alpha near 1 the likelihood is skewed, and the plain interval covers too seldom), or when
    there is a second top at another alpha.
    """
    problem = grouped(problem)
    u = problem.unbounded(estimate.alpha, estimate.anomaly_rate)
    if estimate.at_bound or np.any(np.abs(u) > EDGE - STEP):
        return profile_interval(problem, estimate)
    information = -_hessian(lambda v: problem.log_likelihood(*problem.at(v)), u)
    if np.min(np.linalg.eigvalsh(information)) <= 0.0:
        return profile_interval(problem, estimate)
    covariance = np.linalg.inv(information)
    reach = Z * np.sqrt(np.diag(covariance))
    for k in range(u.size):
        for sign in (-1.0, 1.0):
            # Along the profile of k the others move with it, to first order by their regression on it.
            end = np.clip(u + sign * reach[k] * covariance[k] / covariance[k, k], -EDGE, EDGE)
            fall = estimate.log_likelihood - _profile(problem, end, k).log_likelihood
            if not PARABOLA[0] < fall / (Z**2 / 2.0) < PARABOLA[1]:
                return profile_interval(problem, estimate)
    if _second_top(problem, u, reach, estimate.log_likelihood - Z**2 / 2.0):
        return profile_interval(problem, estimate)
    low, high = problem.at(u - reach), problem.at(u + reach)
    return ThetaIntervals((low[0], high[0]), (low[1], high[1]), "information")


def profile_interval(problem: MixtureProblem, estimate: ThetaEstimate) -> ThetaIntervals:
    """All values of a parameter at which, with the other one at its best, twice the log-likelihood is
    within the 90% point of chi-square with one degree of freedom of the top. If they are several pieces,
    the interval spans them."""
    problem = grouped(problem)
    u = problem.unbounded(estimate.alpha, estimate.anomaly_rate)
    level = estimate.log_likelihood - Z**2 / 2.0
    inside = [u]
    for k in range(u.size):
        for edge in (-EDGE, EDGE):
            inside += _profile_ends(problem, u, k, edge, level)
    # Points found for one parameter count for the other too: with two tops far apart, the profile of
    # p_A may have followed one of them only.
    low, high = problem.at(np.min(inside, axis=0)), problem.at(np.max(inside, axis=0))
    return ThetaIntervals((low[0], high[0]), (low[1], high[1]), "profile")


def to_theta(estimate: ThetaEstimate, intervals: ThetaIntervals) -> Theta:
    """The estimate with its intervals and the verdict."""
    free = 2 if estimate.alpha_bounds[0] < estimate.alpha_bounds[1] else 1
    gain = 2.0 * (estimate.log_likelihood - estimate.log_likelihood_null)
    reasons = []
    if not gain > NULL_BEATEN[free]:
        reasons.append(
            "a model without anomalies fits as well"
            f" (twice the gain in log-likelihood is {gain:.2f}, {NULL_BEATEN[free]} is needed)"
        )
    reasons += _too_wide("alpha", intervals.alpha, estimate.alpha_bounds, WIDEST_SHARE)
    reasons += _too_wide("the anomaly rate", intervals.anomaly_rate, estimate.rate_bounds, WIDEST_SHARE)
    capped = estimate.anomaly_rate > sum(estimate.rate_bounds) / 2.0
    if "anomaly_rate" in estimate.at_bound and capped:
        reasons.append(_swapped(estimate.rate_bounds[1]))
    return _verdict(
        estimate.alpha,
        estimate.anomaly_rate,
        intervals.alpha,
        intervals.anomaly_rate,
        at_bound=bool(estimate.at_bound),
        reasons=reasons,
    )


def theta_from_draws(
    alpha_draws: ArrayLike,
    rate_draws: ArrayLike,
    alpha_bounds: tuple[float, float] = (0.0, 1.0),
    rate_bounds: tuple[float, float] = (0.0, 0.4),
) -> Theta:
    """theta from a sampler: posterior means, 5% and 95% quantiles.

    ``at_bound``: at least half of the draws of a parameter lie in the outer 2% of its range; for p_A
    only at its upper end, as small rates are what a healthy chain has. Not identified: the 5% quantile of
    p_A is below 0.002 (no anomalies to learn alpha from), an interval covers more than 0.8 of what a
    flat posterior's would, or one in twenty draws of p_A is in the top 2% of its range.
    """
    alphas, rates = np.ravel(np.asarray(alpha_draws, float)), np.ravel(np.asarray(rate_draws, float))
    if alphas.size != rates.size or alphas.size == 0 or not np.all(np.isfinite([alphas, rates])):
        raise UsageError(
            f"There are {alphas.size} draws of alpha and {rates.size} of the anomaly rate.",
            "pass as many of one as of the other, all finite, at least one.",
        )
    tails = [(1.0 - COVERAGE) / 2.0, (1.0 + COVERAGE) / 2.0]
    alpha_low, alpha_high = (float(q) for q in np.quantile(alphas, tails))
    rate_low, rate_high = (float(q) for q in np.quantile(rates, tails))
    edge = 0.02 * (alpha_bounds[1] - alpha_bounds[0])
    at_cap = float(np.mean(rates > rate_bounds[1] - 0.02 * (rate_bounds[1] - rate_bounds[0])))
    alpha_at_bound = alpha_bounds[0] < alpha_bounds[1] and (
        float(np.mean((alphas < alpha_bounds[0] + edge) | (alphas > alpha_bounds[1] - edge))) >= 0.5
    )
    reasons = []
    if rate_low < NEGLIGIBLE_RATE:
        reasons.append(f"there may be no anomalies at all (5% of the draws of p_A are below {rate_low:.2g})")
    widest = COVERAGE * WIDEST_SHARE
    reasons += _too_wide("alpha", (alpha_low, alpha_high), alpha_bounds, widest)
    reasons += _too_wide("the anomaly rate", (rate_low, rate_high), rate_bounds, widest)
    if at_cap >= 0.05:
        reasons.append(_swapped(rate_bounds[1]))
    return _verdict(
        float(np.mean(alphas)),
        float(np.mean(rates)),
        (alpha_low, alpha_high),
        (rate_low, rate_high),
        at_bound=alpha_at_bound or at_cap >= 0.5,
        reasons=reasons,
    )


def _verdict(
    alpha: float,
    rate: float,
    alpha_interval: tuple[float, float],
    rate_interval: tuple[float, float],
    *,
    at_bound: bool,
    reasons: list[str],
) -> Theta:
    return Theta(
        alpha=alpha,
        anomaly_rate=rate,
        alpha_interval=alpha_interval,
        anomaly_rate_interval=rate_interval,
        at_bound=at_bound,
        identified=not reasons,
        reason=f"not identified: {'; '.join(reasons)}." if reasons else "identified.",
    )


def _too_wide(
    name: str, interval: tuple[float, float], bounds: tuple[float, float], widest: float
) -> list[str]:
    low, high = interval
    if high - low <= widest * (bounds[1] - bounds[0]):
        return []
    return [f"{name} could be anything from {low:.2g} to {high:.2g}"]


def _swapped(cap: float) -> str:
    return f"the anomaly rate is at its cap of {cap:g}: healthy and anomalous may have swapped roles"


def _hessian(function: Callable[[Float], float], u: Float) -> Float:
    """Second differences at u."""
    steps = STEP * np.eye(u.size)
    hessian = np.empty((u.size, u.size))
    for a in range(u.size):
        for b in range(a + 1):
            hessian[a, b] = hessian[b, a] = (
                function(u + steps[a] + steps[b])
                - function(u + steps[a] - steps[b])
                - function(u - steps[a] + steps[b])
                + function(u - steps[a] - steps[b])
            ) / (4.0 * STEP**2)
    return hessian


def _profile(problem: MixtureProblem, point: Float, k: int) -> Top:
    """The best point with coordinate k as given."""
    return problem.climb(point, tuple(j for j in range(point.size) if j != k))


def _second_top(problem: MixtureProblem, u: Float, reach: Float, level: float) -> bool:
    """Whether the likelihood is above ``level`` at an alpha that the interval leaves out."""
    if not problem.alpha_is_free:
        return False
    places = [problem.unbounded(alpha, 0.0)[0] for alpha, _ in STARTS]
    outside = [np.array([place, u[1]]) for place in places if abs(place - u[0]) > reach[0]]
    return any(_profile(problem, point, 0).log_likelihood > level for point in outside)


def _profile_ends(problem: MixtureProblem, u: Float, k: int, edge: float, level: float) -> list[Float]:
    """Points at which the profile of coordinate k is at or above ``level``, between u and the edge: those
    of a coarse scan, and last the outermost of all."""
    found, beyond, point = [u], None, u
    for value in np.linspace(u[k], edge, SCAN + 1)[1:]:
        # From the best point so far: the other coordinate changes slowly along the profile.
        top = _profile(problem, _moved(point, k, value), k)
        point = top.where
        if top.log_likelihood >= level:
            found.append(point)
            beyond = None
        elif beyond is None:
            beyond = float(value)
    if beyond is None:
        return found
    last = found[-1]

    def above(value: float) -> float:
        return _profile(problem, _moved(last, k, value), k).log_likelihood - level

    if above(beyond) < 0.0:
        end = float(brentq(above, float(last[k]), beyond, xtol=0.01))
        found.append(_profile(problem, _moved(last, k, end), k).where)
    return found


def _moved(point: Float, k: int, value: float) -> Float:
    moved = point.copy()
    moved[k] = value
    return moved
