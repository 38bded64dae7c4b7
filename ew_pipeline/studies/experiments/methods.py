"""What each method answers on one synthetic instance, and what it is told.

default, thorough, variational, fast     ours: told nothing but the sales
told              our sampler, told the anomaly's family, the noise and the rank: what they are worth
near-bayes        the same, told the ensemble's prior of theta too, and that there are anomalies
near-bayes-thinning   near-bayes, told that anomalies are thinned, be it true or not
paper, paper-practical                   Algorithm 1, and as section 4 runs it: told nothing but the sales
paper-oracle      as the authors' code: paper-practical with the true rank, scored with the true theta
drmf, stable-pcp, rmc (-one-sided)       told the true rank, and the share of anomalies that is cheapest under
                                         the instance's own truth: "tuned using knowledge of the true rank,
                                         and optimized for cost" (section 4.1)
ignore            flags nothing
ideal             pi*, which knows M* and theta
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.method.anomalies import anomaly_model
from ew_pipeline.method.costs import Costs
from ew_pipeline.method.detector import EntrywiseDetector
from ew_pipeline.method.noise import Poisson
from ew_pipeline.method.paper.posterior import ideal_healthy_probability
from ew_pipeline.method.result import DetectorFit
from ew_pipeline.studies.baselines.decomposed import METHODS as DECOMPOSITIONS
from ew_pipeline.studies.baselines.decomposed import SHARES, distance, largest
from ew_pipeline.studies.cost import expected_cost, ideal_flags
from ew_pipeline.studies.ensemble import SyntheticInstance
from ew_pipeline.studies.experiments.near_bayes import near_bayes

DEFAULT = "default"
IGNORE = "ignore"
IDEAL = "ideal"
ORACLE = "paper-oracle"
TOLD = "told"
NEAR_BAYES = "near-bayes"
ONE_SIDED = "-one-sided"


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
