"""How often the intervals of theta cover the truth."""

from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.intervals import information_interval, to_theta
from ew_pipeline.method.noise import Poisson
from ew_pipeline.method.paper.likelihood import MixtureProblem, maximise


def problem_of(family: str, alpha: float, rate: float, n: int, seed: int) -> MixtureProblem:
    rng = np.random.default_rng(seed)
    M = rng.gamma(2.0, 4.0, size=n) + 0.05
    healthy = Poisson().sample(M, rng)
    counts = np.where(rng.random(n) < rate, anomaly_model(family).sample(M, alpha, rng), healthy)
    return MixtureProblem(counts.astype(float), M, anomaly_model(family), Poisson(), rates_are_scaled=False)


@pytest.mark.parametrize(("family", "alpha", "rate"), [("thinning", 0.2, 0.1), ("exponential", 0.4, 0.2)])
def test_intervals_cover_the_truth_nine_times_in_ten(family: str, alpha: float, rate: float) -> None:
    covered, identified = np.zeros(2), 0
    for seed in range(200):
        problem = problem_of(family, alpha=alpha, rate=rate, n=2000, seed=seed)
        estimate = maximise(problem)
        intervals = information_interval(problem, estimate)
        if to_theta(estimate, intervals).identified:
            identified += 1
            covered += [
                intervals.alpha[0] <= alpha <= intervals.alpha[1],
                intervals.anomaly_rate[0] <= rate <= intervals.anomaly_rate[1],
            ]
    assert identified > 180
    assert np.all((covered / identified >= 0.85) & (covered / identified <= 0.95))
