"""Step 1 and 2 together: variational Gamma-Poisson factorisation with cavity estimates of theta.

Model: X ~ Poisson(E L M), M = U V^T with U, V ~ Gamma(a, b); the exposure E is 1 (or Gamma with
mean 1 and shape s0: negative binomial noise) for a healthy pair, and the anomaly family's for an
anomalous one. L is a known level per pair (1 without history).

Where we deviate from Algorithm 1 of the paper: its steps run once, one after the other. Here theta
feeds back into the factorisation, so that anomalous pairs do not drag M down, and both theta and f
come from the *cavity* (leave-one-out) predictive: in-sample, M has already absorbed part of each
anomaly, which biases p_A by about -0.05 on the paper's ensemble.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Bool, Float, Float32, Int32
from ew_pipeline.method._kernels import mixture
from ew_pipeline.method.factors import LowRankFactors, gather
from ew_pipeline.method.families import ExposureFamily, GammaExposure
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.variational import _sweep_kernels as kernels
from ew_pipeline.method.variational._variational_kernels import digamma, leave_one_out
from ew_pipeline.method.variational.axis_rates import AxisRates, line_scale, update_axis
from ew_pipeline.method.variational.theta import Parameters, update_theta

SHAPE_BOUNDS = (0.3, 2.0)  # a larger prior shape lets the two components swap roles
SMALLEST_RATE = 1e-12
WARM_UP_SWEEPS = 30
CAVITY_EVERY = 10
SWEEPS_PER_WEIGHING = 5  # of a family without closed-form exposures
CONVERGED = 3e-4  # nats per entry that the predictive may still move in ten sweeps


@dataclass(frozen=True, eq=False)
class VariationalFit:
    """What one run at one rank ends with. ``score`` is the summed leave-one-out log predictive."""

    left: Float
    right: Float
    means: Float
    cavity_means: Float
    cavity_cv2: Float
    cv2: Float
    healthy_probability: Float
    entry_scores: Float
    parameters: Parameters
    prior_shapes: tuple[float, float]
    score: float
    null_score: float
    n_sweeps: int
    converged: bool
    axes: AxisRates | None = None

    @property
    def rank(self) -> int:
        return int(self.left.shape[1])

    @property
    def factors(self) -> LowRankFactors:
        return LowRankFactors(self.left, self.right)


class _Factors:
    """Working arrays of one run: the variational Gamma posterior of U and V, factor by factor."""

    def __init__(self, left: Float, right: Float):
        self.mean = [_by_factor(left), _by_factor(right)]
        self.geo = [_by_factor(left), _by_factor(right)]
        self.prior_shape = [1.0, 1.0]

    def sweep(self, data: Observations, exposed: Float32, seen: Float32, count: int = 1) -> None:
        """Sweeps with the exposures as they are."""
        self._sweep(data, exposed, seen, seen, count, None)

    def sweep_and_weigh(
        self,
        data: Observations,
        exposed: Float32,
        seen: Float32,
        healthy: Float,
        family: ExposureFamily,
        theta: Parameters,
        count: int,
    ) -> None:
        """Sweeps, with the exposures (in place) computed anew from f and theta.

        Before each sweep, or before some where a family's are dear: they move little between sweeps, and come
        to rest in the same place.
        """
        if isinstance(family, GammaExposure):
            self._sweep(data, exposed, seen, healthy.astype(np.float32), count, (family, theta))
            return
        means = np.empty(data.counts.size)
        for _ in range(max(count // SWEEPS_PER_WEIGHING, 1)):
            self.rates(data, means)
            exposed[:] = seen * family.weights(
                data, means * data.level, healthy, theta.alpha, theta.inverse_size
            )
            self.sweep(data, exposed, seen, min(count, SWEEPS_PER_WEIGHING))

    def _sweep(
        self,
        data: Observations,
        exposed: Float32,
        seen: Float32,
        healthy: Float32,
        count: int,
        law: tuple[GammaExposure, Parameters] | None,
    ) -> None:
        shape, shape_per_alpha, inverse_size = 0.0, kernels.NEVER, 0.0
        if law is not None:
            family, theta = law
            inverse_size = theta.inverse_size
            if family.alpha_free:
                shape, shape_per_alpha = family.s, family.s / theta.alpha
        kernels.sweeps(
            count,
            law is not None,
            data.sales.indptr,
            data.sales.cols,
            data.row_entry,
            data.counts32,
            data.col_indptr,
            data.col_rows,
            data.col_entry,
            data.col_counts32,
            data.level32,
            seen,
            healthy,
            shape,
            shape_per_alpha,
            inverse_size,
            self.prior_shape[0],
            self.prior_shape[1],
            self.mean[0],
            self.geo[0],
            self.mean[1],
            self.geo[1],
            exposed,
        )

    @property
    def left(self) -> Float:
        return np.ascontiguousarray(self.mean[0].T, dtype=np.float64)

    @property
    def right(self) -> Float:
        return np.ascontiguousarray(self.mean[1].T, dtype=np.float64)

    def rates(self, data: Observations, out: Float) -> None:
        """M at the observed entries, never zero."""
        gather(self.left, self.right, data.sales.indptr, data.sales.cols, SMALLEST_RATE, out)

    def scale(self, side: int, by: Float) -> None:
        """Multiply the factors of each line."""
        self.mean[side] *= by.astype(np.float32)
        self.geo[side] *= by.astype(np.float32)

    def update_prior_shapes(self) -> None:
        """Gamma-shape maximum likelihood for each side, kept in SHAPE_BOUNDS."""
        for side in (0, 1):
            gap = math.log(kernels.average(self.mean[side])) - kernels.mean_log(self.geo[side])
            self.prior_shape[side] = min(max(gamma_shape(gap), SHAPE_BOUNDS[0]), SHAPE_BOUNDS[1])


def _by_factor(factors: Float) -> Float32:
    return np.ascontiguousarray(factors.T, dtype=np.float32)


def gamma_shape(gap: float) -> float:
    """The shape a with log a - digamma(a) = gap, by Minka's approximation and one Newton step."""
    if gap <= 1e-6:
        return 1e6
    a = (3.0 - gap + math.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(2):
        step = math.log(a) - digamma(a) - gap
        slope = 1.0 / a - (digamma(a * 1.001) - digamma(a)) / (0.001 * a)
        a = max(a - step / slope, 1e-3)
    return a


def start_factors(data: Observations, rank: int, rng: np.random.Generator) -> tuple[Float, Float]:
    """Row and column means of the ratio to the level, times mild Gamma noise, over sqrt(rank)."""
    sales = data.sales
    n, m = sales.shape
    overall = max(data.counts.sum() / data.level.sum(), 1e-9)
    one_pair = float(data.level.mean())  # a row starts with one average pair's worth of the overall ratio

    def means(index: Int32, size: int) -> Float:
        counts = np.bincount(index, weights=data.counts, minlength=size)
        level = np.bincount(index, weights=data.level, minlength=size)
        ratio = (counts + overall * one_pair) / (level + one_pair)
        return np.asarray(np.maximum(ratio / overall, 0.05))

    noise_left = rng.gamma(4.0, 0.25, (n, rank))
    noise_right = rng.gamma(4.0, 0.25, (m, rank))
    left = means(sales.rows, n)[:, None] * noise_left / math.sqrt(rank)
    right = overall * means(sales.cols, m)[:, None] * noise_right / math.sqrt(rank)
    return left, right


def fit_variational(
    data: Observations,
    family: ExposureFamily,
    start: tuple[Float, Float],
    *,
    negative_binomial: bool,
    parameters: Parameters | None = None,
    held_out: Bool | None = None,
    anomalies: bool = True,
    axes: AxisRates | None = None,
    max_sweeps: int = 400,
    tolerance: float = 1e-4,
) -> VariationalFit:
    """Run coordinate ascent from ``start`` until the leave-one-out predictive settles.

    ``parameters`` warm-starts theta (and skips the warm-up with all exposures one); ``held_out`` entries
    are scored but not seen; without ``anomalies`` p_A is zero: the null model. ``axes``: stores and SKUs
    may have anomaly rates of their own, and these are where to start.
    """
    factors = _Factors(*start)
    n = data.counts.size
    seen = np.ones(n) if held_out is None else (~held_out).astype(np.float64)
    seen32 = seen.astype(np.float32)
    exposed = data.level32 * seen32
    clear = np.ones(n) if axes is None else axes.clear(data)
    means = np.empty(n)
    cavity = np.empty(n)
    cv2 = np.empty(n)
    healthy = np.ones(n)
    scores = np.empty(n)
    score = -math.inf
    theta = parameters
    sweep = 5 if parameters else WARM_UP_SWEEPS
    factors.sweep(data, exposed, seen32, sweep)
    while True:
        in_sample_cv2 = _cavity(data, factors, exposed, means, cavity, cv2)
        if axes is not None and theta is not None:
            axes = _update_axes(data, factors, family, axes, theta, seen, means, cavity, cv2)
            clear = axes.clear(data)
        found = update_theta(data, cavity, cv2, family, theta, negative_binomial, seen, clear, anomalies)
        theta = found.parameters
        mixture.healthy_share(
            found.log_healthy, found.log_anomalous, clear, theta.anomaly_rate, healthy, scores
        )
        previous, score = score, found.log_likelihood
        change = abs(score - previous) / n
        if change < tolerance or sweep >= max_sweeps:
            break
        factors.sweep_and_weigh(data, exposed, seen32, healthy, family, theta, CAVITY_EVERY)
        sweep += CAVITY_EVERY
        if sweep >= 20:
            factors.update_prior_shapes()
    return VariationalFit(
        left=factors.left,
        right=factors.right,
        means=means * data.level,
        cavity_means=cavity,
        cavity_cv2=cv2,
        cv2=in_sample_cv2,
        healthy_probability=healthy,
        entry_scores=scores,
        parameters=theta,
        prior_shapes=(factors.prior_shape[0], factors.prior_shape[1]),
        score=float(score),
        null_score=float((seen * found.log_healthy).sum()),
        n_sweeps=sweep,
        converged=change < CONVERGED,
        axes=axes,
    )


def _update_axes(
    data: Observations,
    factors: _Factors,
    family: ExposureFamily,
    axes: AxisRates,
    theta: Parameters,
    seen: Float,
    means: Float,
    cavity: Float,
    cv2: Float,
) -> AxisRates:
    """New rates by store and SKU; the demand of lines whose rate changes is scaled along, in place."""
    for side, index in enumerate((data.sales.rows, data.sales.cols)):
        if not axes.active[side]:
            continue
        updated = update_axis(axes, side, data, family, cavity, cv2, seen, theta)
        by = line_scale(axes, updated, side, theta.anomaly_rate, family.mean_factor(theta.alpha))
        factors.scale(side, by)
        means *= by[index]
        cavity *= by[index]
        axes = updated
    return axes


def _cavity(
    data: Observations, factors: _Factors, exposed: Float32, means: Float, cavity: Float, cv2: Float
) -> Float:
    """Leave-one-out means (with the level) and squared coefficients of variation, in place; returns the
    in-sample squared coefficients of variation of M."""
    sales = data.sales
    factors.rates(data, means)
    variance = np.zeros(means.size)
    ridges = [
        (a / kernels.average(mean)) ** 2 / a
        for a, mean in zip(factors.prior_shape, factors.mean, strict=True)
    ]
    information = (exposed / means).astype(np.float32)
    kernels.side_variance(
        sales.indptr, sales.cols, data.row_entry, information, factors.mean[1], ridges[0], variance
    )
    kernels.side_variance(
        data.col_indptr, data.col_rows, data.col_entry, information, factors.mean[0], ridges[1], variance
    )
    leave_one_out(data.counts, exposed.astype(np.float64), means, variance, cavity, cv2)
    cavity *= data.level
    variance /= means
    variance /= means
    return variance
