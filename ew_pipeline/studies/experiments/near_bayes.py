"""What no detector can do much better than: our sampler, told all that the ensemble fixes beforehand.

It knows the anomaly's family, the kind of noise, the rank, and that alpha ~ U(0, 1) and p_A ~ U(0, 0.3), and
does not ask whether there are anomalies at all. M and theta of the week it learns from the sales. So its
regret, up to the chains' own error, is that of the best policy for this ensemble, and what it flags on
healthy data shows what such trust costs. No part of the detector.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.anomalies import AnomalyModel, anomaly_model
from ew_pipeline.method.families import GammaExposure, UniformExposure, exposure_family
from ew_pipeline.method.noise import NegativeBinomial, Poisson
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.paper.posterior import ideal_healthy_probability
from ew_pipeline.method.sampler.chain import Chain, SamplerBudget, run_chain
from ew_pipeline.method.sampler.state import CountTable
from ew_pipeline.method.selection import rank_path
from ew_pipeline.method.theta import RATE_PENALTY
from ew_pipeline.studies.ensemble import SyntheticInstance

LARGEST_RATE = 0.3  # p_A ~ U(0, 0.3) in the ensemble
SAMPLED_ALPHA_POWER = 0.5  # the sampler's own p(alpha) ~ (1 - alpha)^0.5
N_CHAINS = 2
BUDGET = SamplerBudget(warm_up=120, draws=200, leapfrog=7, kept=200)  # every draw's factors


def near_bayes(drawn: SyntheticInstance, seed: int, family_name: str | None = None) -> tuple[Float, Float]:
    """P(healthy) of every observed pair, and M (n x m): means over draws of the ensemble's posterior.

    ``family_name``: what it is told of the family, if not the truth.
    """
    truth, rng = drawn.truth, np.random.default_rng(seed)
    data = Observations.of(drawn.sales)
    family_name = family_name or truth.family
    family = exposure_family(family_name)
    if not isinstance(family, GammaExposure | UniformExposure):
        raise TypeError("the ensemble's families are all compiled")
    noisy = truth.noise == "negative_binomial"
    start = rank_path(data, family, (truth.rank,), rng, negative_binomial=noisy).best
    table = CountTable.of(data)
    chains = [
        run_chain(data, table, family, start, generator, BUDGET, overdispersed=noisy)
        for generator in rng.spawn(N_CHAINS)
    ]
    weights = [ensemble_weights(chain) for chain in chains]
    anomaly = anomaly_model(family_name)
    sums = [weighted_sums(drawn, anomaly, chain, own) for chain, own in zip(chains, weights, strict=True)]
    total = sum(float(own.sum()) for own in weights)
    healthy, rates = (np.sum(parts, axis=0) / total for parts in zip(*sums, strict=True))
    return healthy, rates


def weighted_sums(
    drawn: SyntheticInstance, anomaly: AnomalyModel, chain: Chain, weights: Float
) -> tuple[Float, Float]:
    """Sums of f and of M over the draws, with each draw's own parameters."""
    truth, sales = drawn.truth, drawn.sales
    healthy, rates = np.zeros(sales.n_observed), np.zeros(sales.shape)
    for k in np.flatnonzero(weights):
        M = chain.kept_left[k] @ chain.kept_right[k].T
        noise = Poisson() if truth.noise == "poisson" else NegativeBinomial(float(chain.size_draws[k]))
        alpha, rate = float(chain.alpha_draws[k]), float(chain.rate_draws[k])
        f = ideal_healthy_probability(sales.counts, M[sales.rows, sales.cols], alpha, rate, noise, anomaly)
        healthy += weights[k] * f
        rates += weights[k] * M
    return healthy, rates


def ensemble_weights(chain: Chain) -> Float:
    """Weights that turn draws under the sampler's prior of theta into draws under the ensemble's."""
    rate, alpha = chain.rate_draws, chain.alpha_draws
    within = rate <= LARGEST_RATE
    if not within.any():  # all draws above what the ensemble has: those nearest to it
        within = rate <= rate.min()
    log_weights = RATE_PENALTY * rate - SAMPLED_ALPHA_POWER * np.log1p(-np.minimum(alpha, 1.0 - 1e-6))
    return np.asarray(np.where(within, np.exp(log_weights), 0.0))
