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
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, gammaln

from ew_pipeline.algorithm import _mixture_kernels as mixture
from ew_pipeline.algorithm import _variational_kernels as kernels
from ew_pipeline.algorithm.factors import LowRankFactors
from ew_pipeline.algorithm.families import ExposureFamily
from ew_pipeline.algorithm.intervals import ThetaIntervals, Z, to_theta
from ew_pipeline.algorithm.likelihood import ThetaEstimate
from ew_pipeline.algorithm.theta import Theta
from ew_pipeline.algorithm.types import Bool, Float, Int32, Int64
from ew_pipeline.data.sales_matrix import SalesMatrix

ALPHA_BOUNDS = (0.001, 1.0)
RATE_BOUNDS = (1e-4, 0.4)
INVERSE_SIZE_BOUNDS = (1e-4, 4.0)
SHAPE_BOUNDS = (0.3, 2.0)  # a larger prior shape lets the two components swap roles
WARM_UP_SWEEPS = 30
CAVITY_EVERY = 10
RATE_ERROR_WIDENING = (
    1.5  # the information takes M as known; on the paper's ensemble this restores 90% coverage
)


@dataclass(frozen=True, eq=False)
class Observations:
    """The observed entries in the forms the kernels want; built once, shared by all fits."""

    sales: SalesMatrix
    counts: Float
    log_factorial: Float
    level: Float
    row_entry: Int64
    col_indptr: Int64
    col_rows: Int32
    col_entry: Int64

    @classmethod
    def of(cls, sales: SalesMatrix, level: Float | None = None) -> Observations:
        counts = sales.counts.astype(np.float64)
        by_column = sales.by_column
        return cls(
            sales=sales,
            counts=counts,
            log_factorial=np.asarray(gammaln(counts + 1.0)),
            level=np.ones_like(counts) if level is None else np.asarray(level, dtype=np.float64),
            row_entry=np.arange(counts.size, dtype=np.int64),
            col_indptr=by_column.indptr,
            col_rows=by_column.rows,
            col_entry=by_column.entry,
        )


@dataclass(frozen=True)
class Parameters:
    """theta with the noise: alpha, p_A and 1 / s0 (0 for Poisson)."""

    alpha: float
    anomaly_rate: float
    inverse_size: float


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

    @property
    def rank(self) -> int:
        return int(self.left.shape[1])

    @property
    def factors(self) -> LowRankFactors:
        return LowRankFactors(self.left, self.right)


class _Factors:
    """Working arrays of one run: the variational Gamma posterior of U and V."""

    def __init__(self, left: Float, right: Float):
        self.mean = [np.array(left), np.array(right)]
        self.geo = [np.array(left), np.array(right)]
        self.shape = [np.ones_like(left), np.ones_like(right)]
        self.rate = [np.ones_like(left), np.ones_like(right)]
        self.prior_shape = [1.0, 1.0]

    def sweep(self, data: Observations, exposed: Float) -> None:
        sales = data.sales
        views = (
            (sales.indptr, sales.cols, data.row_entry),
            (data.col_indptr, data.col_rows, data.col_entry),
        )
        for side, (indptr, others, entry) in enumerate(views):
            a = self.prior_shape[side]
            b = a / max(float(self.mean[side].mean()), 1e-12)
            kernels.update_side(
                indptr,
                others,
                entry,
                data.counts,
                exposed,
                self.mean[1 - side],
                self.geo[1 - side],
                a,
                b,
                self.shape[side],
                self.rate[side],
                self.mean[side],
                self.geo[side],
            )

    def update_prior_shapes(self) -> None:
        """Gamma-shape maximum likelihood for each side, kept in SHAPE_BOUNDS."""
        for side in (0, 1):
            gap = math.log(float(self.mean[side].mean())) - kernels.mean_log(
                self.shape[side], self.rate[side]
            )
            self.prior_shape[side] = min(max(gamma_shape(gap), SHAPE_BOUNDS[0]), SHAPE_BOUNDS[1])


