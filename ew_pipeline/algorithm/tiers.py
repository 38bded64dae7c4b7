"""The two tiers of our own detector; both start from the same exploration.

thorough        sampler averaged over ranks          small, sparse or overdispersed data
variational     Gamma-Poisson with cavity estimates  above that
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ew_pipeline.algorithm.anomaly_models import anomaly_model
from ew_pipeline.algorithm.cavity_theta import information_theta
from ew_pipeline.algorithm.ensemble import EnsembleFit, sample_ensemble
from ew_pipeline.algorithm.factors import LowRankFactors
from ew_pipeline.algorithm.families import ExposureFamily, GammaExposure, exposure_family
from ew_pipeline.algorithm.folds import RankCurve
from ew_pipeline.algorithm.intervals import theta_from_draws
from ew_pipeline.algorithm.observations import Observations
from ew_pipeline.algorithm.plan import Plan
from ew_pipeline.algorithm.result import DetectorFit
from ew_pipeline.algorithm.sampler import SamplerBudget
from ew_pipeline.algorithm.selection import (
    NEGLIGIBLE_DISPERSION,
    RankPath,
    choose_family,
    choose_noise,
    held_out_masks,
    held_out_scores,
    is_sparse,
    rival_fit,
)
from ew_pipeline.algorithm.theta import Theta
from ew_pipeline.algorithm.types import Float
from ew_pipeline.algorithm.variational import (
    VariationalFit,
    fit_variational,
    start_factors,
)

RESTARTS = 2
RESTART_GAP = 60.0  # nats below the best at which a restart is a different, worse explanation
R_HAT_LIMIT = 1.2
ALPHA_WIDENING, RATE_WIDENING = 1.25, 1.3
ALPHA_RANGE, RATE_RANGE = (0.0, 1.0), (0.0, 0.4)
FAMILIES = ("exponential", "thinning", "zero")


@dataclass(frozen=True, eq=False)
class Exploration:
    """The variational path with the family and noise that won on it, and the null model."""

    data: Observations
    family: ExposureFamily
    path: RankPath
    family_scores: dict[str, float]
    null_gain: float

    @property
    def difficult(self) -> bool:
        """Sparse or overdispersed: where the cavity score cannot be trusted to choose the rank."""
        return self.path.negative_binomial or is_sparse(self.data)


def explore(plan: Plan) -> Exploration:
    """Rank path, noise, family and null model: what both tiers start from."""
    data = Observations.of(plan.sales, plan.level)
    family = exposure_family("exponential" if plan.anomaly == "auto" else plan.anomaly)
    rivals = tuple(exposure_family(name) for name in FAMILIES) if plan.anomaly == "auto" else ()
    path = choose_noise(data, family, plan.ranks, plan.rng, plan.noise, rivals[1:])
    scores = {family.name: path.best.score}
    if rivals:
        chosen, scores = choose_family(data, rivals, path.best, path.negative_binomial)
        if chosen.name != family.name:
            family = chosen
            noise = "negative_binomial" if path.negative_binomial else "poisson"
            path = choose_noise(data, family, plan.ranks, plan.rng, noise)
    null = rival_fit(data, family, path.best, negative_binomial=path.negative_binomial, anomalies=False)
    return Exploration(data, family, path, scores, path.best.score - null.score)


def fit_thorough(plan: Plan, found: Exploration, budget: SamplerBudget) -> DetectorFit:
    """The sampler, averaged over ranks; run longer once if its chains disagree."""
    if not isinstance(found.family, GammaExposure):
        raise TypeError("the sampler needs a Gamma exposure family")
    runs = 0
    while True:
        ensemble = sample_ensemble(
            found.data,
            found.family,
            found.path,
            plan.rng,
            budget,
            blind=found.difficult and plan.rank is None,
            doubtful=is_sparse(found.data),
            test_null=not is_sparse(found.data),
            overdispersed=plan.noise != "poisson",
            n_threads=plan.n_threads,
        )
        runs += 1
        if ensemble.r_hat <= R_HAT_LIMIT or runs == 2:
            break
        budget = SamplerBudget(2 * budget.warm_up, 2 * budget.draws, budget.leapfrog + 3, budget.kept)
    alpha_bounds = (0.0, 1.0) if found.family.alpha_free else (0.0, 0.0)
    theta = theta_from_draws(
        _widened(ensemble.alpha_draws, *ALPHA_RANGE, ALPHA_WIDENING)
        if found.family.alpha_free
        else ensemble.alpha_draws,
        _widened(ensemble.rate_draws, *RATE_RANGE, RATE_WIDENING),
        alpha_bounds,
    )
    size = float(np.exp(np.median(np.log(ensemble.size_draws))))
    # Overdispersed if the path said so, or if the sampler is sure of it, which never saw the choice.
    certain = float(np.quantile(ensemble.size_draws, 0.95)) < 1.0 / NEGLIGIBLE_DISPERSION
    noise = "negative_binomial" if found.path.negative_binomial or certain else "poisson"
    return _result(
        plan,
        found,
        healthy=ensemble.healthy_probability,
        means=ensemble.means,
        theta=theta,
        rank=_ensemble_rank(found, ensemble),
        noise=noise,
        size=size if noise == "negative_binomial" else math.inf,
        converged=ensemble.r_hat <= R_HAT_LIMIT,
        factors=ensemble.factors,
        held_out=ensemble.held_out_curve,
        weights=ensemble.weights,
        diagnostics={
            "r_hat": ensemble.r_hat,
            "acceptance": ensemble.acceptance,
            "sampler_runs": float(runs),
            "posterior_size": size,
            "caution": ensemble.caution,
            **({} if ensemble.null_gain is None else {"held_out_null_gain": ensemble.null_gain}),
        },
    )


def _widened(draws: Float, low: float, high: float, factor: float) -> Float:
    """Draws spread out about their median on the logit scale, for what the chains do not explore.

    Few ranks and short chains make the plain quantiles cover the truth in about 75% of the paper's
    instances instead of 90%; the factors bring that back (``ew reproduce table1``).
    """
    share = np.clip((draws - low) / (high - low), 1e-6, 1.0 - 1e-6)
    logits = np.log(share / (1.0 - share))
    centre = np.median(logits)
    return np.asarray(low + (high - low) * expit(centre + factor * (logits - centre)))


def _ensemble_rank(found: Exploration, ensemble: EnsembleFit) -> int:
    """The rank cross-validation names: by held-out entries where they were kept, else by the curve."""
    if ensemble.held_out_curve is not None:
        return ensemble.held_out_curve.best
    return found.path.best.rank


def fit_variational_tier(plan: Plan, found: Exploration) -> DetectorFit:
    """Restarts at the chosen rank, averaged."""
    data, family, path = found.data, found.family, found.path
    rank, held_out = path.best.rank, None
    if found.difficult and plan.rank is None and len(path.fits) > 1:
        masks = held_out_masks(data.counts.size, 1, plan.rng)
        held_out = held_out_scores(
            data, family, tuple(path.fits), masks, plan.rng, negative_binomial=path.negative_binomial
        )
        rank = held_out.best
    first = fit_variational(
        data,
        family,
        (path.fits[rank].left, path.fits[rank].right),
        negative_binomial=path.negative_binomial,
        parameters=path.fits[rank].parameters,
    )
    fits = [first] + [
        fit_variational(
            data, family, start_factors(data, rank, plan.rng), negative_binomial=path.negative_binomial
        )
        for _ in range(RESTARTS - 1)
    ]
    best = max(fits, key=lambda fit: fit.score)
    kept = [fit for fit in fits if fit.score >= best.score - RESTART_GAP]
    return _result(
        plan,
        found,
        healthy=np.mean([fit.healthy_probability for fit in kept], axis=0),
        means=np.mean([fit.means for fit in kept], axis=0),
        theta=information_theta(
            data,
            family,
            best.parameters,
            best.cavity_means,
            best.cavity_cv2,
            score=best.score,
            null_gain=found.null_gain,
            converged=best.converged,
        ),
        rank=rank,
        noise="negative_binomial" if path.negative_binomial else "poisson",
        size=1.0 / best.parameters.inverse_size if path.negative_binomial else math.inf,
        converged=best.converged,
        factors=_mean_of(kept),
        held_out=held_out,
        weights={rank: 1.0},
        diagnostics={"sweeps": float(best.n_sweeps), "restarts_kept": float(len(kept))},
        cavity=best,
    )


def _mean_of(fits: list[VariationalFit]) -> LowRankFactors:
    """The mean of several factorisations as one pair of wider factors."""
    return LowRankFactors(
        np.hstack([fit.left / len(fits) for fit in fits]), np.hstack([fit.right for fit in fits])
    )


def _cross_check(found: Exploration, rng: np.random.Generator) -> RankCurve:
    """Held-out scores of the chosen rank and its neighbours on the path: does the cavity's choice hold?"""
    ranks = sorted(found.path.fits)
    at = ranks.index(found.path.best.rank)
    masks = held_out_masks(found.data.counts.size, 1, rng)
    return held_out_scores(
        found.data,
        found.family,
        tuple(ranks[max(at - 1, 0) : at + 2]),
        masks,
        rng,
        negative_binomial=found.path.negative_binomial,
    )


