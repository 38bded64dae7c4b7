"""The ways to fit, one function each; the detector chooses between them.

thorough        sampler averaged over ranks          small, sparse or overdispersed data
variational     Gamma-Poisson with cavity estimates  above that
fast            ALS, then maximum likelihood         a few seconds at national scale
paper           Algorithm 1 as printed               reference
paper-practical soft-impute and maximum likelihood   reference: the paper's own implementation, with no oracle
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ew_pipeline.algorithm.als import als
from ew_pipeline.algorithm.anomaly_models import AnomalyModel, anomaly_model, mean_scale
from ew_pipeline.algorithm.ensemble import EnsembleFit, sample_ensemble
from ew_pipeline.algorithm.factors import LowRankFactors
from ew_pipeline.algorithm.families import ExposureFamily, GammaExposure, exposure_family
from ew_pipeline.algorithm.folds import RankCurve, entry_folds, held_out_curve
from ew_pipeline.algorithm.intervals import information_interval, theta_from_draws, to_theta
from ew_pipeline.algorithm.likelihood import MixtureProblem, ThetaEstimate, maximise
from ew_pipeline.algorithm.moments import match_moments
from ew_pipeline.algorithm.noise import NegativeBinomial, NoiseModel, Poisson, estimate_dispersion
from ew_pipeline.algorithm.posterior import healthy_probability
from ew_pipeline.algorithm.result import DetectorFit
from ew_pipeline.algorithm.sampler import SamplerBudget
from ew_pipeline.algorithm.selection import (
    RankPath,
    candidate_ranks,
    choose_family,
    choose_noise,
    held_out_masks,
    held_out_scores,
    is_sparse,
    rank_path,
    rival_fit,
)
from ew_pipeline.algorithm.soft_impute import soft_impute_to_rank
from ew_pipeline.algorithm.svd import zero_filled_svd
from ew_pipeline.algorithm.theta import Theta
from ew_pipeline.algorithm.types import Float
from ew_pipeline.algorithm.variational import (
    Observations,
    VariationalFit,
    fit_variational,
    information_theta,
    start_factors,
)
from ew_pipeline.data.sales_matrix import SalesMatrix

RESTARTS = 3
RESTART_GAP = 60.0  # nats below the best at which a restart is a different, worse explanation
R_HAT_LIMIT = 1.2
ALPHA_WIDENING, RATE_WIDENING = 1.15, 1.35
ALPHA_RANGE, RATE_RANGE = (0.0, 1.0), (0.0, 0.4)
FAMILIES = ("exponential", "thinning", "zero")
REFERENCE_RANKS = (1, 2, 3, 4, 5, 7, 10)
N_FOLDS = 3


@dataclass(frozen=True, eq=False)
class Plan:
    """One fit to be done: the data and the choices left open."""

    sales: SalesMatrix
    level: Float | None
    rank: int | None
    noise: str
    anomaly: str | AnomalyModel
    max_rank: int
    n_threads: int
    rng: np.random.Generator
    mode: str
    mode_reason: str
    probability: str
    drop_fraction: float
    cross_check: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        if self.rank is not None:
            return (self.rank,)
        return candidate_ranks(self.sales.shape, self.sales.n_observed, self.max_rank)


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
    path = choose_noise(data, family, plan.ranks, plan.rng, plan.noise)
    scores = {family.name: path.best.score}
    if plan.anomaly == "auto":
        rivals = tuple(exposure_family(name) for name in FAMILIES)
        chosen, scores = choose_family(data, rivals, path.best, path.negative_binomial)
        if chosen.name != family.name:
            family = chosen
            path = choose_noise(data, family, plan.ranks, plan.rng, plan.noise)
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
            doubtful=is_sparse(found.data) or found.null_gain <= 0.0,
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
    noise = "negative_binomial" if found.path.negative_binomial else "poisson"
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
        theta=information_theta(data, best, family, found.null_gain),
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
        posterior_=1.0 - healthy,
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
        words.append(f"theta is not identified: {theta.reason}")
    if found.null_gain <= 0.0:
        words.append("a model without anomalies predicts as well; there may be nothing to find")
    if is_sparse(found.data):
        words.append("fewer than 12 observed pairs per store and SKU: expected sales are uncertain")
    return tuple(words)


def _fold_curve(plan: Plan, denoise: Callable[..., LowRankFactors]) -> RankCurve | None:
    """Held-out entry folds, or nothing where a matrix is too thin to fold."""
    sales = plan.sales
    ranks = tuple(r for r in REFERENCE_RANKS if r <= min(*sales.shape, plan.max_rank))
    if len(ranks) == 1 or min(sales.shape) == 1:
        return None
    folds = entry_folds(sales, N_FOLDS, plan.rng)
    return held_out_curve(sales, ranks, denoise, folds, level=plan.level)


def fit_reference(plan: Plan) -> DetectorFit:
    """``fast``, ``paper`` and ``paper-practical``: denoise, estimate theta, plug in, once each."""
    sales, rng = plan.sales, plan.rng
    model = anomaly_model("exponential" if plan.anomaly == "auto" else plan.anomaly)

    def denoise(train: SalesMatrix, rank: int, level: Float | None = None) -> LowRankFactors:
        if plan.mode == "paper":
            return zero_filled_svd(train, rank, rng)
        if plan.mode == "paper-practical":
            return soft_impute_to_rank(train, rank, rng).factors
        return als(train, rank, rng, level=level).factors

    rank, curve = plan.rank, None
    if rank is None and plan.mode == "fast":
        curve = _fold_curve(plan, denoise)
        rank = curve.best if curve else 1
    elif rank is None:
        # the paper's two variants get the rank the default would start from: cross-validated, no oracle
        path = rank_path(
            Observations.of(sales, plan.level),
            exposure_family("exponential"),
            plan.ranks,
            rng,
            negative_binomial=False,
        )
        curve, rank = path.curve, path.best.rank
    factors = denoise(sales, rank, plan.level)
    level = 1.0 if plan.level is None else plan.level
    scaled = np.maximum(factors.rates_at(sales) * level, 1e-3)
    counts = sales.counts.astype(np.float64)
    noise: NoiseModel = Poisson()
    size = math.inf
    if plan.noise == "negative_binomial" or (plan.noise == "auto" and plan.mode == "fast"):
        size = estimate_dispersion(counts, scaled)
        noise = NegativeBinomial(size) if math.isfinite(size) else noise
    problem = MixtureProblem(counts, scaled, model, noise, rates_are_scaled=True)
    estimate: ThetaEstimate = (
        match_moments(counts, scaled, model, noise=noise) if plan.mode == "paper" else maximise(problem)
    )
    theta = to_theta(estimate, information_interval(problem, estimate))
    scale = mean_scale(estimate.alpha, estimate.anomaly_rate, model)
    rates = scaled / scale
    healthy = healthy_probability(counts, rates, estimate.alpha, estimate.anomaly_rate, noise, model)
    # each of the r (n + m) factors costs one count's worth of noise, spread over the observed entries
    cv = np.sqrt(rank * sum(sales.shape) / sales.n_observed / np.maximum(rates, 0.05))
    words = [] if theta.identified else [f"theta is not identified: {theta.reason}"]
    return DetectorFit(
        sales=sales,
        posterior_=1.0 - healthy,
        expected_sales_=rates,
        expected_cv_=cv,
        cavity_sales_=np.array(rates),
        cavity_cv_=np.array(cv),
        theta_=theta,
        rank_=rank,
        noise_="poisson" if math.isinf(size) else "negative_binomial",
        anomaly_=model.name,
        dispersion_size_=size,
        mode_=plan.mode,
        mode_reason_=plan.mode_reason,
        converged_=estimate.converged,
        factors_=LowRankFactors(factors.left / scale, np.array(factors.right)),
        anomaly_model=model,
        null_gain_=estimate.log_likelihood - estimate.log_likelihood_null,
        held_out_curve_=curve,
        rank_weights_={rank: 1.0},
        warnings_=tuple(words),
        probability=plan.probability,
        drop_fraction=plan.drop_fraction,
    )
