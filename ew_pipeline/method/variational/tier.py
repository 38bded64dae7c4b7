"""The two tiers of our own detector; both start from the same exploration.

thorough        sampler averaged over ranks          small, sparse or overdispersed data
variational     Gamma-Poisson with cavity estimates  above that
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.families import ExposureFamily, exposure_family
from ew_pipeline.method.folds import RankCurve
from ew_pipeline.method.observations import Observations
from ew_pipeline.method.plan import Plan
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.selection import (
    ONSET,
    RankPath,
    choose_family,
    choose_noise,
    held_out_masks,
    held_out_scores,
    is_sparse,
    rival_fit,
)
from ew_pipeline.method.theta import Theta
from ew_pipeline.method.variational.axis_rates import AxisRates, find_axes
from ew_pipeline.method.variational.fit import VariationalFit, fit_variational, start_factors
from ew_pipeline.method.variational.theta import information_theta

RESTARTS = 2
RESTART_GAP = 60.0  # nats below the best at which a restart is a different, worse explanation
# Nats over the model without anomalies: the score's own error makes a few of them on healthy data.
NULL_HANDICAP, NULL_TEMPERATURE = 5.0, 5.0
FAMILIES = ("exponential", "thinning", "zero", ONSET)


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
    axes = _find_axes(data, family, path)
    if axes is not None:
        path = choose_noise(data, family, plan.ranks, plan.rng, plan.noise, rivals[1:], axes)
    scores = {family.name: path.best.score}
    if rivals:
        choice = choose_family(data, rivals, path)
        scores = choice.scores
        if choice.family.name == family.name:
            gain = max(scores[family.name], path.best.score) - choice.null_score
            return Exploration(data, family, path, scores, gain)
        family = choice.family
        noise = "negative_binomial" if path.negative_binomial else "poisson"
        path = choose_noise(data, family, plan.ranks, plan.rng, noise, axes=axes)
    nb = path.negative_binomial
    null = rival_fit(data, family, path.best, negative_binomial=nb, anomalies=False).score
    # refitted as well, so that the null model has no more sweeps behind it
    refit = rival_fit(data, family, path.best, negative_binomial=nb).score
    return Exploration(data, family, path, scores, max(refit, path.best.score) - null)


def _find_axes(data: Observations, family: ExposureFamily, path: RankPath) -> AxisRates | None:
    best, doubtful = path.best, path.negative_binomial or is_sparse(data)
    return find_axes(data, family, best.cavity_means, best.cavity_cv2, best.parameters, doubtful=doubtful)


def _believed(found: Exploration, healthy: Float) -> Float:
    """f averaged with the model in which every pair is healthy, by the leave-one-out gain over it.

    Where that score cannot be trusted (sparse or overdispersed data) it is not asked.
    """
    if found.difficult:
        return healthy
    anomalies_exist = float(expit((found.null_gain - NULL_HANDICAP) / NULL_TEMPERATURE))
    return np.asarray(1.0 - anomalies_exist * (1.0 - healthy))


@dataclass(frozen=True, eq=False)
class CavityAverage:
    """Restarts at one rank: the best, those as good, and f averaged over them."""

    best: VariationalFit
    kept: tuple[VariationalFit, ...]
    healthy: Float
    means: Float
    held_out: RankCurve | None

    @property
    def rank(self) -> int:
        return self.best.rank

    @property
    def factors(self) -> LowRankFactors:
        """The mean of the factorisations as one pair of wider factors."""
        return LowRankFactors(
            np.hstack([fit.left / len(self.kept) for fit in self.kept]),
            np.hstack([fit.right for fit in self.kept]),
        )


def average_restarts(plan: Plan, found: Exploration) -> CavityAverage:
    """Restarts at the chosen rank, averaged."""
    data, family, path = found.data, found.family, found.path
    rank, held_out = path.best.rank, None
    if found.difficult and plan.rank is None and len(path.fits) > 1:
        masks = held_out_masks(data.counts.size, 1, plan.rng)
        held_out = held_out_scores(
            data,
            family,
            tuple(path.fits),
            masks,
            plan.rng,
            negative_binomial=path.negative_binomial,
            axes=path.best.axes,
        )
        rank = held_out.best
    first = fit_variational(
        data,
        family,
        (path.fits[rank].left, path.fits[rank].right),
        negative_binomial=path.negative_binomial,
        parameters=path.fits[rank].parameters,
        axes=path.fits[rank].axes,
    )
    fits = [first] + [
        fit_variational(
            data,
            family,
            start_factors(data, rank, plan.rng),
            negative_binomial=path.negative_binomial,
            axes=path.fits[rank].axes,
        )
        for _ in range(RESTARTS - 1)
    ]
    best = max(fits, key=lambda fit: fit.score)
    kept = tuple(fit for fit in fits if fit.score >= best.score - RESTART_GAP)
    healthy = _believed(found, np.mean([fit.healthy_probability for fit in kept], axis=0))
    return CavityAverage(best, kept, healthy, np.mean([fit.means for fit in kept], axis=0), held_out)


def fit_variational_tier(plan: Plan, found: Exploration) -> DetectorFit:
    """The restarts' average as the result."""
    average, nb = average_restarts(plan, found), found.path.negative_binomial
    best = average.best
    return finish(
        plan,
        found,
        healthy=average.healthy,
        means=average.means,
        theta=information_theta(
            found.data,
            found.family,
            best.parameters,
            best.cavity_means,
            best.cavity_cv2,
            np.ones(found.data.counts.size) if best.axes is None else best.axes.clear(found.data),
            score=best.score,
            null_gain=found.null_gain,
            converged=best.converged,
        ),
        rank=average.rank,
        noise="negative_binomial" if nb else "poisson",
        size=1.0 / best.parameters.inverse_size if nb else math.inf,
        converged=best.converged,
        factors=average.factors,
        held_out=average.held_out,
        weights={average.rank: 1.0},
        diagnostics={"sweeps": float(best.n_sweeps), "restarts_kept": float(len(average.kept))},
        cavity=best,
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
        axes=found.path.best.axes,
    )


