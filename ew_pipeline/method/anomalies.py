"""What an anomaly does to sales: Anom(alpha, M) of section 2, behind a small protocol.

Every built-in is "the week stopped after a share E of it": X ~ Poisson(E M). They differ in the law of E.

=============  ==================  ==========================================  =========
name           E                   law of X                                    g(alpha)
=============  ==================  ==========================================  =========
exponential    Exp, mean alpha     geometric with mean alpha M (NB, size 1)    alpha
thinning       alpha               Poisson(alpha M)                            alpha
uniform        U(0, 2 alpha)       P(Gamma(x + 1) <= 2 alpha M) / (2 alpha M)  alpha
uniform_onset  U(0, 1)             the same with alpha = 1/2, not free         1/2
zero           0                   X = 0                                       0
=============  ==================  ==========================================  =========

The paper writes Exp(alpha) in section 4; its mean is alpha, as E[Anom] = alpha M there requires.
An estimated rate may dip below zero: rates below zero count as zero, where only X = 0 is possible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.kernels import njit
from ew_pipeline.method.noise import nb_log_pmf, noise_log_pmf

SERIES_PRECISION = 1e-13


class AnomalyModel(Protocol):
    """Three functions of one parameter: the assumptions on Anom(., .) of section 2.

    Any object with these members works wherever a built-in does, in a discrete or a continuous model.
    """

    @property
    def name(self) -> str:
        """What the family is called in settings, reports and the ledger."""

    @property
    def alpha_bounds(self) -> tuple[float, float]:
        """The range of alpha. Equal ends: there is no free parameter, and alpha is that value."""

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike, alpha: float) -> Float:
        """log P(Anom(alpha, rate) = count), or the log density of continuous data. -inf, never NaN."""

    def mean_factor(self, alpha: float) -> float:
        """g(alpha) of Eq. (def-g): E[Anom(alpha, M)] = g(alpha) M."""

    def sample(self, rates: ArrayLike, alpha: float, rng: np.random.Generator) -> Any:
        """One draw of Anom(alpha, rate) for each rate."""


@dataclass(frozen=True)
class ExponentialOnset:
    """X ~ Poisson(E M), E exponential with mean alpha: the family of the paper's experiments."""

    name: ClassVar[str] = "exponential"
    alpha_bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike, alpha: float) -> Float:
        x, mu = _counts_and_means(counts, rates, alpha)
        out = np.empty(x.size)
        _geometric_log_pmf(x.ravel(), mu.ravel(), out)
        return out.reshape(x.shape)

    def mean_factor(self, alpha: float) -> float:
        return alpha

    def sample(self, rates: ArrayLike, alpha: float, rng: np.random.Generator) -> Any:
        exposure = rng.exponential(alpha, size=np.shape(rates))
        return rng.poisson(exposure * np.maximum(rates, 0.0))


@dataclass(frozen=True)
class Thinning:
    """X ~ Poisson(alpha M): sales stop a fixed share of the way through the week (section 2)."""

    name: ClassVar[str] = "thinning"
    alpha_bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike, alpha: float) -> Float:
        return noise_log_pmf(counts, np.multiply(alpha, rates), math.inf)

    def mean_factor(self, alpha: float) -> float:
        return alpha

    def sample(self, rates: ArrayLike, alpha: float, rng: np.random.Generator) -> Any:
        return rng.poisson(alpha * np.maximum(rates, 0.0))


@dataclass(frozen=True)
class UniformOneSided:
    """X ~ Poisson(E M), E uniform on (0, 2 alpha). E is never above 2 alpha, so unlike the exponential
    family it does not explain high sales, and does not grow to absorb overdispersion.
    alpha = 1/2 is a failure at a uniform moment of the week (``UniformOnset``)."""

    name: ClassVar[str] = "uniform"
    alpha_bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike, alpha: float) -> Float:
        x, b = _counts_and_means(counts, rates, 2.0 * alpha)
        out = np.empty(x.size)
        _uniform_log_pmf(x.ravel(), b.ravel(), out)
        return out.reshape(x.shape)

    def mean_factor(self, alpha: float) -> float:
        return alpha

    def sample(self, rates: ArrayLike, alpha: float, rng: np.random.Generator) -> Any:
        exposure = rng.uniform(0.0, 2.0 * alpha, size=np.shape(rates))
        return rng.poisson(exposure * np.maximum(rates, 0.0))


@dataclass(frozen=True)
class UniformOnset(UniformOneSided):
    """X ~ Poisson(E M), E uniform on (0, 1): the record goes wrong at any moment of the week alike. alpha is
    1/2 and not free, which tells these anomalies apart where a free alpha would be left open."""

    name: ClassVar[str] = "uniform_onset"
    alpha_bounds: ClassVar[tuple[float, float]] = (0.5, 0.5)


