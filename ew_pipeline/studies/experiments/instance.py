"""One synthetic instance, one method, one record; and what each method is told.

default, thorough, variational, fast     ours: told nothing but the sales
told              our sampler, told the anomaly's family, the noise and the rank
near-bayes        the same, told the ensemble's prior of theta too, and that there are anomalies
near-bayes-thinning   near-bayes, told that anomalies are thinned, be it true or not
paper, paper-practical                   Algorithm 1, and as section 4 runs it: told nothing but the sales
paper-oracle      as the authors' code: paper-practical with the true rank, scored with the true theta
drmf, stable-pcp, rmc (-one-sided)       told the true rank, and the share of anomalies that is cheapest under
                                         the instance's own truth
ignore            flags nothing
ideal             pi*, which knows M* and theta
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ew_pipeline.backtest.metrics import auc
from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import FitError, UsageError
from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.noise import Poisson
from ew_pipeline.method.paper.posterior import ideal_healthy_probability
from ew_pipeline.method.paper.rate import expected_rates, greedy_rate_solution
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.studies.baselines import METHODS as DECOMPOSITIONS
from ew_pipeline.studies.baselines import SHARES, distance, largest
from ew_pipeline.studies.cost import expected_cost, ideal_flags
from ew_pipeline.studies.ensemble import EnsembleSettings, SyntheticInstance, draw_instance
from ew_pipeline.studies.experiments.near_bayes import near_bayes
from ew_pipeline.studies.experiments.record import (
    RateRecord,
    Record,
    ThetaRecord,
    calibration_counts,
    roc_on_grid,
)

DEFAULT = "default"
IGNORE = "ignore"
IDEAL = "ideal"
ORACLE = "paper-oracle"
TOLD = "told"
NEAR_BAYES = "near-bayes"
ONE_SIDED = "-one-sided"
GAMMAS = (0.05, 0.1)
WIDTHS = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Answer:
    """One method on one instance, over the observed pairs in row-major order.

    Attributes
    ----------
    flags : what it flags at the instance's costs.
    suspicion : higher is more suspicious; only its order counts.
    rates : its estimate of M, n x m, if it makes one.
    fit : the whole fit, for our own detector.
    tuned_share : the share of anomalies that was tuned for it.
    """

    flags: Bool
    suspicion: Float
    rates: Float | None = None
    fit: DetectorFit | None = None
    tuned_share: float | None = None


Method = Callable[[SyntheticInstance, int], Answer]  # the instance, a seed


def nothing_flagged(drawn: SyntheticInstance) -> Answer:
    """What a method that has no answer is taken to say."""
    size = drawn.sales.n_observed
    return Answer(np.zeros(size, dtype=np.bool_), np.zeros(size))


def _detector(mode: str) -> Method:
    def answer(drawn: SyntheticInstance, seed: int) -> Answer:
        return _answered(EntrywiseDetector(mode, random_state=seed), drawn)

    return answer


def _answered(detector: EntrywiseDetector, drawn: SyntheticInstance) -> Answer:
    fit = detector.fit(drawn.sales)
    flags = fit.decide(Costs(drawn.costs_false_alarm, drawn.costs_missed))
    return Answer(flags, fit.anomaly_probability_, fit.factors_.dense(), fit)


def _told(drawn: SyntheticInstance, seed: int) -> Answer:
    truth = drawn.truth
    return _answered(
        EntrywiseDetector(
            "thorough", rank=truth.rank, noise=truth.noise, anomaly=truth.family, random_state=seed
        ),
        drawn,
    )


def _near_bayes(family: str | None) -> Method:
    def answer(drawn: SyntheticInstance, seed: int) -> Answer:
        healthy, rates = near_bayes(drawn, seed, family)
        flags = ideal_flags(healthy, drawn.costs_false_alarm, drawn.costs_missed)
        return Answer(flags, 1.0 - healthy, rates)

    return answer


def _oracle(drawn: SyntheticInstance, seed: int) -> Answer:
    truth = drawn.truth
    fit = EntrywiseDetector("paper-practical", rank=truth.rank, random_state=seed).fit(drawn.sales)
    healthy = ideal_healthy_probability(
        drawn.sales.counts,
        fit.expected_sales_,
        truth.alpha,
        truth.anomaly_rate,
        Poisson(),
        anomaly_model("exponential"),
    )
    flags = ideal_flags(healthy, drawn.costs_false_alarm, drawn.costs_missed)
    return Answer(flags, 1.0 - healthy, fit.factors_.dense())


def _decomposition(name: str, *, one_sided: bool) -> Method:
    """M is fitted again for each share, as the appendix has it; a ROC moves the limit around the best M."""

    def answer(drawn: SyntheticInstance, seed: int) -> Answer:
        truth, counts = drawn.truth, drawn.sales.counts.astype(np.float64)
        costs = (drawn.costs_false_alarm, drawn.costs_missed)
        best, least = nothing_flagged(drawn), np.inf
        for share in SHARES:
            fitted = DECOMPOSITIONS[name](drawn.sales, truth.rank, share)
            size = distance(counts, fitted.at(drawn.sales), one_sided=one_sided)
            flags = largest(size, share)
            cost = expected_cost(flags, truth.healthy_probability, *costs)
            if cost < least:
                best, least = Answer(flags, size, fitted.dense(), tuned_share=share), cost
        return best

    return answer


def _ignore(drawn: SyntheticInstance, seed: int) -> Answer:
    return nothing_flagged(drawn)


def _ideal(drawn: SyntheticInstance, seed: int) -> Answer:
    healthy = drawn.truth.healthy_probability
    flags = ideal_flags(healthy, drawn.costs_false_alarm, drawn.costs_missed)
    return Answer(flags, 1.0 - healthy, drawn.truth.rates)


METHODS: Mapping[str, Method] = {
    DEFAULT: _detector("auto"),
    "thorough": _detector("thorough"),
    "variational": _detector("variational"),
    "fast": _detector("fast"),
    TOLD: _told,
    NEAR_BAYES: _near_bayes(None),
    NEAR_BAYES + "-thinning": _near_bayes("thinning"),
    "paper": _detector("paper"),
    "paper-practical": _detector("paper-practical"),
    ORACLE: _oracle,
    **{name: _decomposition(name, one_sided=False) for name in DECOMPOSITIONS},
    **{name + ONE_SIDED: _decomposition(name, one_sided=True) for name in DECOMPOSITIONS},
    IGNORE: _ignore,
    IDEAL: _ideal,
}


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

    def answer(self, drawn: SyntheticInstance) -> Answer:
        return METHODS[self.method](drawn, int(self._child(1).generate_state(1)[0]))

    def _child(self, purpose: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(self.instance, purpose))


def run_instance(task: InstanceTask) -> dict[str, Any]:
    """Draw, fit, measure. A method that cannot answer is recorded as having flagged nothing."""
    drawn = task.draw()
    answer, failure = nothing_flagged(drawn), None
    started = time.process_time()
    try:
        answer = task.answer(drawn)
    except FitError as error:
        failure = str(error)
    return asdict(_measure(task, drawn, answer, time.process_time() - started, failure))


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
    task: InstanceTask, drawn: SyntheticInstance, answer: Answer, cpu_seconds: float, failure: str | None
) -> Record:
    truth, costs = drawn.truth, (drawn.costs_false_alarm, drawn.costs_missed)
    # f* knows no store: where anomalies come by stores or SKUs, only what really happened can be priced.
    independent = task.settings.anomalies == "independent"
    healthy = truth.healthy_probability if independent else (~truth.anomalous).astype(np.float64)
    errors = None if answer.rates is None else np.abs(answer.rates - truth.rates)
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
        true_mean=float(truth.rates.mean()),
        true_observed_share=truth.observed_share,
        cost=expected_cost(answer.flags, healthy, *costs),
        cost_ideal=expected_cost(ideal_flags(truth.healthy_probability, *costs), healthy, *costs),
        cost_ignore=expected_cost(np.zeros_like(answer.flags), healthy, *costs),
        flagged_share=float(np.mean(answer.flags)),
        auc=_number(auc(answer.suspicion, truth.anomalous)),
        auc_ideal=_number(auc(1.0 - truth.healthy_probability, truth.anomalous)),
        cpu_seconds=cpu_seconds,
        error_frobenius=None if errors is None else float(np.sqrt(np.sum(errors**2))),
        error_max=None if errors is None else float(errors.max()),
        roc=roc_on_grid(answer.suspicion, truth.anomalous),
        tuned_share=answer.tuned_share,
        failure=failure,
        **_of_fit(task, answer.fit, truth.healthy_probability, truth.anomalous),
    )


def _of_fit(task: InstanceTask, fit: DetectorFit | None, f_true: Float, anomalous: Bool) -> dict[str, Any]:
    if fit is None:
        return {}
    theta, is_default = fit.theta_, task.method == DEFAULT
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
        "rates": _rates(fit, f_true) if is_default else (),
        "calibration": calibration_counts(fit.anomaly_probability_, anomalous) if is_default else None,
    }


def _rates(fit: DetectorFit, f_true: Float) -> tuple[RateRecord, ...]:
    records = []
    for gamma in GAMMAS:
        _, best = expected_rates(greedy_rate_solution(f_true, f_true, gamma), f_true)
        for z in WIDTHS:
            fpr, tpr = expected_rates(fit.rate_decision(gamma, z).inclusion, f_true)
            records.append(RateRecord(gamma, z, fpr, tpr, best))
    return tuple(records)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else value
