"""One synthetic instance, one method, one record.

The record holds what every table needs, so that a study can be summarised again without fitting again.
Costs and rates are expectations given the sales, from the true f* (Eqs. (cost-pi-pre), (simplify-FPR),
(simplify-TPR)), and so carry no noise from the realised anomalies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from ew_pipeline.algorithm.costs import Costs
from ew_pipeline.algorithm.detector import EntrywiseDetector
from ew_pipeline.algorithm.rate import expected_rates, greedy_rate_solution
from ew_pipeline.algorithm.result import DetectorFit
from ew_pipeline.algorithm.types import Bool, Float
from ew_pipeline.data.synthetic import EnsembleSettings, SyntheticInstance, draw_instance
from ew_pipeline.errors import FitError, UsageError
from ew_pipeline.evaluate.cost import expected_cost, ideal_flags
from ew_pipeline.evaluate.metrics import auc

IGNORE = "ignore"
DEFAULT = "default"
MODE_OF = {
    DEFAULT: "auto",
    "thorough": "thorough",
    "variational": "variational",
    "fast": "fast",
    "paper": "paper",
    "paper-practical": "paper-practical",
}
METHODS = (*MODE_OF, IGNORE)
GAMMAS = (0.05, 0.1)
WIDTHS = (0.0, 1.0)
CALIBRATION_BINS = 480
LOG_ODDS_RANGE = 14.0


@dataclass(frozen=True)
class InstanceTask:
    """Fit one method to instance number ``instance`` of the study with base seed ``seed``.

    The instance is drawn from a child of the base seed of its own: any subset of a study gives the same
    instances, and all methods and cases meet the same one.
    """

    case: str
    settings: EnsembleSettings
    method: str
    seed: int
    instance: int

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"method is {self.method!r}.", f"choose from {', '.join(METHODS)}.")

    @property
    def name(self) -> str:
        return f"{self.case}, {self.method}, seed {self.seed}, instance {self.instance}"

    def identity(self) -> Mapping[str, Any]:
        return asdict(self)

    def draw(self) -> SyntheticInstance:
        return draw_instance(self.settings, np.random.default_rng(self._child(0)))

    def detector(self) -> EntrywiseDetector:
        seed = int(self._child(1).generate_state(1)[0])
        return EntrywiseDetector(MODE_OF[self.method], random_state=seed)

    def _child(self, purpose: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(self.instance, purpose))


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
    """What one fit did. Costs are per observed pair. None: the method or the instance has no such figure."""

    case: str
    method: str
    instance: int
    n: int
    m: int
    n_observed: int
    true_rank: int
    true_alpha: float
    true_anomaly_rate: float
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
    failure: str | None = None

    @property
    def regret(self) -> float:
        return self.cost - self.cost_ideal

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
        values["rates"] = tuple(RateRecord(**rate) for rate in values["rates"])
        if values["calibration"] is not None:
            values["calibration"] = CalibrationRecord(
                **{name: tuple(column) for name, column in values["calibration"].items()}
            )
        return cls(**values)


def run_instance(task: InstanceTask) -> dict[str, Any]:
    """Draw, fit, measure. A method that cannot answer is recorded as having flagged nothing."""
    drawn = task.draw()
    if task.method == IGNORE:
        return asdict(_measure(task, drawn, None, 0.0))
    started = time.process_time()
    try:
        fit = task.detector().fit(drawn.sales)
    except FitError as error:
        return asdict(_measure(task, drawn, None, time.process_time() - started, failure=str(error)))
    return asdict(_measure(task, drawn, fit, time.process_time() - started))


def warm_up() -> None:
    """Compile or load the kernels in this process, so that the first fit's time is that of a fit."""
    drawn = draw_instance(EnsembleSettings(n=12, m=12, rank=1), np.random.default_rng(0))
    for mode, noise in (
        ("auto", "negative_binomial"),
        ("variational", "auto"),
        ("fast", "auto"),
        ("paper", "auto"),
    ):
        EntrywiseDetector(mode, noise=noise).fit(drawn.sales)


def _measure(
    task: InstanceTask,
    drawn: SyntheticInstance,
    fit: DetectorFit | None,
    cpu_seconds: float,
    failure: str | None = None,
) -> Record:
    truth, costs = drawn.truth, (drawn.costs_false_alarm, drawn.costs_missed)
    nothing = np.zeros(drawn.sales.n_observed, dtype=np.bool_)
    flags = nothing if fit is None else fit.decide(Costs(*costs))
    # f* knows no store: where anomalies come by stores or SKUs, only what really happened can be priced.
    independent = task.settings.anomalies == "independent"
    healthy = truth.healthy_probability if independent else (~truth.anomalous).astype(np.float64)
    ideal = ideal_flags(truth.healthy_probability, *costs)
    suspicion = np.zeros(nothing.size) if fit is None else fit.anomaly_probability_
    errors = None if fit is None else np.abs(fit.factors_.dense() - truth.rates)
    return Record(
        case=task.case,
        method=task.method,
        instance=task.instance,
        n=drawn.sales.shape[0],
        m=drawn.sales.shape[1],
        n_observed=drawn.sales.n_observed,
        true_rank=truth.rank,
        true_alpha=truth.alpha,
        true_anomaly_rate=truth.anomaly_rate,
        cost=expected_cost(flags, healthy, *costs),
        cost_ideal=expected_cost(ideal, healthy, *costs),
        cost_ignore=expected_cost(nothing, healthy, *costs),
        flagged_share=float(np.mean(flags)),
        auc=_number(auc(suspicion, truth.anomalous)),
        auc_ideal=_number(auc(1.0 - truth.healthy_probability, truth.anomalous)),
        cpu_seconds=cpu_seconds,
        error_frobenius=None if errors is None else float(np.sqrt(np.sum(errors**2))),
        error_max=None if errors is None else float(errors.max()),
        failure=failure,
        **({} if fit is None else _of_fit(task, fit, truth.healthy_probability, truth.anomalous)),
    )


def _of_fit(task: InstanceTask, fit: DetectorFit, f_true: Float, anomalous: Bool) -> dict[str, Any]:
    theta = fit.theta_
    return {
        "tier": fit.mode_,
        "tier_reason": fit.mode_reason_,
        "rank": fit.rank_,
        "noise": fit.noise_,
        "anomaly": fit.anomaly_,
        "converged": bool(fit.converged_),
        "theta": ThetaRecord(
            alpha=theta.alpha,
            anomaly_rate=theta.anomaly_rate,
            alpha_interval=theta.alpha_interval,
            anomaly_rate_interval=theta.anomaly_rate_interval,
            identified=theta.identified,
            at_bound=theta.at_bound,
        ),
        "rates": _rates(fit, f_true) if task.method == DEFAULT else (),
        "calibration": calibration_counts(fit.anomaly_probability_, anomalous)
        if task.method == DEFAULT
        else None,
    }


def _rates(fit: DetectorFit, f_true: Float) -> tuple[RateRecord, ...]:
    records = []
    for gamma in GAMMAS:
        _, best = expected_rates(greedy_rate_solution(f_true, f_true, gamma), f_true)
        for z in WIDTHS:
            fpr, tpr = expected_rates(fit.rate_decision(gamma, z).inclusion, f_true)
            records.append(RateRecord(gamma, z, fpr, tpr, best))
    return tuple(records)


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


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value
