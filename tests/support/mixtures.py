"""Counts of known theta, and how often intervals cover it."""

from __future__ import annotations

import numpy as np

from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.intervals import information_interval, to_theta
from ew_pipeline.method.noise import NegativeBinomial, Poisson
from ew_pipeline.method.paper.likelihood import MixtureProblem, maximise


def simulate(
    family: str = "exponential",
    alpha: float = 0.3,
    rate: float = 0.15,
    n: int = 4000,
    seed: int = 0,
    noise: Poisson | NegativeBinomial | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    M = rng.gamma(2.0, 4.0, size=n) + 0.05
    healthy = (noise or Poisson()).sample(M, rng)
    counts = np.where(rng.random(n) < rate, anomaly_model(family).sample(M, alpha, rng), healthy)
    return counts.astype(float), M


def problem_of(family: str = "exponential", **settings: float) -> MixtureProblem:
    counts, M = simulate(family, **settings)  # type: ignore[arg-type]
    return MixtureProblem(counts, M, anomaly_model(family), Poisson(), rates_are_scaled=False)


def coverage(family: str, alpha: float, rate: float, fits: int) -> tuple[np.ndarray, int]:
    """(shares of intervals of alpha and p_A that cover the truth, among how many fits that identify it)."""
    covered, identified = np.zeros(2), 0
    for seed in range(fits):
        problem = problem_of(family, alpha=alpha, rate=rate, n=2000, seed=seed)
        estimate = maximise(problem)
        intervals = information_interval(problem, estimate)
        if to_theta(estimate, intervals).identified:
            identified += 1
            covered += [
                intervals.alpha[0] <= alpha <= intervals.alpha[1],
                intervals.anomaly_rate[0] <= rate <= intervals.anomaly_rate[1],
            ]
    return covered / identified, identified
