"""What healthy sales do around their expected rate: Poisson, negative binomial, or a user's own.

The paper's model is Poisson (section 2), and says that any sub-exponential noise will do (section 3.3,
"Extending to continuous noise models"). Sales of real stores have a variance of 2-8 times their mean, so
the negative binomial with mean M and size s (variance M + M^2/s) is the normal case; s = inf is Poisson.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.kernels import njit

SIZE_RANGE = (0.02, 1e6)  # where a dispersion is looked for; past the upper end it is Poisson
LOG_FACTORIAL = gammaln(np.arange(1024) + 1.0)  # most counts are small: a look-up beats lgamma


class NoiseModel(Protocol):
    """The law of a healthy pair's sales, given its rate. Discrete or continuous."""

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike) -> Float:
        """log P(count | rate), or the log density of continuous data. -inf, never NaN."""


@dataclass(frozen=True)
class Poisson:
    """X ~ Poisson(M)."""

    name: ClassVar[str] = "poisson"

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike) -> Float:
        return noise_log_pmf(counts, rates, math.inf)

    def sample(self, rates: ArrayLike, rng: np.random.Generator) -> Any:
        return rng.poisson(np.maximum(rates, 0.0))


@dataclass(frozen=True, eq=False)
class NegativeBinomial:
    """X ~ NB with mean M and the given size: Poisson(E M), E ~ Gamma(size) with mean 1.

    ``size`` is one number for the whole matrix (s0), or one per entry: the predictive of a rate known
    up to a squared coefficient of variation cv2 is NB(M, 1 / (cv2 + 1/s0)).
    """

    size: float | Float

    name: ClassVar[str] = "negative_binomial"

    def __post_init__(self) -> None:
        if not np.all(np.asarray(self.size) > 0.0):
            raise UsageError(
                f"The size of a negative binomial is {self.size}; every size must be above 0.",
                "pass sizes > 0 (math.inf is Poisson).",
            )

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike) -> Float:
        return noise_log_pmf(counts, rates, self.size)

    def sample(self, rates: ArrayLike, rng: np.random.Generator) -> Any:
        means, size = np.broadcast_arrays(np.maximum(rates, 0.0), np.asarray(self.size, dtype=np.float64))
        finite = np.isfinite(size)
        exposure = np.ones(means.shape)
        exposure[finite] = rng.gamma(size[finite]) / size[finite]
        return rng.poisson(exposure * means)


def noise_log_pmf(counts: ArrayLike, rates: ArrayLike, size: float | Float) -> Float:
    """log NB(count; mean rate, size), arrays broadcast; size = inf is Poisson, approached continuously.

    Rates below zero count as zero, where only a count of zero is possible.
    """
    x, m, s = np.broadcast_arrays(
        np.asarray(counts, dtype=np.float64),
        np.asarray(rates, dtype=np.float64),
        np.asarray(size, dtype=np.float64),
    )
    out = np.empty(x.size)
    _fill(x.ravel(), m.ravel(), s.ravel(), out)
    return out.reshape(x.shape)


def estimate_dispersion(counts: ArrayLike, rates: ArrayLike) -> float:
    """The size s of negative binomial noise by maximum likelihood, for healthy sales with known rates.

    Returns inf when no finite size fits better than Poisson. Anomalies pull it down: it is a summary of
    sales known to be healthy, not the detector's estimate.
    """
    x, m = np.broadcast_arrays(np.asarray(counts, dtype=np.float64), np.asarray(rates, dtype=np.float64))
    low, high = math.log(SIZE_RANGE[0]), math.log(SIZE_RANGE[1])
    best = minimize_scalar(
        lambda log_size: -float(np.sum(noise_log_pmf(x, m, math.exp(log_size)))),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-4},
    )
    poisson = float(np.sum(noise_log_pmf(x, m, math.inf)))
    return math.inf if poisson >= -float(best.fun) - 1e-6 else math.exp(float(best.x))


@njit
def nb_log_pmf(x: float, m: float, s: float) -> float:
    """log NB(x; mean m, size s) for one entry, for use inside compiled loops.

    Rearranged for stability: with R = Gamma(x + s) / (Gamma(s) s^x) = prod_{k<x} (1 + k/s),
    log pmf = log R + x log m - (s + x) log(1 + m/s) - log x!, in which nothing grows with s;
    R -> 1 and the third term -> m as s -> inf.
    """
    if m <= 0.0:
        return 0.0 if x == 0.0 else -math.inf
    whole = int(x) if x < 1024.0 else -1
    log_factorial = LOG_FACTORIAL[whole] if whole == x else math.lgamma(x + 1.0)
    if s == math.inf:
        return x * math.log(m) - m - log_factorial
    if whole == x and x <= 16.0 and s > 1e-12:
        rising = 1.0
        for k in range(1, whole):
            rising *= 1.0 + k / s
        log_rising = math.log(rising)
    elif s < 50.0:
        log_rising = math.lgamma(x + s) - math.lgamma(s) - x * math.log(s)
    else:  # the same by Stirling's series, whose next term is below 1e-14 here
        a = 1.0 / (x + s)
        b = 1.0 / s
        tail = (a - b) / 12.0 - (a**3 - b**3) / 360.0 + (a**5 - b**5) / 1260.0
        log_rising = (x + s - 0.5) * math.log1p(x / s) - x + tail
    return log_rising + x * math.log(m) - (s + x) * math.log1p(m / s) - log_factorial


@njit
def _fill(counts: Float, rates: Float, sizes: Float, out: Float) -> None:
    for e in range(counts.size):
        out[e] = nb_log_pmf(counts[e], rates[e], sizes[e])
