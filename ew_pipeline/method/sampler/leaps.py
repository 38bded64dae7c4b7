"""Long moves of theta, which trajectories alone take too many steps for.

Overdispersed sales leave theta a ridge, at times with two hills on it: few anomalies that are deep in strong
noise, or many shallow ones in weaker noise. Chains that are a hundred trajectories long stay on the hill that
they started from. But the mean of sales Mtilde = M e(theta) is much the same on all of them, and given
Mtilde, sales depend on theta through the counts and the rates in narrow bands alone: a thousand values of
theta are judged in the time of a few trajectories.

A leap is iterated sampling importance resampling (Andrieu, Lee and Vihola 2018): some candidates are drawn
anew, and one of them or the present theta is taken by its weight, posterior over proposal. M and b move along
(U by e_old / e_new, b by its inverse), which leaves Mtilde, the prior of U and that of b as they are. As
bands are an approximation, what was taken is accepted or refused by the exact posterior (Christen and Fox
2005). Candidates are proposed by the posterior given Mtilde at the end of the warm-up, on a grid and
flattened, the same for the whole chain.
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.sampler import _leap_kernels as kernels
from ew_pipeline.method.sampler import _theta_kernels as theta_kernels
from ew_pipeline.method.sampler._trajectory_kernels import shifts
from ew_pipeline.method.sampler.state import SamplerState

CANDIDATES = 20
BAND = 0.1  # of log M
TEMPERATURE = 3.0
CELLS = (12, 10, 10)  # of log s0, alpha and p_A
SIZE_RANGE = (-1.1, 1.4)  # of log s0, about where the chain is
ALPHA_RANGE, RATE_RANGE = (-5.0, 5.0), (-5.0, 4.0)  # of the coordinates


class ThetaLeaps:
    """The proposal of one chain, made when it has warmed up."""

    def __init__(self, state: SamplerState, means: Float):
        self.edges = _edges(state.s0)
        middles = [0.5 * (edges[1:] + edges[:-1]) for edges in self.edges]
        grid = np.stack([axis.ravel() for axis in np.meshgrid(*middles, indexing="ij")], axis=1)
        self.cells = tuple(middle.size for middle in middles)
        positions = np.repeat(state.t[None, :], len(grid), axis=0)
        positions[:, : len(self.edges)] = grid
        scores = _Given(state, means).log_posteriors(positions)
        volumes = np.ones(1)
        for edges in self.edges:
            volumes = np.multiply.outer(volumes, np.diff(edges)).ravel()
        weights = volumes * np.exp((scores - scores.max()) / TEMPERATURE)
        self.ends = np.cumsum(weights)
        self.log_density = np.log(np.maximum(weights / self.ends[-1], 1e-300) / volumes)

    def leap(
        self, state: SamplerState, current: list[Float], trial: list[Float], rng: np.random.Generator
    ) -> float | None:
        """Move ``state`` and say its new log-likelihood, ``trial`` being mu, f and log density there; or None
        where it stays."""
        present = self._cell(state.t)
        if present is None:
            return None
        cells = np.minimum(
            np.searchsorted(self.ends, rng.random(CANDIDATES) * self.ends[-1]), self.ends.size - 1
        )
        positions = np.repeat(state.t[None, :], CANDIDATES + 1, axis=0)
        for k, index in enumerate(np.unravel_index(cells, self.cells)):
            edges = self.edges[k]
            positions[1:, k] = edges[index] + rng.random(CANDIDATES) * (edges[index + 1] - edges[index])
        given = _Given(state, current[0]).log_posteriors(positions)
        weights = given - self.log_density[np.concatenate([[present], cells])]
        weights = np.exp(weights - weights.max())
        taken = int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()))
        if taken == 0:
            return None
        before, slope = state.t.copy(), np.empty(state.t.size)
        old = current[2].sum() + theta_kernels.theta_prior(before, state.shape_free, slope)
        _move(state, positions[taken])
        likelihood = state.densities(trial)
        new = likelihood + theta_kernels.theta_prior(state.t, state.shape_free, slope)
        if math.log(rng.random()) < new - old - (given[taken] - given[0]):
            return likelihood
        _move(state, before)
        return None

    def _cell(self, t: Float) -> int | None:
        """Where t is on the grid; None beside it."""
        places = []
        for value, edges in zip(t, self.edges, strict=False):
            if not edges[0] < value < edges[-1]:
                return None
            places.append(int(np.searchsorted(edges, value)) - 1)
        return int(np.ravel_multi_index(places, self.cells))


class _Given:
    """The posterior of theta given Mtilde."""

    def __init__(self, state: SamplerState, means: Float):
        self.state = state
        table, e = state.table, 1.0 - state.rate * (1.0 - state.alpha)
        self.cells = kernels.fill_cells(table.kind, means, e, BAND, table.kinds.size)

    def log_posteriors(self, positions: Float) -> Float:
        out = np.empty(len(positions))
        state = self.state
        kernels.log_posteriors(
            positions, state.table.kinds, *self.cells, state.s, state.shape_free, state.code, out
        )
        return out


def _edges(size: float) -> list[Float]:
    """Of the grid's cells, by coordinate; ``size`` is where s0 is."""
    low, high = theta_kernels.LOG_SIZE_LOW, theta_kernels.LOG_SIZE_HIGH
    sizes = math.log(size) + np.linspace(*SIZE_RANGE, CELLS[0] + 1)
    shares = np.clip((sizes - low) / (high - low), 0.001, 0.999)
    return [
        np.unique(np.log(shares / (1.0 - shares))),
        np.linspace(*ALPHA_RANGE, CELLS[1] + 1),
        np.linspace(*RATE_RANGE, CELLS[2] + 1),
    ]


def _move(state: SamplerState, t: Float) -> None:
    """theta to ``t``, with Mtilde and the priors of U and b as they were."""
    rate, alpha = state.rate, state.alpha
    state.t[:] = t
    state.read_theta()
    out = np.empty(state.logs[0].shape[0])
    shifts(0, False, state.spared[0], rate, alpha, state.rate, state.alpha, out)
    state.logs[0] += out[:, None]
    state.prior_rate *= math.exp(-float(out[0]))
    state.refresh()
