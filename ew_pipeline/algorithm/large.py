"""Steps 1 and 2 together at national scale: scoring steps of the mixture's likelihood by alternating
regressions, with theta on leave-one-out predictions.

The model is that of ``variational.py`` (exposure form, two components, cavity estimates). The factors are
point estimates under Gaussian priors whose mean and covariance are learnt. A scoring step moves a whole
row at once where a coordinate-ascent sweep of Gamma factors creeps, so some twenty sweeps do what three
hundred do there; each is one pass over the entries by row and one by column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from ew_pipeline.algorithm import _mixture_kernels as mixture
from ew_pipeline.algorithm._als_kernels import Prior, Variance, gram
from ew_pipeline.algorithm._blocks import in_entry_blocks, in_line_blocks
from ew_pipeline.algorithm._cavity_kernels import leave_one_out_lines
from ew_pipeline.algorithm._healthy_kernels import healthy_entries
from ew_pipeline.algorithm._layout import padded
from ew_pipeline.algorithm.als import balanced, first_guess, rounded, sweep
from ew_pipeline.algorithm.binned import Bins, Grid, bin_counts
from ew_pipeline.algorithm.binned_theta import (
    CENSORED_FROM,
    BinnedFit,
    calibration,
    censored_terms,
    fit_binned,
)
from ew_pipeline.algorithm.both_ways import BothWays
from ew_pipeline.algorithm.cavity_theta import Parameters, entry_scores
from ew_pipeline.algorithm.families import ExposureFamily, GammaExposure, UniformExposure
from ew_pipeline.algorithm.selection import ACCEPT_NATS, NEGLIGIBLE_DISPERSION
from ew_pipeline.algorithm.types import Float, Float32, Int32, Real

RIDGE = 1.0  # until the priors are learnt; see ``als``
FLOOR = 0.05
UNIFORM_SHAPE = 3.0  # the Gamma exposure with the variance of a uniform one
SETTLED = 0.01  # of p_A, and in alpha: where another round changes nothing of note
CHUNK = 1 << 19  # entries that are scored at a time where a family is not compiled


@dataclass(frozen=True)
class Effort:
    """How much work a fit may spend, counted in passes over the entries by row and by column."""

    least_squares: int = 4
    poisson: int = 3
    rounds: int = 5
    sweeps: int = 3


FULL = Effort()
QUICK = Effort(least_squares=3, poisson=1, rounds=1, sweeps=2)


@dataclass(frozen=True, eq=False)
class LargeFit:
    """What ``fit_large`` ends with; arrays over the observed entries in row-major order.

    Attributes
    ----------
    left, right : U and V.
    means : demand as fitted. cavity : as predicted without the entry itself, calibrated; cv2 : its squared
        coefficient of variation.
    healthy : f.
    null_gain : nats of the binned likelihood over that without anomalies.
    rounds, sweeps : work done.
    """

    left: Real
    right: Real
    means: Float32
    cavity: Float32
    cv2: Float32
    healthy: Float32
    bins: Bins
    ratio: Float
    theta: BinnedFit
    null_gain: float
    rounds: int
    sweeps: int
    converged: bool

    @property
    def parameters(self) -> Parameters:
        return self.theta.parameters


def start_large(
    both: BothWays, rank: int, rng: np.random.Generator, effort: Effort, threads: int
) -> tuple[Real, Real]:
    """Least squares, then Poisson weights, every pair taken for healthy."""
    U, V = first_guess(both, rank, rng)
    priors = _ridge(both, rank)
    for done in range(effort.least_squares + effort.poisson):
        variance = Variance(constant=both.mean) if done < effort.least_squares else Variance()
        U, V, _ = sweep(
            both, U, V, priors=priors, floor=FLOOR * both.mean, variance=variance, threads=threads
        )
        U, V = balanced(U, V)
    return U, V


def fit_large(
    both: BothWays,
    family: ExposureFamily,
    start: tuple[Real, Real],
    *,
    noise: str,
    effort: Effort,
    threads: int,
) -> LargeFit:
    """Rounds of regressions and theta from ``start`` until theta settles.

    ``noise``: "poisson", "negative_binomial", or "auto": negative binomial where it is clearly better.
    """
    rows = both.by_row
    # Once for all rounds: getting memory from the system takes longer than most passes over it.
    means, cavity, cv2, predicted, healthy, turned = (
        np.empty(both.n_observed, dtype=np.float32) for _ in range(6)
    )
    state = FactorState.start(both, *start)
    variance = Variance()
    last: Parameters | None = None
    rounds, converged = 0, False
    while True:
        for _ in range(effort.sweeps):
            state.sweep(both, variance, threads)
        state.predict(both, variance, threads, means, cavity, cv2)
        bins = bin_counts(rows.counts, cavity, cv2, Grid.over(cavity, cv2), threads)
        ratio = calibration(bins)
        found = fit_noise(bins, ratio, family, noise, last)
        p = found.parameters
        scale = ratio / (1.0 - p.anomaly_rate * (1.0 - family.mean_factor(p.alpha)))
        bins.grid.scaled(scale, cavity, cv2, threads, predicted)
        healthy_probabilities(rows.counts, predicted, cv2, family, p, threads, healthy)
        rounds += 1
        converged = last is not None and settled(last, p)
        if converged or rounds == effort.rounds:
            break
        both = both.with_healthy(healthy, threads, turned)
        variance = variance_of(family, p)
        last = p
    null = fit_binned(found.terms, family, negative_binomial=p.inverse_size > 0.0, anomalies=False, start=p)
    # What the calibration adds overall: all of e(theta) after one round, next to nothing after several.
    lift = float(predicted.sum(dtype=np.float64) / cavity.sum(dtype=np.float64))
    means *= np.float32(lift)
    return LargeFit(
        left=state.left * state.left.dtype.type(lift),
        right=state.right,
        means=means,
        cavity=predicted,
        cv2=cv2,
        healthy=healthy,
        bins=bins,
        ratio=ratio,
        theta=found,
        null_gain=found.top.log_likelihood - null.top.log_likelihood,
        rounds=rounds,
        sweeps=state.sweeps,
        converged=found.top.converged and (converged or effort.rounds == 1),
    )


class FactorState:
    """Factors, their learnt priors and the inverse informations of all lines."""

    def __init__(self, left: Real, right: Real, priors: tuple[Prior, Prior]):
        self.left, self.right = left, right
        self.priors = priors
        rank = left.shape[1]
        self.inverses = tuple(
            np.empty((len(side), rank * (rank + 1) // 2), dtype=left.dtype) for side in (left, right)
        )
        self.sweeps = 0

    @classmethod
    def start(cls, both: BothWays, left: Real, right: Real) -> FactorState:
        return cls(left, right, _ridge(both, left.shape[1]))

    def sweep(self, both: BothWays, variance: Variance, threads: int) -> None:
        self.left, self.right, _ = sweep(
            both,
            self.left,
            self.right,
            priors=self.priors,
            floor=FLOOR * both.mean,
            variance=variance,
            threads=threads,
            inverses=(self.inverses[0], self.inverses[1]),
        )
        self.priors = learnt_prior(self.left, self.inverses[0]), learnt_prior(self.right, self.inverses[1])
        self.sweeps += 1

    def predict(
        self,
        both: BothWays,
        variance: Variance,
        threads: int,
        means: Float32,
        cavity: Float32,
        cv2: Float32,
    ) -> None:
        rows, right = both.by_row, padded(self.right)

        def block(first: int, end: int) -> None:
            leave_one_out_lines(
                first,
                end,
                rows.indptr,
                rows.others,
                rows.counts,
                rows.level,
                rows.healthy,
                self.left,
                right,
                self.inverses[0],
                self.inverses[1],
                FLOOR * both.mean,
                variance.inverse_size,
                variance.alpha,
                variance.inverse_shape,
                means,
                cavity,
                cv2,
            )

        in_line_blocks(block, rows.indptr, threads)


def learnt_prior(factor: Real, inverses: Real) -> Prior:
    """The Gaussian from which the lines' factors look drawn: their mean, and their covariance with each
    line's own uncertainty added (one EM step)."""
    values = factor.astype(np.float64)
    rank = values.shape[1]
    mean = values.mean(axis=0)
    away = values - mean
    uncertainty = np.zeros((rank, rank))
    uncertainty[np.tril_indices(rank)] = inverses.mean(axis=0, dtype=np.float64)
    uncertainty += np.tril(uncertainty, -1).T
    covariance = gram(away) / len(values) + uncertainty
    return Prior(rounded(np.linalg.inv(covariance), factor.dtype), mean)


