"""How well a score ranks and a probability means what it says, given labels.

Every score points one way: **higher is more suspicious**. Pass the anomaly probability, not the healthy
one. ``labels`` are True where the pair is an anomaly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.algorithm.decision import checked_probability
from ew_pipeline.algorithm.types import Bool, Float, Int64
from ew_pipeline.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class RocCurve:
    """One point per distinct score, from flagging nothing (0, 0) to flagging everything (1, 1).

    Attributes
    ----------
    threshold : flag where score >= threshold; infinite for the first point.
    false_positive_rate, true_positive_rate : ascending; NaN throughout when that class is absent.
    """

    threshold: Float
    false_positive_rate: Float
    true_positive_rate: Float


@dataclass(frozen=True, eq=False)
class CalibrationTable:
    """Predicted against realised share of anomalies, one row per bin that is not empty, by ascending
    prediction."""

    mean_predicted: Float
    realised_share: Float
    count: Int64

    @property
    def largest_gap(self) -> float:
        """The largest |predicted - realised| over the bins."""
        return float(np.max(np.abs(self.mean_predicted - self.realised_share)))


def auc(scores: ArrayLike, labels: ArrayLike) -> float:
    """The chance that a random anomaly scores above a random healthy pair; a tie counts one half.

    NaN when one of the classes is absent.
    """
    s, y = _checked(scores, labels)
    anomalous, healthy = s[y], np.sort(s[~y])
    if anomalous.size == 0 or healthy.size == 0:
        return float("nan")
    below = np.searchsorted(healthy, anomalous, side="left")
    at_or_below = np.searchsorted(healthy, anomalous, side="right")
    # Whole numbers until the last step, so that the result does not depend on the order of the entries.
    wins_doubled = int(below.sum()) + int(at_or_below.sum())
    return wins_doubled / (2 * anomalous.size * healthy.size)


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """The precision at each distinct threshold, weighted by the recall it adds.

    Equal scores are flagged together. NaN when there is no anomaly.
    """
    _, flagged, found = _counts_by_threshold(*_checked(scores, labels))
    if found[-1] == 0:
        return float("nan")
    gained = np.diff(found, prepend=0)
    return float(np.sum(gained * (found / flagged)) / found[-1])


def roc_points(scores: ArrayLike, labels: ArrayLike) -> RocCurve:
    """The receiver operating characteristic: every trade of false against true positives by threshold."""
    threshold, flagged, found = _counts_by_threshold(*_checked(scores, labels))
    wrong = flagged - found
    return RocCurve(
        _read_only(np.concatenate(([np.inf], threshold))),
        _read_only(_shares(wrong)),
        _read_only(_shares(found)),
    )


def true_positive_rate_at(gamma: float, scores: ArrayLike, labels: ArrayLike) -> float:
    """The highest true-positive rate by threshold at a false-positive rate of at most ``gamma``.

    Between two points of the curve we interpolate: like Algorithm 2, flag the entries at the threshold with
    a probability that spends exactly gamma. NaN when one of the classes is absent.
    """
    if not 0 <= gamma <= 1:
        raise UsageError(f"gamma is {gamma}; it must lie in [0, 1].", "pass a false-positive rate.")
    curve = roc_points(scores, labels)
    fpr, tpr = curve.false_positive_rate, curve.true_positive_rate
    if np.isnan(fpr[-1]) or np.isnan(tpr[-1]):
        return float("nan")
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


def _counts_by_threshold(s: Float, y: Bool) -> tuple[Float, Int64, Int64]:
    """Per distinct score, descending: the score, how many score at least that, how many of them anomalies."""
    order = np.argsort(-s, kind="stable")
    ordered = s[order]
    last_of_tie = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    found = np.cumsum(y[order], dtype=np.int64)[last_of_tie]
    return ordered[last_of_tie], last_of_tie.astype(np.int64) + 1, found


def _shares(counts: Int64) -> Float:
    with_none = np.concatenate(([0], counts))
    return with_none / counts[-1] if counts[-1] else np.full(with_none.size, np.nan)


def _checked(scores: ArrayLike, labels: ArrayLike) -> tuple[Float, Bool]:
    s, y = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if s.ndim != 1 or y.shape != s.shape or s.size == 0:
        raise UsageError(
            f"scores have shape {s.shape} and labels {y.shape}.",
            "pass one score and one label per pair, 1-D.",
        )
    if np.isnan(s).any():
        raise DataError(
            f"{np.isnan(s).sum()} of {s.size} scores are NaN.", "score every pair, or leave it out."
        )
    if y.dtype != np.bool_ and not np.isin(y, (0, 1)).all():
        raise DataError("labels must be 0 or 1, or False or True.", "1 and True mean anomaly.")
    return s, y.astype(np.bool_)


def _read_only(values: Float) -> Float:
    values.setflags(write=False)
    return values
