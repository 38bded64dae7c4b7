"""The paper's own two variants: denoise, estimate theta, plug in, once each.

paper           Algorithm 1 as printed               reference
paper-practical soft-impute and maximum likelihood   reference: the paper's own implementation, no oracle
"""

from __future__ import annotations

import math

import numpy as np

from ew_pipeline.method.anomalies import anomaly_model, mean_scale
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.intervals import information_interval, to_theta
from ew_pipeline.method.noise import NegativeBinomial, NoiseModel, Poisson, estimate_dispersion
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.paper.denoise import soft_impute_to_rank, zero_filled_svd
from ew_pipeline.method.paper.likelihood import MixtureProblem, ThetaEstimate, maximise
from ew_pipeline.method.paper.moments import match_moments
from ew_pipeline.method.paper.posterior import healthy_probability
from ew_pipeline.method.plan import Plan
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.selection import rank_path


def fit_reference(plan: Plan) -> DetectorFit:
    """``paper`` and ``paper-practical``, without oracle knowledge."""
    sales, rng = plan.sales, plan.rng
    model = anomaly_model("exponential" if plan.anomaly == "auto" else plan.anomaly)

    rank, curve = plan.rank, None
    if rank is None:
        # the paper's two variants get the rank the default would start from: cross-validated, no oracle
        path = rank_path(
            Observations.of(sales),
            exposure_family("exponential"),
            plan.ranks,
            rng,
            negative_binomial=False,
        )
        curve, rank = path.curve, path.best.rank
    # neither denoiser knows a level: they fit the sales themselves
    if plan.mode == "paper":
        factors = zero_filled_svd(sales, rank, rng)
    else:
        factors = soft_impute_to_rank(sales, rank, rng).factors
    scaled = np.maximum(factors.rates_at(sales), 1e-3)
    counts = sales.counts.astype(np.float64)
    noise: NoiseModel = Poisson()
    size = math.inf
    if plan.noise == "negative_binomial":
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