def finish(
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
    family_name: str | None = None,
    cavity: VariationalFit | None = None,
) -> DetectorFit:
    """The result of either tier; ``family_name``: what to call the family, if not as explored."""
    cavity = cavity or found.path.fits[rank]
    family_name = family_name or found.family.name
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
        anomaly_=family_name,
        dispersion_size_=size,
        mode_=plan.mode,
        mode_reason_=plan.mode_reason,
        converged_=converged,
        factors_=factors,
        anomaly_model=anomaly_model(family_name if plan.anomaly == "auto" else plan.anomaly),
        null_gain_=found.null_gain,
        rank_curve_=found.path.curve,
        held_out_curve_=held_out,
        rank_weights_=weights,
        family_scores_=found.family_scores,
        diagnostics_=diagnostics,
        warnings_=_warnings(found, theta, converged),
        probability=plan.probability,
        drop_fraction=plan.drop_fraction,
        store_extra_rate_=_extra_rate(cavity.axes, 0),
        sku_extra_rate_=_extra_rate(cavity.axes, 1),
    )


def _extra_rate(axes: AxisRates | None, side: int) -> Float | None:
    if axes is None or not axes.active[side]:
        return None
    rates = 1.0 - axes.spared(side)
    rates.flags.writeable = False
    return np.asarray(rates)


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
    axes = found.path.best.axes
    for side, kind in enumerate(("stores", "SKUs")):
        hot = 0 if axes is None else int(np.sum(axes.spared(side) < 0.5))
        if hot:
            words.append(f"{hot} {kind} seem to have gone wrong as a whole")
    if is_sparse(found.data):
        words.append("fewer than 12 observed pairs per store and SKU: expected sales are uncertain")
    return tuple(words)
