"""One pass through the steps: denoise, estimate theta, plug in.

fast            ALS, then maximum likelihood         a few seconds at national scale
paper           Algorithm 1 as printed               reference
paper-practical soft-impute and maximum likelihood   reference: the paper's own implementation, no oracle
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ew_pipeline.algorithm.als import als
from ew_pipeline.algorithm.anomaly_models import anomaly_model, mean_scale
from ew_pipeline.algorithm.factors import LowRankFactors
from ew_pipeline.algorithm.families import exposure_family
from ew_pipeline.algorithm.folds import RankCurve, entry_folds, held_out_curve
from ew_pipeline.algorithm.intervals import information_interval, to_theta
from ew_pipeline.algorithm.likelihood import MixtureProblem, ThetaEstimate, maximise
from ew_pipeline.algorithm.moments import match_moments
from ew_pipeline.algorithm.noise import NegativeBinomial, NoiseModel, Poisson, estimate_dispersion
from ew_pipeline.algorithm.observations import Observations
from ew_pipeline.algorithm.plan import Plan
from ew_pipeline.algorithm.posterior import healthy_probability
from ew_pipeline.algorithm.result import DetectorFit
from ew_pipeline.algorithm.selection import rank_path
from ew_pipeline.algorithm.soft_impute import soft_impute_to_rank
from ew_pipeline.algorithm.svd import zero_filled_svd
from ew_pipeline.algorithm.types import Float
from ew_pipeline.data.sales_matrix import SalesMatrix

REFERENCE_RANKS = (1, 2, 3, 4, 5, 7, 10)
N_FOLDS = 3


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
            Observations.of(sales),
            exposure_family("exponential"),
            plan.ranks,
            rng,
            negative_binomial=False,
        )
        curve, rank = path.curve, path.best.rank
    factors = denoise(sales, rank, plan.level)
    # the paper's denoisers know no level: they fit the sales themselves
    level = plan.level if plan.level is not None and plan.mode == "fast" else 1.0
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
    words = [] if theta.identified else [f"theta is {theta.reason}"]
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
