"""Averaging the sampler over ranks, with weights from entries the chains did not see.

No single rank is right for a real chain, and f is averaged over what is unknown anyway. Dense Poisson
data: the ranks near the top of the leave-one-out curve, weighted by it. Sparse or overdispersed data:
small ranks and the curve's own choice, two chains each, each chain blind to its own tenth of the
entries; the weights stack their predictive densities there (Yao, Vehtari, Simpson and Gelman 2018,
section 3.1, with held-out in place of leave-one-out densities: importance-weighted leave-one-out
overstates large ranks by tens to hundreds of nats on such data).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ew_pipeline.core.arrays import Bool, Float, Int64
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.families import SampledFamily
from ew_pipeline.method.folds import RankCurve, rank_curve
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.sampler.chain import Chain, SamplerBudget, run_chain
from ew_pipeline.method.sampler.rate_posterior import NEGLIGIBLE_RATE
from ew_pipeline.method.sampler.state import CountTable
from ew_pipeline.method.selection import RankPath, held_out_masks
from ew_pipeline.method.theta import RATE_CAP, RATE_PENALTY

N_CHAINS = 2
TEMPERATURE = 10.0  # nats of leave-one-out score per e-fold of weight: the curve's own error is of that size
SMALLEST_WEIGHT = 0.05
MOST_RANKS = 3
SMALL_RANKS = (1, 2, 3)
# s0 from which noise hides anomalies, and from which it does not: for the odds that there are any (its
# median), and for how cautiously f is taken (its lower quartile: what it may well be). Strong noise is no
# reason for caution by itself: where p_A is known all the same, to within the second pair (of the distance
# between its 5% and 95% quantiles), or surely not small (the third, of the 5% quantile), none is needed.
STRONG_NOISE, CAUTIOUS_NOISE = (2.5, 5.0), (2.45, 2.65)
CAUTIOUS_SPREAD, SURE_RATE = (0.12, 0.2), (0.09, 0.12)
ODDS_IN_STRONG_NOISE = 30.0
# Where data are many and noise is overdispersed but not strong, p_A is known but for a tail that the prior
# cuts off: averages are under exp(-3 p_A) there, and the odds for anomalies in tier.py make up for it.
NOISY_RATE_TILT = 5.0
# What the odds of an anomaly are multiplied by in strong noise; with few data by how many there are of those
# that are needed (tier.py). There the posterior of p_A is its prior, and a prior that is right on average
# still makes flags that cost more than they save wherever anomalies are rarer than it says; doing nothing is
# the alternative we must not lose to. With few data (5% and 10% observed, 30 x 300) 3 of 210 instances cost
# over 0.02 more than it without caution, by up to 0.06, and none does; cost against it is -0.113 for -0.153.
# With s0 = 2 it is -0.083 for -0.096 with 0.62 (25 instances), the worst at +0.001 for +0.045; of 260 without
# caution 15 cost over 0.02 more than doing nothing, by up to 0.22. At s0 = 5 it matters now and then only.
CAUTION_IN_STRONG_NOISE = 0.38
STACKING_PRIOR = 1.0  # pseudo-entries per rank that hold the weights off zero and one


@dataclass(frozen=True, eq=False)
class EnsembleFit:
    """Chains of several ranks put together. ``weights`` by rank sum to one."""

    healthy_probability: Float
    means: Float
    weights: dict[int, float]
    held_out_curve: RankCurve | None
    alpha_draws: Float
    rate_draws: Float
    size_draws: Float
    shape_draws: Float
    factors: LowRankFactors
    r_hat: float
    acceptance: float
    caution: float  # what the odds of an anomaly were multiplied by; 1 where p_A is known
    rate_penalty: float  # c of the prior exp(-c p_A) that draws and averages are under
    negligible: float  # P(p_A < NEGLIGIBLE_RATE | sales) under it
    chains: dict[int, list[Chain]]  # by rank


def sample_ensemble(
    data: Observations,
    family: SampledFamily,
    path: RankPath,
    rng: np.random.Generator,
    budget: SamplerBudget,
    *,
    blind: bool,
    caution: float = 1.0,
    overdispersed: bool = True,
    rate_tilt: float = 0.0,
    n_threads: int = 1,
) -> EnsembleFit:
    """Run the chains and combine them.

    ``blind``: hold out a tenth per chain and stack on it. ``caution``: what the odds of an anomaly are
    multiplied by, and by more where noise is strong. ``overdispersed``: whether s0 is learnt.
    ``rate_tilt``: by how much flatter the prior of p_A is than the sampler's own.
    """
    weights = _curve_weights(path)
    ranks = _blind_ranks(path) if blind else tuple(weights)
    masks: list[Bool | None] = [None] * N_CHAINS
    if blind:
        masks = list(held_out_masks(data.counts.size, N_CHAINS, rng))
    kinds = np.unique(data.counts)
    views = [_split(data, mask, kinds) for mask in masks]
    tasks = [(rank, k, generator) for rank in ranks for k, generator in enumerate(rng.spawn(N_CHAINS))]

    def run(task: tuple[int, int, np.random.Generator]) -> Chain:
        rank, k, generator = task
        seen, table, hidden = views[k]
        return run_chain(
            seen,
            table,
            family,
            path.fits[rank],
            generator,
            budget,
            hidden,
            overdispersed=overdispersed,
            rate_tilt=rate_tilt,
        )

    if n_threads == 1:
        chains = [run(task) for task in tasks]
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            chains = list(pool.map(run, tasks))
    by_rank = {rank: chains[i * N_CHAINS : (i + 1) * N_CHAINS] for i, rank in enumerate(ranks)}
    curve = None
    if blind:
        densities = {
            rank: np.concatenate([chain.held_out_density for chain in group])
            for rank, group in by_rank.items()
        }
        curve = rank_curve(densities)
        weights = dict(zip(ranks, stacking_weights(np.array(list(densities.values()))), strict=True))
    return _combine(data, by_rank, weights, masks, curve, caution, RATE_PENALTY - rate_tilt)


def anomalies_exist(
    negligible: float, size: float = math.inf, odds: float = 1.0, penalty: float = RATE_PENALTY
) -> float:
    """P(p_A > 0 | sales) with ``odds`` before, by the Savage-Dickey ratio (Dickey 1971).

    The model in which every pair is healthy is the limit p_A = 0 of the sampled one, so its Bayes factor
    is the posterior density of p_A at 0 over the prior's (~ exp(-``penalty`` p_A)), here of p_A <
    NEGLIGIBLE_RATE (``negligible``: the posterior's). It costs no chains of its own, and unlike a score of
    held-out entries uses all of them.

    Where noise is strong (``size`` is s0) sales say next to nothing of p_A, the ratio is about one whatever
    the truth, and odds against anomalies would only cut a prior that leans to few of them as it is. There
    they favour anomalies. s0 says a little by itself: what anomalies the chains miss they take for noise, so
    that it is below the truth where there are some, and above it where there are none.
    """
    prior = math.expm1(-penalty * NEGLIGIBLE_RATE) / math.expm1(-penalty * RATE_CAP)
    strength = _strength(size, STRONG_NOISE)
    odds = odds ** (1.0 - strength) * ODDS_IN_STRONG_NOISE**strength
    return float(1.0 / (1.0 + negligible / prior / odds))


def _strength(size: float, span: tuple[float, float]) -> float:
    """Of noise, from 0 to 1: how far s0 is too small for one week to tell it from anomalies."""
    strong, mild = span
    return min(max((math.log(mild) - math.log(size)) / math.log(mild / strong), 0.0), 1.0)


def blend(first: EnsembleFit, second: EnsembleFit, weight: float) -> EnsembleFit:
    """The average of the fits of two anomaly families, ``weight`` on the second; the rest is the first's."""

    def pooled(name: str) -> Float:
        pieces = []
        for fit, share in ((first, 1.0 - weight), (second, weight)):
            draws = getattr(fit, name)
            pieces.append(
                draws[np.linspace(0, draws.size - 1, max(1, round(share * draws.size))).astype(int)]
            )
        return np.concatenate(pieces)

    return replace(
        first,
        healthy_probability=(1.0 - weight) * first.healthy_probability + weight * second.healthy_probability,
        means=(1.0 - weight) * first.means + weight * second.means,
        alpha_draws=pooled("alpha_draws"),
        rate_draws=pooled("rate_draws"),
        size_draws=pooled("size_draws"),
        shape_draws=pooled("shape_draws"),
        factors=first.factors.mixed(second.factors, weight),
        negligible=(1.0 - weight) * first.negligible + weight * second.negligible,
        r_hat=max(first.r_hat, second.r_hat),
    )


def stacking_weights(log_densities: Float, prior: float = STACKING_PRIOR) -> list[float]:
    """Weights w that maximise sum_e log sum_k w_k exp(l_ke) under a Dirichlet prior, by EM."""
    n_models, n_entries = log_densities.shape
    densities = np.exp(log_densities - log_densities.max(axis=0))
    weights = np.full(n_models, 1.0 / n_models)
    for _ in range(500):
        shares = weights[:, None] * densities
        shares /= shares.sum(axis=0)
        updated = (shares.sum(axis=1) + prior) / (n_entries + n_models * prior)
        if np.abs(updated - weights).max() < 1e-6:
            break
        weights = updated
    return [float(w) for w in updated]


def split_r_hat(draws: list[Float]) -> float:
    """Gelman and Rubin's diagnostic on the halves of each chain; 1 is converged."""
    halves = np.array([half for chain in draws for half in np.array_split(chain[: len(chain) // 2 * 2], 2)])
    length = halves.shape[1]
    within = halves.var(axis=1, ddof=1).mean()
    between = length * halves.mean(axis=1).var(ddof=1)
    if within <= 0.0:
        return 1.0
    return float(np.sqrt((within * (length - 1) / length + between / length) / within))


def _curve_weights(path: RankPath) -> dict[int, float]:
    scores = {rank: fit.score for rank, fit in path.fits.items()}
    top = max(scores.values())
    raw = {rank: float(np.exp((score - top) / TEMPERATURE)) for rank, score in scores.items()}
    total = sum(raw.values())
    kept = sorted((r for r in raw if raw[r] / total >= SMALLEST_WEIGHT), key=lambda r: -raw[r])[:MOST_RANKS]
    total = sum(raw[r] for r in kept)
    return {rank: raw[rank] / total for rank in sorted(kept)}


def _blind_ranks(path: RankPath) -> tuple[int, ...]:
    """Small ranks, the curve's choice and the next above it: a rank too small leaves misfit that looks like
    anomalies, and the weights can tell."""
    best = path.best.rank
    above = [rank for rank in sorted(path.fits) if rank > best][:1]
    return tuple(sorted({rank for rank in SMALL_RANKS if rank in path.fits} | {best, *above}))


def _split(
    data: Observations, mask: Bool | None, kinds: Float
) -> tuple[Observations, CountTable, Observations | None]:
    if mask is None:
        return data, CountTable.of(data, kinds), None
    seen = Observations.of(data.sales.select(~mask), data.level[~mask])
    hidden = Observations.of(data.sales.select(mask), data.level[mask])
    return seen, CountTable.of(seen, kinds), hidden


def _combine(
    data: Observations,
    by_rank: dict[int, list[Chain]],
    weights: dict[int, float],
    masks: list[Bool | None],
    curve: RankCurve | None,
    caution: float,
    rate_penalty: float,
) -> EnsembleFit:
    """The average over ranks and chains, taken with ``caution``, and with more in strong noise."""
    size = data.counts.size
    healthy = np.zeros(size)
    means = np.zeros(size)
    for rank, chains in by_rank.items():
        total, total_means, seen = np.zeros(size), np.zeros(size), np.zeros(size)
        for chain, mask in zip(chains, masks, strict=True):
            at: Bool | slice = slice(None) if mask is None else ~mask
            total[at] += chain.healthy_probability
            total_means[at] += chain.means
            seen[at] += 1.0
        healthy += weights[rank] * total / seen
        means += weights[rank] * total_means / seen
    # the weights' own sum, in the same order: an f of one in every chain is then exactly one
    total_weight = sum(weights[rank] for rank in by_rank)
    healthy /= total_weight
    means /= total_weight
    flat = [(weights[rank], chain) for rank, chains in by_rank.items() for chain in chains]
    length = len(flat[0][1].rate_draws)
    # draws in proportion to the weights of ranks and draws: a fixed choice, so the result is reproducible
    picks = [_systematic(chain.draw_weights, max(1, round(w * 4 * length))) for w, chain in flat]

    def pooled(name: str) -> Float:
        return np.concatenate(
            [getattr(chain, name)[pick] for pick, (_, chain) in zip(picks, flat, strict=True)]
        )

    rate_draws, size_draws = pooled("rate_draws"), pooled("size_draws")
    caution *= CAUTION_IN_STRONG_NOISE ** _hidden(rate_draws, size_draws)
    main = max(weights, key=lambda rank: weights[rank])
    logit = [np.log(c.rate_draws / (0.4001 - c.rate_draws)) for c in by_rank[main]]
    logit_alpha = [np.log((c.alpha_draws + 1e-9) / (1.0 + 1e-9 - c.alpha_draws)) for c in by_rank[main]]
    return EnsembleFit(
        healthy_probability=doubted(healthy, caution),
        means=means,
        weights=weights,
        held_out_curve=curve,
        alpha_draws=pooled("alpha_draws"),
        rate_draws=rate_draws,
        size_draws=size_draws,
        shape_draws=pooled("shape_draws"),
        factors=_mean_factors(flat),
        r_hat=max(split_r_hat(logit), split_r_hat(logit_alpha)),
        acceptance=float(np.mean([chain.acceptance for _, chain in flat])),
        caution=caution,
        rate_penalty=rate_penalty,
        negligible=sum(weights[rank] * _negligible(chains) for rank, chains in by_rank.items())
        / total_weight,
        chains=by_rank,
    )


def _negligible(chains: list[Chain]) -> float:
    """P(p_A < NEGLIGIBLE_RATE | sales) by the chains of one rank; in single precision, as the last bits of
    numpy's logarithms differ between processors."""
    below, whole = np.sum([chain.negligible for chain in chains], axis=0)
    return float(np.float32(below / whole))


def doubted(healthy: Float, odds: float) -> Float:
    """f with the odds of an anomaly multiplied by ``odds``: what is certain stays so."""
    return np.asarray(healthy / (healthy + odds * (1.0 - healthy)))


def _systematic(weights: Float, count: int) -> Int64:
    """Which draws make a sample of ``count`` with these weights, at even steps through their sum."""
    steps = (np.arange(count) + 0.5) / count * weights.sum()
    return np.asarray(np.minimum(np.searchsorted(np.cumsum(weights), steps), weights.size - 1), np.int64)


def _hidden(rate_draws: Float, size_draws: Float) -> float:
    """How far noise hides how many anomalies there are, from 0 to 1."""
    low, high = (float(q) for q in np.quantile(rate_draws, [0.05, 0.95]))
    unknown = _passed(high - low, CAUTIOUS_SPREAD) * (1.0 - _passed(low, SURE_RATE))
    return unknown * _strength(float(np.quantile(size_draws, 0.25)), CAUTIOUS_NOISE)


def _passed(value: float, span: tuple[float, float]) -> float:
    """How much of the span lies below the value, from 0 to 1."""
    return min(max((value - span[0]) / (span[1] - span[0]), 0.0), 1.0)


def _mean_factors(weighted: list[tuple[float, Chain]]) -> LowRankFactors:
    """The posterior mean of M as one pair of (wide) factors: kept draws side by side, scaled."""
    total = sum(w * len(chain.kept_left) for w, chain in weighted)
    left = [w / total * factors for w, chain in weighted for factors in chain.kept_left]
    right = [factors for _, chain in weighted for factors in chain.kept_right]
    return LowRankFactors(np.hstack(left), np.hstack(right))
