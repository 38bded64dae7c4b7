"""The thorough tier: the sampler, averaged over ranks and over what an anomaly may look like.

The family is not chosen before the data are sampled. On data with Poisson noise the anomaly's shape s is one
more unknown of the chains (s = 1: exponential onset, s large: thinning, alpha near 0: no sales); a failure at
a uniform moment of the week is no Gamma exposure and has chains of its own, weighted by the Bayes factor of
the two (family_evidence.py). Overdispersion hides the difference, so there s stays what the exploration says.

Where the cavity estimate can be trusted as well (dense, Poisson noise) f is averaged with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.families import ExposureFamily, GammaExposure, SampledFamily, exposure_family
from ew_pipeline.method.intervals import theta_from_draws
from ew_pipeline.method.plan import Plan
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.sampler.chain import SamplerBudget
from ew_pipeline.method.sampler.ensemble import (
    NOISY_RATE_TILT,
    EnsembleFit,
    anomalies_exist,
    blend,
    sample_ensemble,
)
from ew_pipeline.method.sampler.family_evidence import FamilyChains, log_bayes_factor
from ew_pipeline.method.selection import NEGLIGIBLE_DISPERSION, ONSET, RankPath, density, is_sparse
from ew_pipeline.method.theta import Theta
from ew_pipeline.method.variational.tier import Exploration, average_restarts, explore, finish

# The share of the variational tier's f in the average. It errs by a family or rank it is too sure of, the
# chains by their shortness and a noise freer than the data decide: on forty instances each, regret fell from
# 0.0201 to 0.0183 for the paper's ensemble and from 0.039 to 0.035 for thinning, alike for weights of 0.3 to
# 0.6. It takes noise for Poisson and knows no onset uniform in the week, so its share is by how sure the
# chains are of the one and that there is none of the other: on healthy chains with s0 = 10 and 20 flags cost
# a sixth and half of what they did (160 instances), and regret elsewhere is the same to 0.0005.
CAVITY_WEIGHT = 0.3
# That there are anomalies at all, before the sales are seen. With Poisson noise a rank too small is taken for
# some now and then, and odds against them cost little: on forty instances each, 0.25% of the pairs of healthy
# chains are flagged for 0.29% with even odds; regret of thinning is 0.0524 for 0.0514, of the paper's
# ensemble the same.
POISSON_ODDS = 0.5
# In overdispersed data the noise itself is taken for anomalies now and then. These odds, which fade where
# noise is strong (ensemble.py), were 1 to 16 while chains stayed on the hill they had started from
# (leaps.py). On 25 instances each regret at s0 = 5 is 0.0166 for 0.0203 with those, and 0.0150 with 1
# to 2; of the pairs of healthy chains 0.17% are flagged for 0.05% and 0.28%, at most 1.1% for 0.3% and 1.8%.
NOISY_ODDS = 0.25
R_HAT_LIMIT = 1.2
# of the intervals: short chains see less than the posterior. At 1.2, 90% intervals held alpha in 85% and p_A
# in 89% of a thousand instances.
ALPHA_WIDENING, RATE_WIDENING = 1.35, 1.25
ALPHA_RANGE, RATE_RANGE = (0.0, 1.0), (0.0, 0.4)
ONSET_HOPELESS = -10.0  # nats of leave-one-out score behind the exponential at which no chain is spent
ONSET_ALPHAS = (0.15, 0.7)  # the mean of U(0, 1) is 1/2; other families see it from here
ONSET_ODDS = 1.0  # of the uniform onset against all Gamma exposures together, before the sales are seen
SMALLEST_WEIGHT = 0.05
CERTAIN = 0.9
NO_SALES = 0.02
MILD_DISPERSION = 0.1  # 1 / s0 that anomalies of another family can be taken for
SWAPPED_RATE = 0.9 * RATE_RANGE[1]
MIDDLE_SHAPE = math.sqrt(200.0)  # between the exponential onset and thinning


@dataclass(frozen=True, eq=False)
class Sampled:
    """The chains put together: which family they speak for, and what was spent."""

    ensemble: EnsembleFit
    family: str
    runs: int
    onset_weight: float = 0.0


def fit_thorough(plan: Plan, found: Exploration, budget: SamplerBudget) -> DetectorFit:
    """Sample and put together; where noise and family are open, the chains settle both."""
    if plan.noise == "auto" and plan.anomaly == "auto" and not is_sparse(found.data):
        plan, found, sampled = _settle_noise(plan, found, budget)
    else:
        sampled = sample_families(plan, found, budget)
    ensemble = sampled.ensemble
    size = float(np.exp(np.median(np.log(ensemble.size_draws))))
    noisy = found.path.negative_binomial or overdispersed(ensemble)
    odds = NOISY_ODDS if noisy else POISSON_ODDS
    exist = 1.0
    if not is_sparse(found.data):
        exist = anomalies_exist(ensemble.negligible, size, odds, ensemble.rate_penalty)
    healthy = 1.0 - exist * (1.0 - ensemble.healthy_probability)
    means, factors = ensemble.means, ensemble.factors
    weight = 0.0
    if not (noisy or found.difficult):
        weight = CAVITY_WEIGHT * _poisson_share(ensemble) * (1.0 - sampled.onset_weight)
    if weight > 0.0:
        cavity = average_restarts(plan, found)
        healthy = (1.0 - weight) * healthy + weight * cavity.healthy
        means = (1.0 - weight) * means + weight * cavity.means
        factors = factors.mixed(cavity.factors, weight)
    return finish(
        plan,
        found,
        healthy=healthy,
        means=means,
        theta=sampled_theta(found.family, sampled),
        rank=_ensemble_rank(found, ensemble),
        noise="negative_binomial" if noisy else "poisson",
        size=size if noisy else math.inf,
        converged=ensemble.r_hat <= R_HAT_LIMIT,
        factors=factors,
        held_out=ensemble.held_out_curve,
        weights=ensemble.weights,
        family_name=sampled.family,
        diagnostics={
            "r_hat": ensemble.r_hat,
            "acceptance": ensemble.acceptance,
            "sampler_runs": float(sampled.runs),
            "posterior_size": size,
            "posterior_shape": float(np.median(ensemble.shape_draws)),
            "anomalies_exist": exist,
            "caution": ensemble.caution,
            "weight_of_cavity": weight,
            "weight_of_uniform_onset": sampled.onset_weight,
        },
    )


def _settle_noise(plan: Plan, found: Exploration, budget: SamplerBudget) -> tuple[Plan, Exploration, Sampled]:
    """Poisson noise unless the chains are sure of more.

    Anomalies of another family look like mild overdispersion to the exploration, and many factors hide it.
    Chains that learn both the dispersion and the anomaly's shape tell them apart. Strong overdispersion
    is not questioned: there a Poisson model can settle on too many anomalies instead. Nor is any against a
    level from history, which is itself an estimate: counts vary around it by more than Poisson noise. Chains
    that are overdispersed and favour the uniform onset stay as they are, dispersion included: the path for
    noise does not know it, and of four such instances regret was 0.06 to 0.15 there for 0.03 to 0.04.
    """
    runs = 0
    if found.path.negative_binomial:
        if plan.level is not None or found.path.best.parameters.inverse_size > MILD_DISPERSION:
            return plan, found, sample_families(plan, found, budget)
        poisson = explore(replace(plan, noise="poisson"))
        # from the dispersion that is in question, which a short chain leaves more surely than it finds
        start = poisson.path.only_best.with_dispersion(found.path.best.parameters.inverse_size)
        glance, runs = _chains(plan, poisson, _learnt(poisson.family), start, budget, most_runs=1)
        if _swapped(glance) or overdispersed(glance) or glance.r_hat > R_HAT_LIMIT:
            sampled = sample_families(plan, found, budget)
            return plan, found, replace(sampled, runs=runs + sampled.runs)
        found = poisson
    sampled = sample_families(plan, found, budget)
    if _swapped(sampled.ensemble) or (overdispersed(sampled.ensemble) and sampled.onset_weight <= 0.5):
        runs += sampled.runs
        plan = replace(plan, noise="negative_binomial")
        found = explore(plan)
        sampled = sample_families(plan, found, budget)
    return plan, found, replace(sampled, runs=runs + sampled.runs)


def _swapped(ensemble: EnsembleFit) -> bool:
    """Next to the largest anomaly rate there may be: anomalies and the healthy may have swapped roles."""
    return float(np.median(ensemble.rate_draws)) > SWAPPED_RATE


def _learnt(family: ExposureFamily) -> ExposureFamily:
    """The family with its shape to be learnt, where it has one."""
    return family.any_shape if isinstance(family, GammaExposure) else family


def _sampled(family: ExposureFamily) -> SampledFamily:
    """The family as one that the sampler knows."""
    if not isinstance(family, SampledFamily):
        raise TypeError("the sampler needs a compiled family")
    return family


def _poisson_share(ensemble: EnsembleFit) -> float:
    """P(noise is next to Poisson), by the chains."""
    return float(np.mean(ensemble.size_draws > 1.0 / NEGLIGIBLE_DISPERSION))


def overdispersed(ensemble: EnsembleFit) -> bool:
    """Whether the chains are sure that noise is not Poisson."""
    return float(np.quantile(ensemble.size_draws, 0.95)) < 1.0 / NEGLIGIBLE_DISPERSION


def sample_families(plan: Plan, found: Exploration, budget: SamplerBudget) -> Sampled:
    """The chains of the family asked for, or of all that the data leave open."""
    family = found.family
    if plan.anomaly != "auto" or found.path.negative_binomial:
        ensemble, runs = _chains(plan, found, family, found.path, budget)
        return Sampled(ensemble, family.name, runs)
    ensemble, runs = _chains(plan, found, _learnt(family), found.path, budget)
    if not _onset_is_possible(found, ensemble):
        return Sampled(ensemble, _named(ensemble), runs)
    onset = _sampled(exposure_family(ONSET))
    path = found.path.only_best.under(found.data, onset)
    other, more = _chains(plan, found, onset, path, budget)
    rank = found.path.best.rank
    gain = log_bayes_factor(
        found.data,
        FamilyChains(_sampled(_learnt(family)), found.path.best, ensemble.chains[rank]),
        FamilyChains(onset, path.best, other.chains[rank]),
        plan.rng,
    )
    weight = float(expit(gain + math.log(ONSET_ODDS)))
    if weight >= SMALLEST_WEIGHT:
        ensemble = blend(ensemble, other, weight)
    name = ONSET if weight > 0.5 else _named(ensemble)
    return Sampled(ensemble, name, runs + more, weight if weight >= SMALLEST_WEIGHT else 0.0)


def _onset_is_possible(found: Exploration, ensemble: EnsembleFit) -> bool:
    scores = found.family_scores
    if scores.get(ONSET, -math.inf) < scores["exponential"] + ONSET_HOPELESS or is_sparse(found.data):
        return False
    low, high = np.quantile(ensemble.alpha_draws, [0.05, 0.95])
    near = bool(high > ONSET_ALPHAS[0] and low < ONSET_ALPHAS[1])
    return near and anomalies_exist(ensemble.negligible, penalty=ensemble.rate_penalty) > CERTAIN


def _named(ensemble: EnsembleFit) -> str:
    """The named family that the sampled shape is nearest to."""
    if float(np.quantile(ensemble.alpha_draws, 0.95)) < NO_SALES:
        return "zero"
    return "thinning" if float(np.median(ensemble.shape_draws)) > MIDDLE_SHAPE else "exponential"


def _chains(
    plan: Plan,
    found: Exploration,
    family: ExposureFamily,
    path: RankPath,
    budget: SamplerBudget,
    most_runs: int = 2,
) -> tuple[EnsembleFit, int]:
    """The chains of one family, and how often they were run: once more, and longer, if they disagree."""
    runs = 0
    tilt = NOISY_RATE_TILT if found.path.negative_binomial and not is_sparse(found.data) else 0.0
    while True:
        ensemble = sample_ensemble(
            found.data,
            _sampled(family),
            path,
            plan.rng,
            budget,
            blind=found.difficult and plan.rank is None,
            caution=min(density(found.data), 1.0),
            overdispersed=plan.noise != "poisson",
            rate_tilt=tilt,
            n_threads=plan.n_threads or 1,
        )
        runs += 1
        if ensemble.r_hat <= R_HAT_LIMIT or runs == most_runs:
            return ensemble, runs
        budget = SamplerBudget(2 * budget.warm_up, 2 * budget.draws, budget.leapfrog + 3, budget.kept)


def sampled_theta(family: ExposureFamily, sampled: Sampled) -> Theta:
    """theta with intervals from the draws; alpha is known where the one family sampled has none."""
    ensemble = sampled.ensemble
    alphas = ensemble.alpha_draws
    alpha_free = bool(np.ptp(alphas) > 0.0)
    return theta_from_draws(
        _widened(alphas, *ALPHA_RANGE, ALPHA_WIDENING) if alpha_free else alphas,
        _widened(ensemble.rate_draws, *RATE_RANGE, RATE_WIDENING),
        ALPHA_RANGE if alpha_free else family.alpha_bounds,
    )


def _widened(draws: Float, low: float, high: float, factor: float) -> Float:
    """Draws spread out about their median on the logit scale."""
    share = np.clip((draws - low) / (high - low), 1e-6, 1.0 - 1e-6)
    logits = np.log(share / (1.0 - share))
    centre = np.median(logits)
    return np.asarray(low + (high - low) * expit(centre + factor * (logits - centre)))


def _ensemble_rank(found: Exploration, ensemble: EnsembleFit) -> int:
    """The rank cross-validation names: by held-out entries where they were kept, else by the curve."""
    if ensemble.held_out_curve is not None:
        return ensemble.held_out_curve.best
    return found.path.best.rank