def gamma_shape(gap: float) -> float:
    """The shape a with log a - digamma(a) = gap, by Minka's approximation and one Newton step."""
    if gap <= 1e-6:
        return 1e6
    a = (3.0 - gap + math.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(2):
        step = math.log(a) - kernels.digamma(a) - gap
        slope = 1.0 / a - (kernels.digamma(a * 1.001) - kernels.digamma(a)) / (0.001 * a)
        a = max(a - step / slope, 1e-3)
    return a


def start_factors(data: Observations, rank: int, rng: np.random.Generator) -> tuple[Float, Float]:
    """Row and column means of the ratio to the level, times mild Gamma noise, over sqrt(rank)."""
    sales = data.sales
    n, m = sales.shape
    overall = max(data.counts.sum() / data.level.sum(), 1e-9)

    def means(index: Int32, size: int) -> Float:
        counts = np.bincount(index, weights=data.counts, minlength=size)
        level = np.bincount(index, weights=data.level, minlength=size)
        ratio = (counts + overall) / (level + 1.0)
        return np.asarray(np.maximum(ratio / overall, 0.05))

    noise_left = rng.gamma(4.0, 0.25, (n, rank))
    noise_right = rng.gamma(4.0, 0.25, (m, rank))
    left = means(sales.rows, n)[:, None] * noise_left / math.sqrt(rank)
    right = overall * means(sales.cols, m)[:, None] * noise_right / math.sqrt(rank)
    return left, right


def fit_theta(
    data: Observations,
    means: Float,
    cv2: Float,
    family: ExposureFamily,
    start: Parameters,
    *,
    seen: Float,
    learn_size: bool,
    iterations: int,
    anomalies: bool = True,
) -> tuple[Parameters, Float, Float]:
    """Scoring steps for (alpha, p_A, s0) on the cavity predictive, in logit and log space.

    Returns the parameters with the healthy and anomalous log-likelihoods of every entry there.
    """
    lows = np.array([ALPHA_BOUNDS[0], RATE_BOUNDS[0], INVERSE_SIZE_BOUNDS[0]])
    highs = np.array([ALPHA_BOUNDS[1], RATE_BOUNDS[1], INVERSE_SIZE_BOUNDS[1]])
    free = np.array([family.alpha_free and anomalies, anomalies, learn_size])
    span = highs - lows
    values = np.array([start.alpha, start.anomaly_rate, start.inverse_size])
    inner = np.clip(values, lows + 1e-3 * span, highs - 1e-3 * span)
    values = np.where(free, inner, values)
    n = data.counts.size
    step_size = 0.02

    def healthy(inverse_size: float) -> Float:
        out = np.empty(n)
        mixture.healthy_log_pmf(data.counts, data.log_factorial, means, cv2, inverse_size, out)
        return out

    fixed = None if learn_size else (healthy(values[2]), np.zeros(n))

    def evaluate(at: Float) -> tuple[float, Float, Float, Float, Float]:
        if fixed is None:
            log_healthy = healthy(at[2])
            slope = (healthy(at[2] * math.exp(step_size)) - log_healthy) / (at[2] * step_size)
        else:
            log_healthy, slope = fixed
        log_anomalous, slope_anomalous = family.terms(data, means, at[0])
        total, gradient, outer = mixture.mixture_scores(
            log_healthy, slope, log_anomalous, slope_anomalous, seen, at[1]
        )
        return total, gradient, outer, log_healthy, log_anomalous

    best = evaluate(values)
    for _ in range(iterations):
        total, gradient, outer, _, _ = best
        jacobian = np.where(free, (values - lows) * (highs - values) / span, 0.0)
        g = gradient * jacobian
        h = outer * np.outer(jacobian, jacobian) + np.diag(np.where(free, 1e-6 * n, 1.0))
        direction = np.clip(np.linalg.solve(h, g), -1.5, 1.5)
        logits = np.log(np.maximum(values - lows, 1e-12) / np.maximum(highs - values, 1e-12))
        moved = False
        for damping in (1.0, 0.5, 0.2, 0.05):
            trial = lows + span / (1.0 + np.exp(-np.clip(logits + damping * direction, -12, 12)))
            trial = np.where(free, trial, values)
            result = evaluate(trial)
            if result[0] > total:
                moved = True
                break
        if not moved:
            break
        gain = result[0] - total
        values, best = trial, result
        if gain < 1e-4:
            break
    return Parameters(float(values[0]), float(values[1]), float(values[2])), best[3], best[4]


def fit_variational(
    data: Observations,
    family: ExposureFamily,
    start: tuple[Float, Float],
    *,
    negative_binomial: bool,
    parameters: Parameters | None = None,
    held_out: Bool | None = None,
    anomalies: bool = True,
    max_sweeps: int = 400,
    tolerance: float = 1e-4,
) -> VariationalFit:
    """Run coordinate ascent from ``start`` until the leave-one-out predictive settles.

    ``parameters`` warm-starts theta (and skips the warm-up with all exposures one); ``held_out`` entries
    are scored but not seen; without ``anomalies`` p_A is zero: the null model.
    """
    factors = _Factors(*start)
    n = data.counts.size
    seen = np.ones(n) if held_out is None else (~held_out).astype(np.float64)
    exposed = data.level * seen
    means = np.empty(n)
    cavity = np.empty(n)
    cv2 = np.empty(n)
    healthy = np.ones(n)
    score = -math.inf
    converged = False
    theta = parameters
    sweep = 0
    for _ in range(5 if parameters else WARM_UP_SWEEPS):
        factors.sweep(data, exposed)
        sweep += 1
    log_healthy = log_anomalous = np.empty(0)
    while True:
        variance = _cavity(data, factors, exposed, means, cavity, cv2)
        log_healthy, log_anomalous, theta = _update_theta(
            data, cavity, cv2, family, theta, negative_binomial, seen, anomalies
        )
        previous, score = (
            score,
            mixture.healthy_share(log_healthy, log_anomalous, theta.anomaly_rate, healthy),
        )
        converged = abs(score - previous) < tolerance * n
        if converged or sweep >= max_sweeps:
            break
        for _ in range(CAVITY_EVERY):
            kernels.entry_rates(data.sales.indptr, data.sales.cols, factors.mean[0], factors.mean[1], means)
            exposed = family.weights(data, means * data.level, healthy, theta.alpha, theta.inverse_size)
            exposed *= seen
            factors.sweep(data, exposed)
            sweep += 1
        if sweep >= 20:
            factors.update_prior_shapes()
    entry_scores = log_healthy + np.log1p(
        theta.anomaly_rate * np.expm1(np.minimum(log_anomalous - log_healthy, 600.0))
    )
    return VariationalFit(
        left=factors.mean[0],
        right=factors.mean[1],
        means=means * data.level,
        cavity_means=cavity,
        cavity_cv2=cv2,
        cv2=variance / means**2,
        healthy_probability=healthy,
        entry_scores=entry_scores,
        parameters=theta,
        prior_shapes=(factors.prior_shape[0], factors.prior_shape[1]),
        score=float(score),
        null_score=float(log_healthy.sum()),
        n_sweeps=sweep,
        converged=converged,
    )


def _cavity(
    data: Observations, factors: _Factors, exposed: Float, means: Float, cavity: Float, cv2: Float
) -> Float:
    """Leave-one-out means (with the level) and squared coefficients of variation, in place; returns the
    in-sample variance of M."""
    sales = data.sales
    kernels.entry_rates(sales.indptr, sales.cols, factors.mean[0], factors.mean[1], means)
    variance = np.zeros(means.size)
    ridges = [
        (a / max(float(mean.mean()), 1e-12)) ** 2 / a
        for a, mean in zip(factors.prior_shape, factors.mean, strict=True)
    ]
    kernels.side_variance(
        sales.indptr, sales.cols, data.row_entry, exposed, means, factors.mean[1], ridges[0], variance
    )
    kernels.side_variance(
        data.col_indptr, data.col_rows, data.col_entry, exposed, means, factors.mean[0], ridges[1], variance
    )
    kernels.leave_one_out(data.counts, exposed, means, variance, cavity, cv2)
    cavity *= data.level
    return variance


def _update_theta(
    data: Observations,
    cavity: Float,
    cv2: Float,
    family: ExposureFamily,
    theta: Parameters | None,
    negative_binomial: bool,
    seen: Float,
    anomalies: bool,
) -> tuple[Float, Float, Parameters]:
    """From two starts the first time, then a few scoring steps from where theta is."""
    inverse_size = 0.2 if negative_binomial else 0.0
    if theta is not None:
        starts, iterations = [theta], 3
    else:
        starts = [Parameters(0.2, 0.1, inverse_size), Parameters(0.6, 0.05, inverse_size)]
        iterations = 8
    if negative_binomial:
        starts = [replace(t, inverse_size=max(t.inverse_size, 1e-3)) for t in starts]
    if not anomalies:
        starts = [replace(starts[0], anomaly_rate=0.0)]
    results = []
    for start in starts:
        parameters, log_healthy, log_anomalous = fit_theta(
            data,
            cavity,
            cv2,
            family,
            start,
            seen=seen,
            learn_size=negative_binomial,
            iterations=iterations,
            anomalies=anomalies,
        )
        scratch = np.empty(log_healthy.size)
        total = mixture.healthy_share(log_healthy, log_anomalous, parameters.anomaly_rate, scratch)
        results.append((total, log_healthy, log_anomalous, parameters))
    _, log_healthy, log_anomalous, parameters = max(results, key=lambda item: item[0])
    return log_healthy, log_anomalous, parameters


def information_theta(
    data: Observations, fit: VariationalFit, family: ExposureFamily, null_gain: float
) -> Theta:
    """theta of a fit with 90% intervals from the empirical information on the logit scale."""
    n = data.counts.size
    p = fit.parameters
    log_healthy = np.empty(n)
    mixture.healthy_log_pmf(
        data.counts, data.log_factorial, fit.cavity_means, fit.cavity_cv2, p.inverse_size, log_healthy
    )
    log_anomalous, slope = family.terms(data, fit.cavity_means, p.alpha)
    _, _, outer = mixture.mixture_scores(
        log_healthy, np.zeros(n), log_anomalous, slope, np.ones(n), p.anomaly_rate
    )
    alpha_bounds = ALPHA_BOUNDS if family.alpha_free else (0.0, 0.0)
    values = (p.alpha if family.alpha_free else 0.0, p.anomaly_rate)
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
        log_likelihood=fit.score,
        log_likelihood_null=fit.score - null_gain,
        at_bound=edges,
        converged=fit.converged,
        n_evaluations=0,
        alpha_bounds=alpha_bounds,
        rate_bounds=RATE_BOUNDS,
    )
    alpha_ends = ends.get(0, (0.0, 0.0))
    return to_theta(
        estimate,
        ThetaIntervals((alpha_ends[0], alpha_ends[1]), (ends[1][0], ends[1][1]), "information"),
    )