def _result(
    plan: Plan,
    found: Exploration,
    *,
    healthy: Float,
    means: Float,
    theta: Theta,
    rank: int,
    noise: str,
    size: float,
    converged: bool,
    factors: LowRankFactors,
    held_out: RankCurve | None,
    weights: dict[int, float],
    diagnostics: dict[str, float],
    cavity: VariationalFit | None = None,
) -> DetectorFit:
    cavity = cavity or found.path.fits[rank]
    if held_out is None and plan.cross_check:
        held_out = _cross_check(found, plan.rng)
    return DetectorFit(
        sales=plan.sales,
        posterior_=np.clip(1.0 - healthy, 0.0, 1.0),  # weights that sum to one up to rounding
        expected_sales_=means,
        expected_cv_=np.sqrt(cavity.cv2),
        cavity_sales_=np.array(cavity.cavity_means),
        cavity_cv_=np.sqrt(cavity.cavity_cv2),
        theta_=theta,
        rank_=rank,
        noise_=noise,
        anomaly_=found.family.name,
        dispersion_size_=size,
        mode_=plan.mode,
        mode_reason_=plan.mode_reason,
        converged_=converged,
        factors_=factors,
        anomaly_model=anomaly_model(found.family.name if plan.anomaly == "auto" else plan.anomaly),
        null_gain_=found.null_gain,
        rank_curve_=found.path.curve,
        held_out_curve_=held_out,
        rank_weights_=weights,
        family_scores_=found.family_scores,
        diagnostics_=diagnostics,
        warnings_=_warnings(found, theta, converged),
        probability=plan.probability,
        drop_fraction=plan.drop_fraction,
    )


def _warnings(found: Exploration, theta: Theta, converged: bool) -> tuple[str, ...]:
    words = []
    if not converged:
        words.append("the fit did not converge; do not publish it")
    if theta.at_bound:
        words.append("theta is on the edge of its range; do not publish it")
    if not theta.identified:
        words.append(f"theta is {theta.reason}")
    if found.null_gain <= 0.0:
        words.append("a model without anomalies predicts as well; there may be nothing to find")
    if is_sparse(found.data):
        words.append("fewer than 12 observed pairs per store and SKU: expected sales are uncertain")
    return tuple(words)
