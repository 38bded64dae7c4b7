"""The thorough tier: Hamiltonian sampling of the Gamma-Poisson factorisation with anomalies.

The model is that of variational/fit.py, with priors U ~ Gamma(a, b), V ~ Gamma(a, a), p(b) ~ 1/b, a on
a grid of 0.3-12, log s0 uniform on [log 0.5, log 2000], p(alpha) ~ (1 - alpha)^0.5 and
p(p_A) ~ exp(-8 p_A) on (0, 0.4). Anomaly states, exposures and the split of counts over factors are
integrated out in closed form, which leaves a smooth density in (log U, log V, theta); a, b are
drawn from their conditionals between trajectories. Averaging f over the draws replaces the plug-in
of Step 3 (Eq. plug-in-f) by the posterior mean of P(healthy | x).

Two choices make a few dozen trajectories enough:
- the metric of each row (column) is the r x r information on its log factors, so that trajectories
  are short in the directions that matter for M; the remaining slow directions are rotations of the
  factors, which leave M alone;
- M is moved as Mtilde / e(theta), e(theta) = 1 - p_A (1 - g(alpha)) (section 3.3): the mean of X is
  what data pin down, so theta can move without dragging thousands of factors behind it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float, Int64
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.families import SampledFamily
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler import _theta_kernels as kernels
from ew_pipeline.method.sampler._adaptation import StepSize, ThetaSpread, first_scales
from ew_pipeline.method.sampler.leaps import ThetaLeaps
from ew_pipeline.method.sampler.rate_posterior import likelihood_ratios, negligible_rate
from ew_pipeline.method.sampler.state import CountTable, SamplerState
from ew_pipeline.method.theta import RATE_CAP
from ew_pipeline.method.variational.fit import VariationalFit

MOST_FOR_LONG_CHAINS = 20_000


@dataclass(frozen=True)
class SamplerBudget:
    """How long each chain runs: trajectories to warm up and to keep, and steps per trajectory."""

    warm_up: int = 60
    draws: int = 100
    leapfrog: int = 7
    kept: int = 16

    def __post_init__(self) -> None:
        if not (self.warm_up >= 3 and self.draws >= self.kept >= 1 and self.leapfrog >= 1):
            raise UsageError(
                f"{self} cannot be run.", "at least 3 to warm up, 1 leapfrog step, and 1 <= kept <= draws."
            )

    @classmethod
    def for_entries(cls, n_entries: int) -> SamplerBudget:
        """Shorter where many entries pin every factor down.

        Chains settle there within some twenty trajectories, and an average over fewer draws is as good.
        """
        return cls() if n_entries <= MOST_FOR_LONG_CHAINS else cls(warm_up=30, draws=60)

    @property
    def passes(self) -> int:
        """Gradient passes over the data per chain."""
        return (self.warm_up + self.draws) * (self.leapfrog + 1)


@dataclass(frozen=True, eq=False)
class Chain:
    """The draws of one chain: averages per entry, theta in full, and thinned factors. ``draw_weights`` are
    those of the averages, and sum to one.

    ``positions`` are theta's coordinates, a row a draw, and ``kept_draws`` which of them the factors are of.
    ``negligible``: (weight of a p_A next to 0, whole weight) summed over the thinned draws.
    """

    healthy_probability: Float
    means: Float
    held_out_density: Float
    size_draws: Float
    alpha_draws: Float
    rate_draws: Float
    shape_draws: Float
    positions: Float
    draw_weights: Float
    negligible: tuple[float, float]
    kept_draws: Int64
    kept_left: Float
    kept_right: Float
    acceptance: float
    step: float
    passes: int  # gradient passes over the data


def run_chain(
    data: Observations,
    table: CountTable,
    family: SampledFamily,
    start: VariationalFit,
    rng: np.random.Generator,
    budget: SamplerBudget,
    held_out: Observations | None = None,
    *,
    overdispersed: bool = True,
    rate_tilt: float = 0.0,
) -> Chain:
    """One chain at the rank of ``start``; scores ``held_out`` entries, which it does not see.

    Unless ``overdispersed``, s0 stays at its largest value, which is Poisson noise for our counts. Averages
    weight draws by exp(``rate_tilt`` p_A), which makes them averages under the prior
    exp(-(RATE_PENALTY - rate_tilt) p_A).
    """
    state = SamplerState(data, table, family, start)
    first = first_scales(data.counts.size, start.parameters.inverse_size)
    scales = first * np.array([1.0, float(family.alpha_free), 1.0, float(state.shape_free)])
    if not overdispersed:
        scales *= (0.0, 1.0, 1.0, 1.0)
        state.t[0] = kernels.T_LIMIT - 1.0
    state.refresh_theta()
    size = data.counts.size
    current = [np.empty(size) for _ in range(3)]  # mu, f, log density
    trial = [np.empty(size) for _ in range(3)]
    likelihood = state.densities(current)
    chol = state.metric(current[0], current[1])
    steps = StepSize(0.15)
    theta_spread = ThetaSpread(first)
    sums = [np.zeros(size) for _ in range(2)]  # mu, f
    held = _HeldOut(held_out, table)
    theta_draws, weights = np.empty((budget.draws, 4)), np.empty(budget.draws)
    positions, kept_draws = np.empty((budget.draws, state.t.size)), np.zeros(budget.kept, np.int64)
    n, m = data.sales.shape
    kept_left = np.empty((budget.kept, n, start.rank))
    kept_right = np.empty((budget.kept, m, start.rank))
    negligible = np.zeros(2)
    acceptance = 0.0
    leaps: ThetaLeaps | None = None
    # where s is learnt too, leaps gained nothing on 32 instances for a tenth more CPU
    leaping = overdispersed and family.alpha_free and not state.shape_free and state.axes is None
    for iteration in range(budget.warm_up + budget.draws):
        warming = iteration < budget.warm_up
        state.resample_prior(rng)
        if state.axes is not None:
            likelihood = state.move_axes(current, rng)
        if iteration == budget.warm_up and leaping:
            leaps = ThetaLeaps(state, current[0])
        if leaps is not None and (leapt := leaps.leap(state, current, trial, rng)) is not None:
            likelihood = leapt
            current, trial = trial, current
        if iteration == budget.warm_up // 2:
            chol = state.metric(current[0], current[1])
        saved = (state.logs[0].copy(), state.logs[1].copy(), state.t.copy())
        value, probability = _trajectory(
            state, likelihood, chol, scales, steps.value(warming), budget.leapfrog, rng, trial
        )
        if rng.random() < probability:
            likelihood = value
            current, trial = trial, current
        else:
            state.logs[0][:], state.logs[1][:], state.t[:] = saved
            state.refresh()
        if warming:
            steps.learn(probability)
            if iteration >= 8:
                theta_spread.add(state.t)
                scales = np.where(scales > 0, theta_spread.scales(), 0.0)
            continue
        draw = iteration - budget.warm_up
        weights[draw] = math.exp(rate_tilt * (state.rate - RATE_CAP))
        sums[0] += weights[draw] * current[0]
        sums[1] += weights[draw] * current[1]
        held.add(state)
        theta_draws[draw] = state.s0, state.alpha, state.rate, state.s
        positions[draw] = state.t
        slot = draw * budget.kept // budget.draws
        kept_left[slot], kept_right[slot] = state.factors
        kept_draws[slot] = draw
        if (draw + 1) * budget.kept // budget.draws > slot:  # this one stays
            ratios = likelihood_ratios(current[1], state.prior_healthy(), state.rate)
            negligible += negligible_rate(ratios, rate_tilt)
        acceptance += probability / budget.draws
    total = np.cumsum(weights)[-1]  # in the order of the draws: an f of one in all of them stays one
    return Chain(
        healthy_probability=sums[1] / total,
        means=sums[0] / total,
        held_out_density=held.log_mean(budget.draws),
        size_draws=theta_draws[:, 0],
        alpha_draws=theta_draws[:, 1],
        rate_draws=theta_draws[:, 2],
        shape_draws=theta_draws[:, 3],
        positions=positions,
        draw_weights=weights / total,
        negligible=(float(negligible[0]), float(negligible[1])),
        kept_draws=kept_draws,
        kept_left=kept_left,
        kept_right=kept_right,
        acceptance=acceptance,
        step=steps.value(False),
        passes=state.passes,
    )


def _trajectory(
    state: SamplerState,
    likelihood: float,
    chol: list[Float],
    scales: Float,
    step: float,
    leapfrog: int,
    rng: np.random.Generator,
    out: list[Float],
) -> tuple[float, float]:
    """One leapfrog trajectory; returns the new log-likelihood and the acceptance probability."""
    momenta = [rng.standard_normal(state.logs[0].shape), rng.standard_normal(state.logs[1].shape)]
    theta_momentum = rng.standard_normal(state.t.size)
    step *= 0.8 + 0.4 * rng.random()
    n_steps = max(1, round(leapfrog * (0.7 + 0.6 * rng.random())))
    slope = np.empty(state.t.size)

    def kinetic() -> float:
        return 0.5 * float((momenta[0] ** 2).sum() + (momenta[1] ** 2).sum() + (theta_momentum**2).sum())

    before = likelihood + state.log_prior(slope) - kinetic()
    if not state.leapfrog(n_steps, step, chol, scales, theta_momentum, momenta):
        return likelihood, 0.0
    value = state.densities(out)
    change = value + state.log_prior(slope) - kinetic() - before
    if not change > -700.0:  # also catches a trajectory that ran off to NaN
        return likelihood, 0.0
    return value, min(1.0, math.exp(min(change, 0.0)))


class _HeldOut:
    """Posterior predictive density of entries the chain has not seen."""

    def __init__(self, data: Observations | None, table: CountTable):
        size = 0 if data is None else data.counts.size
        self.data = data
        self.scratch = [np.empty(size) for _ in range(3)]
        self.total = np.full(size, -np.inf)
        if data is not None:
            # the chain's tables are over its own distinct counts: code ours by the same ones
            self.kind = CountTable.of(data, table.kinds)

    def add(self, state: SamplerState) -> None:
        if self.data is not None:
            state.densities(self.scratch, on=(self.data, self.kind))
            np.logaddexp(self.total, self.scratch[2], out=self.total)

    def log_mean(self, draws: int) -> Float:
        return np.asarray(self.total - math.log(draws))
