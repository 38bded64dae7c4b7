"""Step 3: how probable it is that a pair is healthy, or that its sales have dropped.

Two questions, two probabilities, and they point in opposite directions:

- ``healthy_probability``: f = P(no anomaly | X), Eqs. (fij-star) and (plug-in-f) of section 3.3.
  High is healthy.
- ``drop_probability``: P(the pair's level is at least x / drop_fraction), the event behind the label of
  section 4.2 (sales at most half of the surrounding weeks'). High is suspicious.

``ideal_healthy_probability`` is the yardstick for simulated data: what the ideal policy pi* of section 3.1
knows. It makes mistakes too, because sales are random; regret is the cost above it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, gammaincc

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.anomalies import AnomalyModel
from ew_pipeline.method.noise import NoiseModel

SMALLEST_RATE = 1e-12
CERTAIN_CV2 = 1e-12  # a level known to one part in a million is known


def healthy_probability(
    counts: ArrayLike,
    rates: ArrayLike,
    alpha: float,
    anomaly_rate: float | ArrayLike,
    noise: NoiseModel,
    anomaly: AnomalyModel,
) -> Float:
    """f = (1 - p_A) P(X | M) / [(1 - p_A) P(X | M) + p_A P_Anom(X | alpha, M)], per entry, in [0, 1].

    Computed as the logistic function of the log odds, so that no probability underflows on the way; the
    truncation [.] of the paper's plug-in to [0, 1] is then void (and for densities would be wrong).

    Corners:

    - p_A = 0 gives 1 and p_A = 1 gives 0, whatever the counts; ``anomaly_rate`` may be one per entry.
    - A rate of zero (or below: an estimate may be) is read as the limit of small rates: with x = 0 the
      entry says nothing and f is 1 - p_A; with x > 0 both laws vanish and their ratio does not.
    - Counts that are impossible under both laws say nothing about which of them it was: f is 1 - p_A.

    More sales are not always healthier: an exponential onset has the longer tail, and makes counts far
    above the rate look anomalous. Up to x = M + 1/alpha - 1, f rises with x under Poisson noise.
    """
    M = np.maximum(np.asarray(rates, dtype=np.float64), SMALLEST_RATE)
    prior = np.asarray(anomaly_rate, dtype=np.float64)
    if not np.all((prior >= 0.0) & (prior <= 1.0)):
        raise UsageError("An anomaly rate is outside [0, 1].", "pass probabilities.")
    log_healthy = np.asarray(noise.log_pmf(counts, M), dtype=np.float64)
    log_anomalous = np.asarray(anomaly.log_pmf(counts, M, alpha), dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        log_ratio = log_healthy - log_anomalous
        log_odds = np.where(np.isnan(log_ratio), 0.0, log_ratio) + np.log1p(-prior) - np.log(prior)
    f = np.where(prior == 0.0, 1.0, np.where(prior == 1.0, 0.0, expit(log_odds)))
    return _read_only(f)


def drop_probability(
    counts: ArrayLike,
    level_mean: ArrayLike,
    level_cv2: ArrayLike,
    drop_fraction: float = 0.5,
    *,
    zero_counts_as: float = 0.5,
) -> Float:
    """P(level >= x / drop_fraction): that the sales are at most ``drop_fraction`` of the pair's level.

    Parameters
    ----------
    counts : x, what was sold.
    level_mean, level_cv2 : what the pair would sell, known without x: mean and squared coefficient of
        variation of its predictive, a Gamma distribution. cv2 = 0 is a known level, and the answer 0 or 1.
    drop_fraction : 0.5 for "half or less".
    zero_counts_as : what a count of zero is compared as. Read literally, x = 0 is a drop of every level,
        even of a pair that sells once in ten weeks and of one that never sells. The default, half a unit,
        asks that at least one unit (0.5 / 0.5) was to be expected, and keeps the thresholds for
        x = 0, 1, 2 at 1, 2, 4 units. 0.0 is the literal rule, which is the label X <= S/2 of section 4.2;
        0.05 asks for a level of 0.1, the least that a mean S of ten weeks can be without being zero.

    Higher is more suspicious; falls with the count, rises with the level.
    """
    if not 0.0 < drop_fraction <= 1.0 or not zero_counts_as >= 0.0:
        raise UsageError(
            f"drop_fraction is {drop_fraction} and zero_counts_as is {zero_counts_as}.",
            "drop_fraction must be in (0, 1], zero_counts_as at least 0.",
        )
    x, mean, cv2 = np.broadcast_arrays(
        np.asarray(counts, dtype=np.float64),
        np.maximum(np.asarray(level_mean, dtype=np.float64), 0.0),
        np.asarray(level_cv2, dtype=np.float64),
    )
    if not np.all(cv2 >= 0.0):
        raise UsageError("A squared coefficient of variation is below 0 or not a number.", "pass cv2 >= 0.")
    threshold = np.where(x > 0.0, x, zero_counts_as) / drop_fraction
    known = (cv2 < CERTAIN_CV2) | (mean < SMALLEST_RATE)
    shape = 1.0 / np.where(known, 1.0, cv2)
    scaled = threshold * shape / np.where(known, 1.0, mean)
    return _read_only(np.where(known, (mean >= threshold).astype(np.float64), gammaincc(shape, scaled)))


def ideal_healthy_probability(
    counts: ArrayLike,
    true_rates: ArrayLike,
    alpha: float,
    anomaly_rate: float,
    noise: NoiseModel,
    anomaly: AnomalyModel,
) -> Float:
    """f* = P(B = 0 | X_Omega), Eq. (fij-star), from the true M*, alpha*, p_A* and the true laws.

    Never part of the detector: only studies of simulated data may call it.
    """
    return healthy_probability(counts, true_rates, alpha, anomaly_rate, noise, anomaly)


def _read_only(values: Float) -> Float:
    values.flags.writeable = False
    return values
