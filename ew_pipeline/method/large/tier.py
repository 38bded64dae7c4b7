"""The two tiers for many pairs, on the same fit.

large   rounds of regressions and theta until theta settles   the default above half a million pairs
fast    one round, the rank on a part of the rows             a few seconds at national scale
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ew_pipeline.core.arrays import Float, available_threads
from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.entry_blocks import side_by_side
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.families import exposure_family
from ew_pipeline.method.large.als import filled
from ew_pipeline.method.large.fit import FULL, QUICK, Effort, Fitted
from ew_pipeline.method.large.rank import large_ranks, sketch, sketch_rows
from ew_pipeline.method.large.some_rows import spread_part
from ew_pipeline.method.large.theta import binned_theta
from ew_pipeline.method.large.whole_week import fit_large
from ew_pipeline.method.plan import Plan
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.method.theta import Theta
from ew_pipeline.method.widening import Widening


@dataclass(frozen=True)
class Spending:
    """What a tier may spend: on the fit, and entries on the choice of the rank."""

    effort: Effort
    rank_entries: int


THIN = 20  # entries of a row or column for each factor
QUICK_FROM = 200_000  # pairs; below, all rounds take a second or two
# With fewer pairs theta moves more from round to round, and rounds are cheap.
PATIENT_UP_TO, MORE_ROUNDS = 1_000_000, 20

SPENDING = {
    "large": Spending(FULL, 4_000_000),
    "fast": Spending(QUICK, 600_000),
}


def spending_on(mode: str, n_observed: int) -> Spending:
    """What "large" or "fast" may spend on so many pairs, on one machine or by row blocks."""
    spending = SPENDING[mode if n_observed >= QUICK_FROM else "large"]
    if spending.effort is FULL and n_observed < PATIENT_UP_TO:
        return replace(spending, effort=replace(FULL, rounds=MORE_ROUNDS))
    return spending


def effort_at(effort: Effort, shape: tuple[int, int], n_observed: int, rank: int) -> Effort:
    """The same effort, with all rounds where lines have few entries for each of their factors: there the
    first round takes its own errors for anomalies."""
    if n_observed >= THIN * rank * max(shape):
        return effort
    return replace(effort, rounds=max(effort.rounds, FULL.rounds))


def fit_large_tier(plan: Plan) -> DetectorFit:
    """Rank on held-out pairs, then M and theta together. "auto" is the exponential onset here."""
    spending = spending_on(plan.mode, plan.sales.n_observed)
    threads = plan.n_threads or available_threads()
    name = "exponential" if plan.anomaly == "auto" else plan.anomaly
    family = exposure_family(name)
    ranks = _ranks(plan)
    n_rows = sketch_rows(plan.sales.shape, plan.sales.n_observed, ranks, spending.rank_entries)
    part = sketch(*spread_part(plan.sales, plan.level, n_rows), family, ranks, plan.rng, threads)
    both = BothWays.of(plan.sales, plan.level, threads=threads)
    effort = effort_at(spending.effort, both.shape, both.n_observed, part.rank)
    fit = fit_large(both, family, part.right, noise=plan.noise, effort=effort, threads=threads)
    theta = binned_theta(fit.bins, fit.ratio, family, fit.theta, fit.null_gain)
    factors = LowRankFactors(
        filled(fit.left, both.by_row.indptr).astype(np.float64),
        filled(fit.right, both.by_column.indptr).astype(np.float64),
    )
    del both  # a quarter of the memory, and the results below need some
    posterior, cavity_cv, expected, cavity = side_by_side(
        (partial(_posterior, fit.healthy), partial(_root, fit.cv2), fit.means.doubled, fit.cavity.doubled),
        threads,
    )
    size = fit.parameters.inverse_size
    return DetectorFit(
        sales=plan.sales,
        posterior_=posterior,
        expected_sales_=expected,
        expected_cv_=cavity_cv,
        cavity_sales_=cavity,
        cavity_cv_=cavity_cv,
        theta_=theta,
        rank_=part.rank,
        noise_="negative_binomial" if size > 0.0 else "poisson",
        anomaly_=family.name,
        dispersion_size_=1.0 / size if size > 0.0 else math.inf,
        mode_=plan.mode,
        mode_reason_=plan.mode_reason,
        converged_=fit.converged,
        factors_=factors,
        anomaly_model=anomaly_model(name),
        null_gain_=fit.null_gain,
        held_out_curve_=part.curve,
        rank_weights_={part.rank: 1.0},
        diagnostics_={"rounds": float(fit.rounds), "sweeps": float(fit.sweeps)},
        warnings_=large_warnings(fit, theta),
        probability=plan.probability,
        drop_fraction=plan.drop_fraction,
    )


def _posterior(healthy: Widening) -> Float:
    """In doubles: of what is next to certain, some is more so."""
    found = healthy.doubled()
    return np.subtract(1.0, found, out=found)


def _root(cv2: Widening) -> Float:
    np.sqrt(cv2.single, out=cv2.single)
    return cv2.doubled()


def _ranks(plan: Plan) -> tuple[int, ...]:
    if plan.rank is not None:
        return (plan.rank,)
    return large_ranks(plan.sales.shape, plan.sales.n_observed, plan.max_rank)


def large_warnings(fit: Fitted, theta: Theta) -> tuple[str, ...]:
    """What to say of a fit that should not be relied on."""
    words = []
    if not fit.converged:
        words.append("the fit did not converge; do not publish it")
    if theta.at_bound:
        words.append("theta is on the edge of its range; do not publish it")
    if not theta.identified:
        words.append(f"theta is {theta.reason}")
    return tuple(words)
