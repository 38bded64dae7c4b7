"""How much better one anomaly family explains the sales than another: the Bayes factor of the two.

Both families' chains draw the mean of sales Mtilde = M e(theta), which means the same under either, and
theta, which does not. With theta integrated out, r(Mtilde) = log p(x | Mtilde, second) - log p(x | Mtilde,
first) is what is left between them, and by Jensen's inequality the log Bayes factor lies between the means of
r under the two posteriors:

    E[r | x, first] <= log p(x | second) / p(x | first) <= E[r | x, second].

Half their sum is the trapezoid rule of thermodynamic integration along the path from one posterior to the
other (Gelman and Meng 1998, section 4). Where the answer is open the families see nearly the same Mtilde, and
the bounds are within a nat or two of each other; scores of predictions, leave-one-out or by information
criteria, were found to err by tens.

theta is integrated out by importance sampling, from a kernel around every draw of the family's own chains.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.families import GammaExposure, SampledFamily
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler import _theta_kernels as theta_kernels
from ew_pipeline.method.sampler._trajectory_kernels import shifts
from ew_pipeline.method.sampler.chain import Chain
from ew_pipeline.method.sampler.state import CountTable, SamplerState
from ew_pipeline.method.variational.fit import VariationalFit

FACTORS = 8  # draws of Mtilde of each family
POINTS = 6  # theta at each of them
BANDWIDTH = 0.5  # of the kernels, in standard deviations of the draws
NARROWEST = 0.02
DECIMALS = 3  # nats: last bits differ between processors, and weights must not
_EDGE = theta_kernels.T_LIMIT - 0.01


@dataclass(frozen=True, eq=False)
class FamilyChains:
    """Chains of one family at one rank, all of them on all entries, and what they started from."""

    family: SampledFamily
    start: VariationalFit
    chains: list[Chain]


def log_bayes_factor(
    data: Observations, first: FamilyChains, second: FamilyChains, rng: np.random.Generator
) -> float:
    """log p(x | second) - log p(x | first), both families being as likely before."""
    lower, upper = bounds(data, first, second, rng)
    return round(0.5 * (lower + upper), DECIMALS)


def bounds(
    data: Observations, first: FamilyChains, second: FamilyChains, rng: np.random.Generator
) -> tuple[float, float]:
    """What the log Bayes factor lies between, up to the chains' own error."""
    table = CountTable.of(data)
    given = tuple(_GivenMeans(data, table, chains, rng) for chains in (first, second))
    means = []
    for own in given:
        gains = []
        for left, right in own.factors():
            gains.append(given[1].log_density(left, right) - given[0].log_density(left, right))
        means.append(float(np.mean(gains)))
    return means[0], means[1]


class _GivenMeans:
    """log p(x | Mtilde) of one family, theta integrated out."""

    def __init__(
        self, data: Observations, table: CountTable, sampled: FamilyChains, rng: np.random.Generator
    ):
        self.chains, self.rng = sampled.chains, rng
        self.state = SamplerState(data, table, sampled.family, sampled.start)
        self.scratch = [np.empty(data.counts.size) for _ in range(3)]
        self.draws = np.concatenate([chain.positions for chain in sampled.chains])
        self.free = np.ptp(self.draws, axis=0) > 0.0
        self.widths = np.maximum(BANDWIDTH * self.draws[:, self.free].std(axis=0), NARROWEST)
        self.constant = _normaliser(sampled.family)

    def factors(self) -> list[tuple[Float, Float]]:
        """Log factors of Mtilde at draws spread over the chains."""
        result = []
        each = FACTORS // len(self.chains)
        for chain in self.chains:
            for k in np.linspace(0, chain.kept_draws.size - 1, min(each, chain.kept_draws.size)).astype(int):
                self.state.t[:] = chain.positions[chain.kept_draws[k]]
                self.state.read_theta()
                away = self._efficiencies()
                logs = np.log(chain.kept_left[k]), np.log(chain.kept_right[k])
                result.append((logs[0] - away[0][:, None], logs[1] - away[1][:, None]))
        return result

    def log_density(self, left: Float, right: Float) -> float:
        """By ``POINTS`` of theta, each with its density under the prior over that it was drawn with."""
        values = []
        for t in self._points():
            self.state.t[:] = t
            self.state.read_theta()
            away = self._efficiencies()
            self.state.logs[0][:] = left + away[0][:, None]
            self.state.logs[1][:] = right + away[1][:, None]
            self.state.refresh()
            prior = theta_kernels.theta_prior(t, self.state.shape_free, np.empty(t.size)) + self.constant
            values.append(self.state.densities(self.scratch) + prior - self._log_kernels(t))
        return float(logsumexp(values) - math.log(len(values)))

    def _points(self) -> Float:
        t = self.draws[self.rng.integers(self.draws.shape[0], size=POINTS)].copy()
        t[:, self.free] += self.widths * self.rng.standard_normal((POINTS, self.widths.size))
        return np.asarray(np.clip(t, -_EDGE, _EDGE))

    def _log_kernels(self, t: Float) -> float:
        away = (t[self.free] - self.draws[:, self.free]) / self.widths
        each = -0.5 * (away**2).sum(axis=1)
        normal = np.log(self.widths).sum() + 0.5 * self.widths.size * math.log(2.0 * math.pi)
        return float(logsumexp(each) - math.log(each.size) - normal)

    def _efficiencies(self) -> tuple[Float, Float]:
        """-log e(theta) of every store, and of every SKU with a rate of its own."""
        state, result = self.state, []
        for side, spared in enumerate(state.spared):
            out = np.empty(spared.size)
            shifts(side, state.axes is not None, spared, 0.0, 1.0, state.rate, state.alpha, out)
            result.append(out)
        return result[0], result[1]


def _normaliser(family: SampledFamily) -> float:
    """What makes ``theta_prior`` a density in the family's own coordinates, but for what they all share."""
    if isinstance(family, GammaExposure) and family.shape_free:
        return -math.log(math.pi)  # of Beta(1/2, 1/2)
    if family.alpha_free:
        return math.log(1.5)  # of (1 - alpha)^0.5
    return 2.5 * math.log(2.0)  # takes back the prior of alpha, which stays at 1/2
