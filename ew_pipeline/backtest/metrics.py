"""How well a score ranks and a probability means what it says, given labels.

Every score points one way: **higher is more suspicious**. Pass the anomaly probability, not the healthy
one. ``labels`` are True where the pair is an anomaly.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.paper.decision import checked_probability
from ew_pipeline.outputs.drawing import CalibrationTable


def auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """The chance that a random anomaly scores above a random healthy pair; a tie counts one half.

    NaN when one of the classes is absent.
    """
    y = np.asarray(labels, dtype=np.bool_)
    return float(roc_auc_score(y, scores)) if y.any() and not y.all() else float("nan")


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """The precision at each distinct threshold, weighted by the recall it adds.

    Equal scores are flagged together. NaN when there is no anomaly.
    """
    y = np.asarray(labels, dtype=np.bool_)
    return float(average_precision_score(y, scores)) if y.any() else float("nan")


def true_positive_rate_at(gamma: float, scores: ArrayLike, labels: ArrayLike) -> float:
    """The highest true-positive rate by threshold at a false-positive rate of at most ``gamma``.

    Between two points of the curve we interpolate: like Algorithm 2, flag the entries at the threshold with
    a probability that spends exactly gamma. NaN when one of the classes is absent.
    """
    if not 0 <= gamma <= 1:
        raise UsageError(f"gamma is {gamma}; it must lie in [0, 1].", "pass a false-positive rate.")
    y = np.asarray(labels, dtype=np.bool_)
    if y.all() or not y.any():
        return float("nan")
    fpr, tpr, _ = roc_curve(y, scores, drop_intermediate=False)
    # The last point within gamma, so that a vertical stretch of the curve counts in full.
    last = int(np.searchsorted(fpr, gamma, side="right")) - 1
    if last == fpr.size - 1:
        return float(tpr[-1])
    share = (gamma - fpr[last]) / (fpr[last + 1] - fpr[last])
    return float(tpr[last] + share * (tpr[last + 1] - tpr[last]))


def calibration_table(
    probability: ArrayLike,
    outcome: ArrayLike,
    bins: int = 10,
    *,
    by: Literal["count", "width"] = "count",
) -> CalibrationTable:
    """Mean predicted anomaly probability against the realised share of anomalies, in ``bins`` bins.

    As scikit-learn's ``calibration_curve``, and with the number of pairs in each bin.

    Parameters
    ----------
    probability : predicted P(anomaly) in [0, 1].
    outcome : labels, or the true P(anomaly) where it is known: the same on average, with less noise.
    by : "count" makes bins of equal count (deciles by default; equal predictions stay in one bin), "width"
        cuts [0, 1] evenly, which looks closer at the few large probabilities.
    """
    p, q = checked_probability(probability, "probability"), checked_probability(outcome, "outcome")
    if p.size != q.size or p.size == 0:
        raise UsageError(
            f"{p.size} probabilities and {q.size} outcomes were given; both need the same, above 0."
        )
    if bins < 1:
        raise UsageError(f"bins is {bins}; it must be 1 or more.")
    grid = np.linspace(0, 1, bins + 1)[1:-1]
    edges = np.quantile(p, grid) if by == "count" else grid
    bin_of = np.searchsorted(edges, p, side="right")
    count = np.bincount(bin_of, minlength=bins)
    used = count > 0
    mean_predicted = np.bincount(bin_of, weights=p, minlength=bins)[used] / count[used]
    realised = np.bincount(bin_of, weights=q, minlength=bins)[used] / count[used]
    kept = count[used].astype(np.int64)
    kept.setflags(write=False)
    return CalibrationTable(_read_only(mean_predicted), _read_only(realised), kept)


def _read_only(values: Float) -> Float:
    values.setflags(write=False)
    return values
