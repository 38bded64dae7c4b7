"""Ridge-penalised logistic regression by Newton's method: small, exact, the same answer every time.

The sums over rows are compiled loops and not matrix products: those start threads that wait for each other,
which on a busy machine takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from ew_pipeline.core.kernels import njit_fast

FloatArray = npt.NDArray[np.float64]

MAX_STEPS = 50
TOLERANCE = 1e-4  # of a coefficient, in log-odds per standard deviation
HALVINGS = 12
TOGETHER = 4  # rows
FARTHEST = 6.0  # standard deviations; beyond them a feature says no more than there


@dataclass(frozen=True, eq=False)
class Logistic:
    """P(1 | x) = expit(intercept + sum coefficient (x - centre) / scale), held within 6 scales."""

    centre: FloatArray
    scale: FloatArray
    intercept: float
    coefficients: FloatArray

    def probability(self, features: FloatArray) -> FloatArray:
        """One probability per row of ``features``."""
        return np.asarray(expit(self.log_odds(features)))

    def log_odds(self, features: FloatArray) -> FloatArray:
        return self.log_odds_of([np.ascontiguousarray(column) for column in features.T])

    def log_odds_of(self, columns: Sequence[FloatArray]) -> FloatArray:
        """The same of features that lie one by one: a table of them all is never made."""
        eta = np.full(columns[0].size, self.intercept)
        for column, centre, scale, coefficient in zip(
            columns, self.centre, self.scale, self.coefficients, strict=True
        ):
            _add_feature(column, float(centre), float(scale), float(coefficient), eta)
        return eta


def fit_logistic(features: FloatArray, outcome: FloatArray, weight: FloatArray, ridge: float) -> Logistic:
    """Maximise the weighted log-likelihood - ridge/2 |coefficients|²; the intercept is free.

    Features are standardised first, so one ridge suits them all. ``outcome`` is 0 or 1. A step that does not
    raise the objective is halved, so the result is the maximum whatever the start.
    """
    total = float(weight.sum())
    centre = np.asarray(np.average(features, axis=0, weights=weight))
    scale = np.sqrt(np.average((features - centre) ** 2, axis=0, weights=weight))
    scale = np.where(scale > 1e-9, scale, 1.0)
    z = _standardised(features, centre, scale)
    positives = float(np.sum(weight * outcome))
    beta = np.zeros(z.shape[1] + 1)
    beta[0] = np.log((positives + 0.5) / (total - positives + 0.5))
    penalty = np.full(beta.size, ridge)
    penalty[0] = 1e-6
    value = _objective(z, outcome, weight, beta, penalty)
    for _ in range(MAX_STEPS):
        p = expit(_linear(z, beta[1:], float(beta[0])))
        gradient, curvature = _newton_sums(
            z, weight * (outcome - p), weight * np.maximum(p * (1.0 - p), 1e-9)
        )
        gradient -= penalty * beta
        curvature[np.diag_indices_from(curvature)] += penalty
        step = cho_solve(cho_factor(curvature, lower=True), gradient)
        for _ in range(HALVINGS):
            reached = _objective(z, outcome, weight, beta + step, penalty)
            if reached >= value:
                break
            step = step / 2.0
        else:
            break  # no step in this direction raises the objective: as good as it gets in floating point
        beta, value = beta + step, reached
        if np.abs(step).max() < TOLERANCE:
            break
    return Logistic(centre, scale, float(beta[0]), beta[1:])


def _standardised(features: FloatArray, centre: FloatArray, scale: FloatArray) -> FloatArray:
    return np.ascontiguousarray(np.clip((features - centre) / scale, -FARTHEST, FARTHEST))


def _objective(
    z: FloatArray, outcome: FloatArray, weight: FloatArray, beta: FloatArray, penalty: FloatArray
) -> float:
    eta = _linear(z, beta[1:], float(beta[0]))
    return float(np.sum(weight * (outcome * eta - np.logaddexp(0.0, eta))) - 0.5 * np.sum(penalty * beta**2))


@njit_fast
def _add_feature(
    values: FloatArray, centre: float, scale: float, coefficient: float, eta: FloatArray
) -> None:
    for i in range(values.size):
        eta[i] += coefficient * min(max((values[i] - centre) / scale, -FARTHEST), FARTHEST)


@njit_fast
def _linear(z: FloatArray, coefficients: FloatArray, intercept: float) -> FloatArray:
    n, k = z.shape
    eta = np.empty(n)
    for i in range(n):
        total = intercept
        for a in range(k):
            total += z[i, a] * coefficients[a]
        eta[i] = total
    return eta


@njit_fast
def _newton_sums(z: FloatArray, residual: FloatArray, curving: FloatArray) -> tuple[FloatArray, FloatArray]:
    """sum r (1, z) and the lower half of sum w (1, z)(1, z)'."""
    n, k = z.shape
    gradient = np.zeros(k + 1)
    curvature = np.zeros((k + 1, k + 1))
    for i in range(n):
        r, w = residual[i], curving[i]
        gradient[0] += r
        curvature[0, 0] += w
        for a in range(k):
            gradient[a + 1] += r * z[i, a]
            curvature[a + 1, 0] += w * z[i, a]
    whole = n - n % TOGETHER
    for i in range(0, whole, TOGETHER):  # a sum is read and written once for four rows
        for a in range(k):
            s0, s1 = curving[i] * z[i, a], curving[i + 1] * z[i + 1, a]
            s2, s3 = curving[i + 2] * z[i + 2, a], curving[i + 3] * z[i + 3, a]
            for b in range(a + 1):
                added = s0 * z[i, b] + s1 * z[i + 1, b] + s2 * z[i + 2, b] + s3 * z[i + 3, b]
                curvature[a + 1, b + 1] += added
    for i in range(whole, n):
        for a in range(k):
            scaled = curving[i] * z[i, a]
            for b in range(a + 1):
                curvature[a + 1, b + 1] += scaled * z[i, b]
    return gradient, curvature