@dataclass(frozen=True)
class Zero:
    """X = 0: nothing can be sold at all. alpha is 0 and not free."""

    name: ClassVar[str] = "zero"
    alpha_bounds: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def log_pmf(self, counts: ArrayLike, rates: ArrayLike, alpha: float) -> Float:
        x, _ = np.broadcast_arrays(np.asarray(counts), np.asarray(rates))
        return np.where(x == 0, 0.0, -np.inf)

    def mean_factor(self, alpha: float) -> float:
        return 0.0

    def sample(self, rates: ArrayLike, alpha: float, rng: np.random.Generator) -> Any:
        return np.zeros(np.shape(rates), dtype=np.int64)


BUILT_IN: dict[str, AnomalyModel] = {
    model.name: model
    for model in cast(
        tuple[AnomalyModel, ...], (ExponentialOnset(), Thinning(), Zero(), UniformOneSided(), UniformOnset())
    )
}

MEMBERS = ("name", "alpha_bounds", "log_pmf", "mean_factor", "sample")


def anomaly_model(family: str | AnomalyModel) -> AnomalyModel:
    """The anomaly model of that name, or the given object when it has all members of the protocol."""
    if isinstance(family, str):
        if family not in BUILT_IN:
            raise UsageError(
                f"There is no anomaly model called {family!r}.",
                f"choose one of {', '.join(BUILT_IN)}, or pass an object with {', '.join(MEMBERS)}.",
            )
        return BUILT_IN[family]
    if isinstance(family, type):
        raise UsageError(
            f"The anomaly model is the class {family.__name__}, not an object of it.",
            f"pass {family.__name__}().",
        )
    missing = [member for member in MEMBERS if not hasattr(family, member)]
    if missing:
        raise UsageError(
            f"{family!r} is not an anomaly model: it has no {', '.join(missing)}.",
            "add them (see AnomalyModel in ew_pipeline/method/anomalies.py)"
            f" or name one of {', '.join(BUILT_IN)}.",
        )
    return family


def mean_scale(alpha: float, anomaly_rate: float, anomaly: AnomalyModel) -> float:
    """e(theta) = p_A g(alpha) + 1 - p_A of section 3.3: E[X] = e(theta) M*."""
    return anomaly_rate * anomaly.mean_factor(alpha) + 1.0 - anomaly_rate


def _counts_and_means(counts: ArrayLike, rates: ArrayLike, factor: float) -> tuple[Float, Float]:
    x, mu = np.broadcast_arrays(
        np.asarray(counts, dtype=np.float64), factor * np.asarray(rates, dtype=np.float64)
    )
    return x, mu


@njit
def _geometric_log_pmf(counts: Float, means: Float, out: Float) -> None:
    """x log(mu / (1 + mu)) - log(1 + mu), written so that neither mu -> 0 nor mu -> inf loses digits."""
    for e in range(counts.size):
        x = counts[e]
        mu = means[e]
        if mu <= 0.0:
            out[e] = 0.0 if x == 0.0 else -math.inf
        elif mu < 1.0:
            out[e] = x * math.log(mu) - (x + 1.0) * math.log1p(mu)
        else:
            out[e] = -x * math.log1p(1.0 / mu) - math.log1p(mu)


@njit
def log_uniform(x: float, b: float, log_q: float) -> float:
    """log(P(x + 1, b) / b), b = 2 alpha M, P the regularised lower incomplete gamma function.

    With q = Poisson(x; b), two sums whose terms only fall, so that nothing under- or overflows:
    b < x + 1:   P / b = q / (x + 1) * (1 + b/(x+2) + b^2/((x+2)(x+3)) + ...)
    otherwise:   P = 1 - q * (1 + x/b + x(x-1)/b^2 + ...), where the subtrahend is at most 1/2
    """
    term = 1.0
    total = 1.0
    if b < x + 1.0:
        k = x + 2.0
        while term > SERIES_PRECISION * total:
            term *= b / k
            total += term
            k += 1.0
        return log_q - math.log1p(x) + math.log(total)
    k = x
    while term > SERIES_PRECISION * total:
        term *= k / b
        total += term
        k -= 1.0
    return math.log1p(-math.exp(log_q) * total) - math.log(b)


@njit
def _uniform_log_pmf(counts: Float, ends: Float, out: Float) -> None:
    """log_uniform of every entry; b = 0 leaves x = 0 alone."""
    for e in range(counts.size):
        x = counts[e]
        b = ends[e]
        if b <= 0.0:
            out[e] = 0.0 if x == 0.0 else -math.inf
            continue
        out[e] = log_uniform(x, b, nb_log_pmf(x, b, math.inf))
