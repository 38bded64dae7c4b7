"""The record of one fit: everything the tables need, so that a study can be summarised again without fitting
again.

Costs and rates are expectations given the sales, from the true f* (Eqs. (cost-pi-pre), (simplify-FPR),
(simplify-TPR)), and so carry no noise from the realised anomalies. AUC and ROC are of the realised ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from sklearn.metrics import roc_curve

from ew_pipeline.core.arrays import Bool, Float

CALIBRATION_BINS = 480
LOG_ODDS_RANGE = 14.0
# Where every ROC curve is read off; close together where a retailer works.
ROC_GRID = (*(k / 100 for k in range(20)), *(k / 20 for k in range(4, 21)))


@dataclass(frozen=True)
class ThetaRecord:
    """Estimated theta; the 90% intervals are (low, high)."""

    alpha: float
    anomaly_rate: float
    alpha_interval: tuple[float, float]
    anomaly_rate_interval: tuple[float, float]
    identified: bool
    at_bound: bool


@dataclass(frozen=True)
class RateRecord:
    """Algorithm 2 at one gamma and width z: expected rates under the true f*, and those of pi*(gamma)."""

    gamma: float
    z: float
    fpr: float
    tpr: float
    tpr_ideal: float


@dataclass(frozen=True)
class CalibrationRecord:
    """Pairs by predicted P(anomaly), in bins of equal width in log-odds; only the bins that are not empty."""

    bins: tuple[int, ...]
    count: tuple[int, ...]
    predicted: tuple[float, ...]
    anomalous: tuple[int, ...]


@dataclass(frozen=True)
class Record:
    """What one fit did. Costs are per observed pair. None: the method or the instance has no such figure.

    ``roc`` is the true-positive rate at each false-positive rate of ``ROC_GRID``; ``tuned_share`` the share
    of anomalies that a method had tuned for it.
    """

    case: str
    method: str
    instance: int
    n: int
    m: int
    n_observed: int
    true_rank: int
    true_alpha: float
    true_anomaly_rate: float
    true_mean: float
    true_observed_share: float
    cost: float
    cost_ideal: float
    cost_ignore: float
    flagged_share: float
    auc: float | None
    auc_ideal: float | None
    cpu_seconds: float
    error_frobenius: float | None = None
    error_max: float | None = None
    tier: str | None = None
    tier_reason: str | None = None
    rank: int | None = None
    noise: str | None = None
    anomaly: str | None = None
    converged: bool | None = None
    theta: ThetaRecord | None = None
    rates: tuple[RateRecord, ...] = ()
    calibration: CalibrationRecord | None = None
    roc: tuple[float, ...] | None = None
    tuned_share: float | None = None
    failure: str | None = None

    @property
    def regret(self) -> float:
        return self.cost - self.cost_ideal

    @property
    def auc_gap(self) -> float | None:
        """AUC below that of pi*."""
        return None if self.auc is None or self.auc_ideal is None else self.auc_ideal - self.auc

    @property
    def above_ignore(self) -> float:
        """Cost above that of flagging nothing; negative is a gain."""
        return self.cost - self.cost_ignore

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Record:
        """The inverse of ``dataclasses.asdict`` followed by JSON."""
        values = {field.name: row[field.name] for field in fields(cls)}
        if values["theta"] is not None:
            theta = dict(values["theta"])
            for name in ("alpha_interval", "anomaly_rate_interval"):
                theta[name] = tuple(theta[name])
            values["theta"] = ThetaRecord(**theta)
        if values["roc"] is not None:
            values["roc"] = tuple(values["roc"])
        values["rates"] = tuple(RateRecord(**rate) for rate in values["rates"])
        if values["calibration"] is not None:
            values["calibration"] = CalibrationRecord(
                **{name: tuple(column) for name, column in values["calibration"].items()}
            )
        return cls(**values)


def calibration_counts(probability: Float, anomalous: Bool) -> CalibrationRecord:
    """Counts from which the deciles over any number of instances follow, to within one fine bin."""
    odds = np.log(np.maximum(probability, 1e-300)) - np.log(np.maximum(1.0 - probability, 1e-300))
    scaled = (np.clip(odds / LOG_ODDS_RANGE, -1.0, 1.0) + 1.0) / 2.0
    bin_of = np.minimum((scaled * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    count = np.bincount(bin_of, minlength=CALIBRATION_BINS)
    predicted = np.bincount(bin_of, weights=probability, minlength=CALIBRATION_BINS)
    found = np.bincount(bin_of[anomalous], minlength=CALIBRATION_BINS)
    used = np.flatnonzero(count)
    return CalibrationRecord(
        bins=tuple(used.tolist()),
        count=tuple(count[used].tolist()),
        predicted=tuple(predicted[used].tolist()),
        anomalous=tuple(found[used].tolist()),
    )


def roc_on_grid(suspicion: Float, anomalous: Bool) -> tuple[float, ...] | None:
    """TPR at each FPR of ``ROC_GRID``; equal scores are flagged at random. None without both classes."""
    if anomalous.all() or not anomalous.any():
        return None
    fpr, tpr, _ = roc_curve(anomalous, suspicion, drop_intermediate=False)
    # At a vertical stretch np.interp gives its upper end: what costs no further false alarm is flagged too.
    return tuple(np.interp(ROC_GRID, fpr, tpr).tolist())