def healthy_probabilities(
    counts: Int32,
    means: Float32,
    cv2: Float32,
    family: ExposureFamily,
    p: Parameters,
    threads: int = 1,
    out: Float32 | None = None,
) -> Float32:
    """f of every entry from its predicted mean, in ``out`` if it is given."""
    healthy = np.empty(counts.size, dtype=np.float32) if out is None else out
    s = _shape(family)
    steps = np.log1p(np.arange(int(counts.max(initial=0))) / s) if 0.0 < s < math.inf else np.zeros(1)
    rising = np.append(0.0, np.cumsum(steps))

    def compiled(first: int, end: int) -> None:
        healthy_entries(
            first,
            end,
            counts,
            means,
            cv2,
            family.mean_factor(p.alpha),
            p.anomaly_rate,
            p.inverse_size,
            s,
            rising,
            healthy,
        )

    def general(first: int, end: int) -> None:
        for at in range(first, end, CHUNK):
            part = slice(at, min(at + CHUNK, end))
            log_healthy, mixed = log_predictive(
                counts[part], means[part].astype(np.float64), cv2[part].astype(np.float64), family, p
            )
            healthy[part] = (1.0 - p.anomaly_rate) * np.exp(log_healthy - mixed)

    in_entry_blocks(compiled if isinstance(family, GammaExposure) else general, counts.size, threads)
    return healthy


