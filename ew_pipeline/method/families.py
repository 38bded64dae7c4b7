"""What the factorisation needs of an anomaly family: its likelihood and its expected exposure.

The built-in families have both in closed form and are compiled; the sampler knows them too. A user's own
anomaly model goes through ``MixedPoisson``, which needs only its ``log_pmf``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.method._kernels import mixture
from ew_pipeline.method.anomalies import AnomalyModel, anomaly_model

if TYPE_CHECKING:
    from ew_pipeline.method.observations import HasCounts, Observations

THINNING_SHAPE = 1e12
SMALLEST_ALPHA = 0.001  # as a share of the range: at alpha = 0 one sale would be impossible
LARGEST_EXPOSURE = 1.5  # an anomaly lowers sales; a model's tail must not push a pair's weight far above one


class ExposureFamily(Protocol):
    """An anomaly family as the factorisation sees it."""

    @property
    def name(self) -> str: ...

    @property
    def alpha_free(self) -> bool: ...

    @property
    def alpha_bounds(self) -> tuple[float, float]:
        """The range of alpha; equal ends where it is not free."""

    def mean_factor(self, alpha: float) -> float:
        """g(alpha), Eq. (def-g)."""

    def terms(self, data: HasCounts, means: Float, alpha: float) -> tuple[Float, Float]:
        """Log-likelihood of each count as an anomaly, and its derivative in alpha."""

    def weights(
        self, data: Observations, means: Float, healthy: Float, alpha: float, inverse_size: float
    ) -> Float:
        """(f tau0 + (1 - f) tau1) L: expected exposure times level, tau = E[E | x, component]."""


@dataclass(frozen=True)
class GammaExposure:
    """E ~ Gamma(s, mean alpha): exponential onset (s = 1), thinning (s = inf), no sales (s = 0)."""

    name: str
    s: float
    shape_free: bool = False  # the sampler learns s, from this one on

    @property
    def alpha_free(self) -> bool:
        return self.s > 0.0

    @property
    def any_shape(self) -> GammaExposure:
        """The same family with s to be learnt."""
        return replace(self, s=self.s or 1.0, shape_free=True)

    @property
    def alpha_bounds(self) -> tuple[float, float]:
        return (SMALLEST_ALPHA, 1.0) if self.s > 0.0 else (0.0, 0.0)

    def mean_factor(self, alpha: float) -> float:
        return alpha if self.s > 0.0 else 0.0

    def terms(self, data: HasCounts, means: Float, alpha: float) -> tuple[Float, Float]:
        if self.s == 0.0:
            return np.where(data.counts == 0.0, 0.0, mixture.LOG_ZERO), np.zeros(means.size)
        log_pmf = np.empty(means.size)
        slope = np.empty(means.size)
        mixture.gamma_exposure_terms(data.counts, data.log_factorial, means, alpha, self.s, log_pmf, slope)
        return log_pmf, slope

    def weights(
        self, data: Observations, means: Float, healthy: Float, alpha: float, inverse_size: float
    ) -> Float:
        out = np.empty(means.size)
        mixture.gamma_exposure_weights(
            data.counts, means, healthy, self.mean_factor(alpha), self.s, inverse_size, data.level, out
        )
        return out


@dataclass(frozen=True)
class UniformExposure:
    """E ~ U(0, 2 alpha); alpha may be fixed (1/2: a failure at any moment of the week alike)."""

    name: str
    alpha_free: bool

    @property
    def alpha_bounds(self) -> tuple[float, float]:
        return (SMALLEST_ALPHA, 1.0) if self.alpha_free else (0.5, 0.5)

    def mean_factor(self, alpha: float) -> float:
        return alpha if self.alpha_free else 0.5

    def terms(self, data: HasCounts, means: Float, alpha: float) -> tuple[Float, Float]:
        log_pmf = np.empty(means.size)
        slope = np.empty(means.size)
        mixture.uniform_exposure_terms(
            data.counts, data.log_factorial, means, self.mean_factor(alpha), log_pmf, slope
        )
        return log_pmf, slope

    def weights(
        self, data: Observations, means: Float, healthy: Float, alpha: float, inverse_size: float
    ) -> Float:
        out = np.empty(means.size)
        mixture.uniform_exposure_weights(
            data.counts,
            data.log_factorial,
            means,
            healthy,
            self.mean_factor(alpha),
            inverse_size,
            data.level,
            out,
        )
        return out


SampledFamily = GammaExposure | UniformExposure


@dataclass(frozen=True)
class MixedPoisson:
    """Any anomaly model, by its ``log_pmf`` alone.

    If anomalous sales are Poisson(E mu) for some exposure E, then E[E | x] = (x + 1) p(x + 1) / (mu p(x))
    (Robbins 1956), so the weights need no more than the likelihood. For a model that is not of that
    form the ratio is a heuristic and is kept in [0, LARGEST_EXPOSURE].
    """

    model: AnomalyModel

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def alpha_free(self) -> bool:
        low, high = self.model.alpha_bounds
        return high > low

    @property
    def alpha_bounds(self) -> tuple[float, float]:
        low, high = self.model.alpha_bounds
        return max(low, SMALLEST_ALPHA * (high - low)), high

    def mean_factor(self, alpha: float) -> float:
        return float(self.model.mean_factor(alpha))

    def _log_pmf(self, counts: Float, means: Float, alpha: float) -> Float:
        low, high = self.model.alpha_bounds
        values = self.model.log_pmf(counts, means, min(max(alpha, low), high))
        return np.asarray(np.maximum(values, mixture.LOG_ZERO))

    def terms(self, data: HasCounts, means: Float, alpha: float) -> tuple[Float, Float]:
        log_pmf = self._log_pmf(data.counts, means, alpha)
        low, high = self.model.alpha_bounds
        step = 1e-4 * (high - low) * (1.0 if 2.0 * alpha < low + high else -1.0) or 1e-4
        slope = (self._log_pmf(data.counts, means, alpha + step) - log_pmf) / step
        return log_pmf, slope if self.alpha_free else np.zeros(means.size)

    def weights(
        self, data: Observations, means: Float, healthy: Float, alpha: float, inverse_size: float
    ) -> Float:
        x = data.counts
        gain = self._log_pmf(x + 1.0, means, alpha) - self._log_pmf(x, means, alpha)
        tau1 = np.minimum((x + 1.0) * np.exp(np.minimum(gain, 50.0)) / means, LARGEST_EXPOSURE)
        tau0 = (x * inverse_size + 1.0) / (1.0 + means * inverse_size)
        return np.asarray((healthy * tau0 + (1.0 - healthy) * tau1) * data.level)


_COMPILED: dict[str, SampledFamily] = {
    "exponential": GammaExposure("exponential", 1.0),
    "thinning": GammaExposure("thinning", THINNING_SHAPE),
    "zero": GammaExposure("zero", 0.0),
    "uniform": UniformExposure("uniform", alpha_free=True),
    "uniform_onset": UniformExposure("uniform_onset", alpha_free=False),
}


def exposure_family(family: str | AnomalyModel) -> ExposureFamily:
    """The exposure form of a named family or of a user's own anomaly model."""
    model = anomaly_model(family)
    return _COMPILED.get(model.name, MixedPoisson(model)) if isinstance(family, str) else MixedPoisson(model)
