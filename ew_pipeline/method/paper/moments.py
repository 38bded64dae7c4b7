"""Step 2 as the paper specifies it: theta by matching moments of the count distribution.

Eq. (optimize-F), section 3.3:

    theta^ = argmin_theta  sum_{t=0}^{T-1} ( g_t(theta, M^/e(theta)) - |{X <= t}| / |Omega| )^2

with g_t(theta, M) the expected share of counts at most t, the mean over entries of
p_A P_Anom(X <= t) + (1 - p_A) P(X <= t), and e(theta) = p_A g(alpha) + 1 - p_A the scale that M^ carries.

T. The paper takes T = d + 1 for alpha in R^d: as many moments as theta has parameters. Our alpha is one
number, or none (``zero``), so T is 2 or 1 unless given. More moments are allowed; all weigh the same.

Where we deviate: p_A is searched up to a cap, not to 1, and g_t averages over the observed entries, not
over all n x m (appendix "Proof of Lemma step2-F"), which are the same in expectation under uniform Omega
and not otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.method._grouping import group_entries
from ew_pipeline.method.anomalies import AnomalyModel, mean_scale
from ew_pipeline.method.noise import NoiseModel, Poisson
from ew_pipeline.method.paper.likelihood import (
    ALPHA_BOUNDS,
    RATE_BOUNDS,
    MixtureProblem,
    ThetaEstimate,
    grouped,
    on_bound,
)

GRID = (0.02, 0.1, 0.25, 0.45, 0.7, 0.95)  # places in the range of each parameter
POLISHED = 3  # of the best grid points
UNGROUPED = 1000  # up to so many rates are taken one by one


def match_moments(
    counts: ArrayLike,
    scaled_rates: ArrayLike,
    anomaly: AnomalyModel,
    n_moments: int | None = None,
    *,
    noise: NoiseModel | None = None,
    alpha_bounds: tuple[float, float] = ALPHA_BOUNDS,
    rate_bounds: tuple[float, float] = RATE_BOUNDS,
) -> ThetaEstimate:
    """theta whose expected shares of counts <= 0, 1, ..., T-1 are nearest to the observed ones.

    Parameters
    ----------
    counts, scaled_rates : the observed entries; the rates estimate e(theta) M*, as Step 1 gives them.
    anomaly : the law of anomalous sales.
    n_moments : T; by default the number of free parameters of theta.
    noise : the law of healthy sales; Poisson, as in the paper, if not given. Counts must be whole.
    alpha_bounds, rate_bounds : where theta may lie.

    The log-likelihoods of the result are those of this estimate, not maxima.
    """
    x = np.ravel(np.asarray(counts, dtype=np.float64))
    rates = np.ravel(np.asarray(scaled_rates, dtype=np.float64))
    problem = MixtureProblem(
        x, rates, anomaly, Poisson() if noise is None else noise, True, alpha_bounds, rate_bounds
    )
    if np.any(x != np.floor(x)):
        raise DataError(
            "The moments are shares of whole counts, and some counts are fractions.",
            "use maximum_likelihood for continuous data.",
        )
    n_free = len(problem.ranges)
    n_moments = n_free if n_moments is None else n_moments
    if n_moments < n_free:
        raise UsageError(
            f"{n_moments} moments cannot determine {n_free} parameters.",
            f"set n_moments to {n_free} or more.",
        )
    observed = np.array([np.mean(x <= t) for t in range(n_moments)])
    levels, weights = _levels(rates)

    def gap(point: Float) -> Float:
        alpha, rate = (point[0], point[1]) if problem.alpha_is_free else (problem.alpha_bounds[0], point[0])
        shares = _expected_shares(levels, weights, alpha, rate, problem, n_moments)
        return np.asarray(shares - observed, dtype=np.float64)

    low, high = np.array(problem.ranges).T
    places = np.stack(np.meshgrid(*[GRID] * n_free, indexing="ij"), axis=-1).reshape(-1, n_free)
    points = sorted(
        (low + place * (high - low) for place in places), key=lambda p: float(np.sum(gap(p) ** 2))
    )
    fits = [
        least_squares(gap, point, bounds=(low, high), x_scale=high - low, xtol=1e-10, ftol=1e-12, gtol=1e-12)
        for point in points[:POLISHED]
    ]
    best = min(fits, key=lambda fit: float(fit.cost))
    alpha, rate = problem.at(problem.unbounded(best.x[0], best.x[-1]))
    problem = grouped(problem)
    return ThetaEstimate(
        alpha=alpha,
        anomaly_rate=rate,
        log_likelihood=problem.log_likelihood(alpha, rate),
        log_likelihood_null=problem.log_likelihood(alpha, 0.0),
        at_bound=on_bound(problem, alpha, rate),
        converged=bool(best.success),
        n_evaluations=len(points) + sum(int(fit.nfev) for fit in fits),
        alpha_bounds=problem.alpha_bounds,
        rate_bounds=problem.rate_bounds,
    )


def _expected_shares(
    levels: Float, weights: Float, alpha: float, rate: float, problem: MixtureProblem, n_moments: int
) -> Float:
    """g_0, ..., g_{T-1} at (theta, M^/e(theta))."""
    M = levels / mean_scale(alpha, rate, problem.anomaly)
    shares = [
        (1.0 - rate) * np.exp(problem.noise.log_pmf(t, M))
        + rate * np.exp(problem.anomaly.log_pmf(t, M, alpha))
        for t in range(n_moments)
    ]
    return np.cumsum(np.asarray(shares) @ weights)


def _levels(rates: Float) -> tuple[Float, Float]:
    """The rates and the share of entries each stands for: g_t needs nothing else of the entries."""
    if rates.size <= UNGROUPED:
        return rates, np.full(rates.size, 1.0 / rates.size)
    _, levels, weights = group_entries(np.zeros(rates.size), rates)
    return levels, weights / rates.size
