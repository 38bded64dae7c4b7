"""Step 2 by maximum likelihood: theta = (alpha, p_A) from the mixture of healthy and anomalous sales.

L(theta) = sum over Omega of log[(1 - p_A) P(X | M) + p_A P_Anom(X | alpha, M)]  (the denominator of
Eq. (fij-star), section 3.3). Two readings of the rates that come from Step 1:

- ``rates_are_scaled=False``: they estimate M* itself (a cavity predictive, or a factorisation that has
  weighted the anomalies out);
- ``rates_are_scaled=True``: they estimate E[X] = e(theta) M*, and the likelihood is taken at
  rates / e(theta), as the paper does for its practical variant (section 3.3, "Extending to continuous
  noise models").

Where we deviate: p_A is capped (default 0.4), because a mixture does not know which of its components is
the anomaly, and an estimate on a bound is reported as such. An entry that is impossible under both
components (a sale where the rate is zero) adds a constant instead of making every theta impossible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Float, Int64
from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.kernels import njit
from ew_pipeline.method._grouping import WORTHWHILE, group_entries
from ew_pipeline.method.anomalies import AnomalyModel, mean_scale
from ew_pipeline.method.noise import NegativeBinomial, NoiseModel
from ew_pipeline.method.paper._scoring import Top, climb, from_unbounded, to_unbounded

ALPHA_BOUNDS = (0.001, 1.0)
RATE_BOUNDS = (1e-4, 0.4)
STARTS = tuple((alpha, 0.08) for alpha in (0.002, 0.02, 0.12, 0.25, 0.4, 0.6, 0.85))

ON_BOUND = 1e-3  # share of the range that counts as the bound
IMPOSSIBLE = -1e4  # log-likelihood of an entry that neither component can produce
EXPLORE = 2000  # entries on which the starts are compared
SAME_TOP = 0.5  # two climbs that end this close, on the unbounded scale, found the same optimum
BEATS_NULL = 0.01  # gain in log-likelihood below which "no anomalies" is the answer


@dataclass(frozen=True)
class ThetaEstimate:
    """Where Step 2 ended, and what it was worth.

    Attributes
    ----------
    alpha, anomaly_rate : the estimate.
    log_likelihood, log_likelihood_null : of the estimate, and of "there are no anomalies" (p_A = 0).
    at_bound : names of the parameters that ended on a bound; empty is good.
    converged : the optimiser's own verdict.
    n_evaluations : passes over all entries in the final climbs.
    alpha_bounds, rate_bounds : where it was looked for.
    """

    alpha: float
    anomaly_rate: float
    log_likelihood: float
    log_likelihood_null: float
    at_bound: tuple[str, ...]
    converged: bool
    n_evaluations: int
    alpha_bounds: tuple[float, float]
    rate_bounds: tuple[float, float]


@dataclass(frozen=True, eq=False)
class MixtureProblem:
    """The data, the two laws and the ranges: everything the likelihood of theta depends on.

    ``weights`` counts how many entries each (count, rate) stands for; 1 for each if not given.
    """

    counts: Float
    rates: Float
    anomaly: AnomalyModel
    noise: NoiseModel
    rates_are_scaled: bool
    alpha_bounds: tuple[float, float] = ALPHA_BOUNDS
    rate_bounds: tuple[float, float] = RATE_BOUNDS
    weights: Float | None = None

    def __post_init__(self) -> None:
        if self.counts.shape != self.rates.shape or self.counts.ndim != 1 or self.counts.size == 0:
            raise DataError(
                f"theta needs one rate per count: {self.counts.shape} counts, {self.rates.shape} rates.",
                "pass the observed entries as two 1-D arrays of the same length, at least one entry.",
            )
        broken = np.flatnonzero(~(np.isfinite(self.counts) & np.isfinite(self.rates)))
        if broken.size:
            raise DataError(
                f"{broken.size} entries have a count or rate that is not a finite number"
                f" (positions {name_some(broken, broken.size)}).",
                "leave them out of the observed set, or repair the rates.",
            )
        if not 0.0 < self.rate_bounds[0] < self.rate_bounds[1] < 1.0:
            raise UsageError(
                f"rate_bounds are {self.rate_bounds}.",
                "give two numbers 0 < low < high < 1, e.g. (1e-4, 0.4).",
            )
        low, high = self.anomaly.alpha_bounds
        if low < high:
            low, high = max(low, self.alpha_bounds[0]), min(high, self.alpha_bounds[1])
        if low > high:
            raise UsageError(
                f"alpha_bounds are {self.alpha_bounds}, and the anomaly model {self.anomaly.name!r} has"
                f" {self.anomaly.alpha_bounds}: nothing is in both.",
                "leave alpha_bounds out, or make them overlap.",
            )
        object.__setattr__(self, "alpha_bounds", (low, high))

    @property
    def alpha_is_free(self) -> bool:
        """False for a family without a parameter, such as ``zero``."""
        return self.alpha_bounds[0] < self.alpha_bounds[1]

    @property
    def ranges(self) -> tuple[tuple[float, float], ...]:
        """Bounds of the free parameters, alpha first."""
        return (self.alpha_bounds, self.rate_bounds) if self.alpha_is_free else (self.rate_bounds,)

    def log_likelihood(self, alpha: float, anomaly_rate: float) -> float:
        """L(theta), on the scale of the rates that ``rates_are_scaled`` says."""
        return float(self._weights @ self.entry_log_likelihood(alpha, anomaly_rate))

    def entry_log_likelihood(self, alpha: float, anomaly_rate: float) -> Float:
        """The terms of L(theta), one per entry, without the weights."""
        if self.rates_are_scaled:
            rates = self.rates / mean_scale(alpha, anomaly_rate, self.anomaly)
            log_healthy = self.noise.log_pmf(self.counts, rates)
        else:
            rates, log_healthy = self.rates, self._log_healthy
        out = np.empty(self.counts.size)
        _mixture_terms(log_healthy, self.anomaly.log_pmf(self.counts, rates, alpha), anomaly_rate, out)
        return out

    def at(self, u: Float) -> tuple[float, float]:
        """(alpha, anomaly_rate) at a point of the unbounded scale."""
        values = [from_unbounded(v, bounds) for v, bounds in zip(u, self.ranges, strict=True)]
        return (values[0], values[1]) if self.alpha_is_free else (self.alpha_bounds[0], values[0])

    def unbounded(self, alpha: float, anomaly_rate: float) -> Float:
        """The point of the unbounded scale at (alpha, anomaly_rate): logit of the place in the range."""
        values = (alpha, anomaly_rate) if self.alpha_is_free else (anomaly_rate,)
        return np.array([to_unbounded(v, bounds) for v, bounds in zip(values, self.ranges, strict=True)])

    def climb(self, start: Float, free: tuple[int, ...] | None = None) -> Top:
        """The local optimum of L above ``start``, both on the unbounded scale."""
        return climb(lambda u: self.entry_log_likelihood(*self.at(u)), self._weights, start, free)

    def select(self, entries: Int64) -> MixtureProblem:
        """The same problem on some of the entries."""
        noise = self.noise
        if isinstance(noise, NegativeBinomial) and np.ndim(noise.size) > 0:
            noise = NegativeBinomial(np.asarray(noise.size)[entries])
        return replace(
            self,
            counts=self.counts[entries],
            rates=self.rates[entries],
            noise=noise,
            weights=self._weights[entries],
        )

    @cached_property
    def _log_healthy(self) -> Float:
        return self.noise.log_pmf(self.counts, self.rates)

    @cached_property
    def _weights(self) -> Float:
        return np.ones(self.counts.size) if self.weights is None else self.weights


def maximum_likelihood(
    counts: ArrayLike,
    rates: ArrayLike,
    anomaly: AnomalyModel,
    noise: NoiseModel,
    *,
    rates_are_scaled: bool,
    alpha_bounds: tuple[float, float] = ALPHA_BOUNDS,
    rate_bounds: tuple[float, float] = RATE_BOUNDS,
    starts: Iterable[tuple[float, float]] = STARTS,
) -> ThetaEstimate:
    """The theta that makes the observed counts most likely, given rates from Step 1.

    Parameters
    ----------
    counts, rates : the observed entries, 1-D, in the same order.
    anomaly, noise : the two laws; built-in or your own, discrete or continuous.
    rates_are_scaled : whether the rates estimate e(theta) M* (True) or M* (False).
    alpha_bounds, rate_bounds : where theta may lie; alpha's also by the family's own bounds.
    starts : (alpha, anomaly_rate) pairs to climb from; those outside the bounds are moved inside.
    """
    x = np.ravel(np.asarray(counts, dtype=np.float64))
    problem = MixtureProblem(
        x, _broadcast(rates, x), anomaly, noise, rates_are_scaled, alpha_bounds, rate_bounds
    )
    return maximise(problem, starts)


def maximise(problem: MixtureProblem, starts: Iterable[tuple[float, float]] = STARTS) -> ThetaEstimate:
    """Climb from the best starts and keep the highest top.

    Two components that overlap can make several tops along alpha. So each start first climbs in p_A
    alone, on a part of the entries if there are many, and those that then stand higher than their
    neighbours in alpha are climbed in full.
    """
    points = [problem.unbounded(alpha, rate) for alpha, rate in sorted(starts)]
    if not points:
        raise UsageError("starts is empty.", "give at least one (alpha, anomaly_rate).")
    if len(points) > 1:
        points = _summits(_part(problem), points)
    problem = grouped(problem)
    tops = [problem.climb(point) for point in points]
    best = max(tops, key=lambda top: top.log_likelihood)
    # "No anomalies" is a local optimum that perhaps no start led to; on a flat likelihood it is the answer.
    none = _without_anomalies(problem, best)
    if best.log_likelihood < none.log_likelihood + BEATS_NULL:
        best = none
    alpha, rate = problem.at(best.where)
    return ThetaEstimate(
        alpha=alpha,
        anomaly_rate=rate,
        log_likelihood=best.log_likelihood,
        log_likelihood_null=problem.log_likelihood(alpha, 0.0),
        at_bound=on_bound(problem, alpha, rate),
        converged=best.converged,
        n_evaluations=sum(top.n_evaluations for top in tops) + 2,
        alpha_bounds=problem.alpha_bounds,
        rate_bounds=problem.rate_bounds,
    )


def on_bound(problem: MixtureProblem, alpha: float, anomaly_rate: float) -> tuple[str, ...]:
    """Names of the free parameters within a thousandth of their range of an end of it."""
    places = {"anomaly_rate": (anomaly_rate, problem.rate_bounds)}
    if problem.alpha_is_free:
        places = {"alpha": (alpha, problem.alpha_bounds), **places}
    return tuple(
        name
        for name, (value, (low, high)) in places.items()
        if min(value - low, high - value) < ON_BOUND * (high - low)
    )


def _without_anomalies(problem: MixtureProblem, top: Top) -> Top:
    """The alpha of ``top`` with the anomaly rate on its lower bound."""
    alpha, rate = problem.at(top.where)[0], problem.rate_bounds[0]
    return Top(problem.unbounded(alpha, rate), problem.log_likelihood(alpha, rate), top.converged, 1)


def _part(problem: MixtureProblem) -> MixtureProblem:
    """At most EXPLORE of the entries, or all if they are not twice as many."""
    n = problem.counts.size
    if n <= 2 * EXPLORE:
        return problem
    # Multiples of the golden ratio are spread evenly and fall in step with no row length.
    spread = np.modf(np.arange(EXPLORE) * ((math.sqrt(5.0) - 1.0) / 2.0))[0]
    return problem.select(np.unique((spread * n).astype(np.int64)))


def _summits(problem: MixtureProblem, points: list[Float]) -> list[Float]:
    """The points, in order of alpha, that are higher than both neighbours once p_A is at its best,
    each climbed as far as the problem allows; without repetitions."""
    p_only = (points[0].size - 1,)
    tops = [problem.climb(point, p_only) for point in points]
    heights = [-math.inf, *(top.log_likelihood for top in tops), -math.inf]
    found: list[Float] = []
    for k, top in enumerate(tops, start=1):
        if heights[k] >= max(heights[k - 1], heights[k + 1]):
            where = problem.climb(top.where).where
            if all(np.max(np.abs(where - other)) > SAME_TOP for other in found):
                found.append(where)
    return found


def grouped(problem: MixtureProblem) -> MixtureProblem:
    """The same likelihood in fewer terms, where there are very many and they allow it."""
    per_entry = isinstance(problem.noise, NegativeBinomial) and np.ndim(problem.noise.size) > 0
    if problem.counts.size < WORTHWHILE or problem.weights is not None or per_entry:
        return problem
    if np.any(problem.counts != np.floor(problem.counts)) or np.any(problem.counts < 0.0):
        return problem  # continuous data: hardly two entries are alike
    counts, rates, weights = group_entries(problem.counts, problem.rates)
    return replace(problem, counts=counts, rates=rates, weights=weights)


def _broadcast(rates: ArrayLike, counts: Float) -> Float:
    values = np.asarray(rates, dtype=np.float64)
    return np.full(counts.size, float(values)) if values.ndim == 0 else values.ravel()


@njit
def _mixture_terms(log_healthy: Float, log_anomalous: Float, rate: float, out: Float) -> None:
    """log[(1 - p) e^l0 + p e^l1] per entry, from the larger of the two so that nothing overflows."""
    log_prior_healthy = math.log1p(-rate)
    log_prior_anomalous = math.log(rate) if rate > 0.0 else -math.inf
    for e in range(log_healthy.size):
        a = log_healthy[e] + log_prior_healthy
        b = log_anomalous[e] + log_prior_anomalous
        high = max(a, b)
        out[e] = IMPOSSIBLE if high < IMPOSSIBLE else high + math.log1p(math.exp(min(a, b) - high))