@dataclass(frozen=True, eq=False)
class BareCounts:
    """Counts with log x! and nothing else."""

    counts: Float
    log_factorial: Float

    @classmethod
    def of(cls, counts: Int32) -> BareCounts:
        x = counts.astype(np.float64)
        return cls(x, np.asarray(gammaln(x + 1.0)))


def log_predictive(
    counts: Int32, means: Float, cv2: Float, family: ExposureFamily, p: Parameters
) -> tuple[Float, Float]:
    """log P of each count if healthy, and under the mixture."""
    data = BareCounts.of(counts)
    log_healthy = np.empty(counts.size)
    mixture.healthy_log_pmf(data.counts, data.log_factorial, means, cv2, p.inverse_size, log_healthy)
    log_anomalous, _ = family.terms(data, means, p.alpha)
    return log_healthy, entry_scores(log_healthy, log_anomalous, np.full(counts.size, p.anomaly_rate))


def fit_noise(
    bins: Bins, ratio: Float, family: ExposureFamily, noise: str, start: Parameters | None
) -> BinnedFit:
    """theta with the noise asked for; "auto" takes the negative binomial where it gains ACCEPT_NATS and
    its dispersion is not negligible, as on small data."""
    terms = censored_terms(bins, ratio, CENSORED_FROM)
    if noise != "poisson":
        rival = fit_binned(terms, family, negative_binomial=True, start=start)
        if noise == "negative_binomial":
            return rival
        start = rival.parameters
    plain = fit_binned(terms, family, negative_binomial=False, start=start)
    if noise == "poisson" or rival.parameters.inverse_size <= NEGLIGIBLE_DISPERSION:
        return plain
    gain = rival.top.log_likelihood - plain.top.log_likelihood
    return rival if gain > ACCEPT_NATS else plain


def settled(before: Parameters, after: Parameters) -> bool:
    return (
        abs(after.anomaly_rate - before.anomaly_rate) <= SETTLED * max(after.anomaly_rate, 1e-3)
        and abs(after.alpha - before.alpha) <= SETTLED
    )


def _shape(family: ExposureFamily) -> float:
    """s of the anomalous exposure, for the weights of the regressions."""
    if isinstance(family, GammaExposure):
        return family.s
    return UNIFORM_SHAPE if isinstance(family, UniformExposure) else 1.0


def variance_of(family: ExposureFamily, p: Parameters) -> Variance:
    shape = _shape(family)
    return Variance(
        inverse_size=p.inverse_size,
        alpha=max(family.mean_factor(p.alpha), 1e-6),
        inverse_shape=1.0 / shape if 0.0 < shape < math.inf else 0.0,
    )


def _ridge(both: BothWays, rank: int) -> tuple[Prior, Prior]:
    prior = Prior.ridge(rank, RIDGE * rank / both.mean)
    return prior, prior
