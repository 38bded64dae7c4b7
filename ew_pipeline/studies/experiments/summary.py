"""Records of many instances -> the figures of a table. Pure functions; None where nothing was measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float
from ew_pipeline.studies.experiments.record import CALIBRATION_BINS, Record


@dataclass(frozen=True)
class MethodSummary:
    """One method over the instances of one case.

    ``error_*`` are None for a method without an estimate of M. Coverage counts only instances in which
    theta was called identified; ``failures`` counts fits that gave no answer and flagged nothing.
    """

    instances: int
    failures: int
    not_converged: int
    regret: float
    regret_se: float | None
    regret_p95: float
    regret_worst: float
    above_ignore: float
    above_ignore_worst: float
    flagged: float
    flagged_worst: float
    error_frobenius: float | None
    error_max: float | None
    auc_gap: float | None
    tuned_share: float | None
    rate_bias: float | None
    rate_rmse: float | None
    alpha_rmse: float | None
    identified: float | None
    rate_coverage: float | None
    alpha_coverage: float | None
    cpu_mean: float
    cpu_median: float
    tiers: dict[str, int]
    noises: dict[str, int]


def summarise(records: Sequence[Record]) -> MethodSummary:
    """Figures of one method. Instances without anomalies have no alpha, and no part in its RMSE."""
    regret = np.array([r.regret for r in records])
    above = np.array([r.above_ignore for r in records])
    flagged = np.array([r.flagged_share for r in records])
    cpu = np.array([r.cpu_seconds for r in records])
    with_theta = [(r, r.theta) for r in records if r.theta is not None]
    known = [(r, theta) for r, theta in with_theta if theta.identified]
    return MethodSummary(
        instances=len(records),
        failures=sum(r.failure is not None for r in records),
        not_converged=sum(r.converged is False for r in records),
        regret=float(regret.mean()),
        regret_se=standard_error(regret),
        regret_p95=float(np.quantile(regret, 0.95)),
        regret_worst=float(regret.max()),
        above_ignore=float(above.mean()),
        above_ignore_worst=float(above.max()),
        flagged=float(flagged.mean()),
        flagged_worst=float(flagged.max()),
        error_frobenius=_mean(r.error_frobenius for r in records if r.error_frobenius is not None),
        error_max=_mean(r.error_max for r in records if r.error_max is not None),
        auc_gap=_mean(r.auc_gap for r in records if r.auc_gap is not None),
        tuned_share=_mean(r.tuned_share for r in records if r.tuned_share is not None),
        rate_bias=_mean(t.anomaly_rate - r.true_anomaly_rate for r, t in with_theta),
        rate_rmse=_rms(t.anomaly_rate - r.true_anomaly_rate for r, t in with_theta),
        alpha_rmse=_rms(t.alpha - r.true_alpha for r, t in with_theta if r.true_anomaly_rate > 0),
        identified=_mean(t.identified for _, t in with_theta),
        rate_coverage=_mean(_covers(t.anomaly_rate_interval, r.true_anomaly_rate) for r, t in known),
        alpha_coverage=_mean(_covers(t.alpha_interval, r.true_alpha) for r, t in known),
        cpu_mean=float(cpu.mean()),
        cpu_median=float(np.median(cpu)),
        tiers=_counts(r.tier for r in records),
        noises=_counts(r.noise for r in records),
    )


@dataclass(frozen=True)
class RateSummary:
    """Algorithm 2 at one gamma: the plug-in (z = 0) and the careful rule (z = 1)."""

    gamma: float
    plug_in_fpr: float
    exceeded: float
    tpr_loss: float
    tpr_loss_to_plug_in: float
    tpr_ideal: float


def summarise_rates(records: Sequence[Record]) -> list[RateSummary]:
    """Per gamma: mean FPR/gamma of z = 0; how often z = 1 exceeds gamma, and the TPR it gives up.

    Instances without anomalies are left out: their TPR is 0 by convention.
    """
    pairs: dict[float, list[tuple[float, float, float, float, float]]] = {}
    for record in records:
        if record.true_anomaly_rate == 0.0:
            continue
        by = {(rate.gamma, rate.z): rate for rate in record.rates}
        for gamma in {rate.gamma for rate in record.rates}:
            plug, careful = by[gamma, 0.0], by[gamma, 1.0]
            pairs.setdefault(gamma, []).append(
                (plug.fpr, careful.fpr, plug.tpr, careful.tpr, careful.tpr_ideal)
            )
    rows = []
    for gamma in sorted(pairs):
        plug_fpr, careful_fpr, plug_tpr, careful_tpr, ideal = np.array(pairs[gamma]).T
        rows.append(
            RateSummary(
                gamma=gamma,
                plug_in_fpr=float(plug_fpr.mean() / gamma),
                # A rate on the bound is within it; sums of thousands of terms round.
                exceeded=float(np.mean(careful_fpr > gamma * (1.0 + 1e-9))),
                tpr_loss=float(np.mean(ideal - careful_tpr)),
                tpr_loss_to_plug_in=float(np.mean(plug_tpr - careful_tpr)),
                tpr_ideal=float(ideal.mean()),
            )
        )
    return rows


@dataclass(frozen=True)
class CalibrationRow:
    """One decile of P(anomaly) over all pairs of all instances."""

    count: int
    predicted: float
    realised: float

    @property
    def gap(self) -> float:
        return self.realised - self.predicted


def pooled_calibration(records: Iterable[Record], deciles: int = 10) -> list[CalibrationRow]:
    """Deciles of the pooled probabilities, cut at the edges of the fine bins of the records."""
    count, predicted, anomalous = (np.zeros(CALIBRATION_BINS) for _ in range(3))
    for record in records:
        if record.calibration is not None:
            at = np.array(record.calibration.bins, dtype=np.int64)
            count[at] += record.calibration.count
            predicted[at] += record.calibration.predicted
            anomalous[at] += record.calibration.anomalous
    total = count.sum()
    if total == 0:
        return []
    # A fine bin belongs to the decile in which its middle pair lies.
    middle = (np.cumsum(count) - count / 2) / total
    decile = np.minimum((middle * deciles).astype(np.int64), deciles - 1)
    sums = [np.bincount(decile, weights=w, minlength=deciles) for w in (count, predicted, anomalous)]
    return [
        CalibrationRow(int(n), float(p / n), float(a / n)) for n, p, a in zip(*sums, strict=True) if n > 0
    ]


def log_log_slope(sizes: Sequence[int], regrets: Sequence[float]) -> float | None:
    """Least-squares slope of log regret on log n; None with fewer than two positive regrets."""
    points = [(math.log(n), math.log(r)) for n, r in zip(sizes, regrets, strict=True) if r > 0]
    if len({x for x, _ in points}) < 2:
        return None
    x, y = np.array(points).T
    centred = x - x.mean()
    return float(centred @ y / (centred @ centred))


def standard_error(values: Float) -> float | None:
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else None


def _covers(interval: tuple[float, float], value: float) -> bool:
    return interval[0] <= value <= interval[1]


def _mean(values: Iterable[float]) -> float | None:
    array = np.array(list(values), dtype=np.float64)
    return float(array.mean()) if array.size else None


def _rms(values: Iterable[float]) -> float | None:
    array = np.array(list(values), dtype=np.float64)
    return float(np.sqrt(np.mean(array**2))) if array.size else None


def _counts(names: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(name for name in names if name is not None).most_common())
