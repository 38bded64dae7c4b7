"""Every policy on every week, with past-only information; then, looking back, what each would have cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.calibration import Calibration
from ew_pipeline.backtest.history import Grouping
from ew_pipeline.backtest.measures import Measures, measure
from ew_pipeline.backtest.parts import Outcomes
from ew_pipeline.backtest.policies import Policy
from ew_pipeline.backtest.priced import PAPER_COSTS, UniformCosts
from ew_pipeline.backtest.scoring import check_policies, outcomes_of, pooled, score_week
from ew_pipeline.backtest.view import LabelSource, Memory, PastView
from ew_pipeline.core.errors import DataError
from ew_pipeline.intake.panel import Panel

FloatArray = npt.NDArray[np.float64]
TRAILING = ("trailing", "trailing-sku")
REMEMBERED = 40  # weeks back that the labels of a later week can still ask for


@dataclass(frozen=True, eq=False)
class Backtest:
    """What came out.

    Attributes
    ----------
    weeks : evaluated weeks, in order; skipped : the other weeks of the range, and why.
    pairs, anomalies : labelled, over all weeks.
    policies : measures by name.
    calibrations : by policy that learns, one record per evaluated week.
    seconds : spent in each policy.
    """

    weeks: tuple[str, ...]
    skipped: Mapping[str, str]
    pairs: int
    anomalies: int
    policies: Mapping[str, Measures]
    calibrations: Mapping[str, tuple[Calibration, ...]]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Verdict:
    """Whether a policy should be used on such data, in hindsight."""

    use: bool
    reason: str


def backtest(
    panel: Panel,
    weeks: Sequence[int],
    policies: Sequence[Policy],
    labels: LabelSource,
    progress: Callable[[str], None] = lambda line: None,
    *,
    costs: UniformCosts = PAPER_COSTS,
    grouping: Grouping | None = None,
) -> Backtest:
    """Score ``weeks`` (columns of the panel) one after the other and measure on their labels.

    ``grouping`` splits the pairs into segments that are measured by themselves, too.
    """
    check_policies(policies)
    memory = Memory()
    probability: dict[str, list[FloatArray]] = {policy.name: [] for policy in policies}
    order: dict[str, list[FloatArray]] = {policy.name: [] for policy in policies}
    calibrations: dict[str, list[Calibration]] = {}
    seconds = {policy.name: 0.0 for policy in policies}
    done: list[str] = []
    skipped: dict[str, str] = {}
    outcomes: list[Outcomes] = []
    for t in sorted(weeks):
        truth = labels.of(panel, t)  # only to measure with: no view ever holds it
        if not truth.known.any():
            skipped[panel.weeks[t]] = "no pair has a label"
            continue
        view = PastView(panel, t, labels, memory)
        pairs = view.pairs
        kept = truth.known[pairs]
        started = time.perf_counter()
        scored = score_week(view, policies)
        for name, score in scored.scores.items():
            seconds[name] += scored.seconds[name]
            probability[name].append(score.probability[kept].astype(np.float32))
            order[name].append(score.order[kept].astype(np.float32))
            if score.calibration is not None:
                calibrations.setdefault(name, []).append(score.calibration)
        labelled = pairs[kept]
        outcomes.append(outcomes_of(panel, t, labelled, truth.anomaly[labelled], grouping, len(done)))
        done.append(panel.weeks[t])
        memory.forget_before(t - REMEMBERED)
        rate = f"{int(kept.sum())} pairs, {outcomes[-1].anomaly.mean():.1%} anomalies"
        progress(f"{panel.weeks[t]}  {time.perf_counter() - started:6.1f} s  {rate}")
    if not done:
        raise DataError(
            f"none of the {len(weeks)} weeks has labels.",
            "labels need several weeks of sales on both sides; choose weeks away from the ends of the table.",
        )
    everything = pooled(outcomes)
    measured = {}
    for policy in policies:
        name = policy.name
        p = np.concatenate(probability.pop(name)).astype(np.float64)
        ranked = np.concatenate(order.pop(name)).astype(np.float64)
        measured[name] = measure(p, ranked, everything, costs)
    return Backtest(
        weeks=tuple(done),
        skipped=skipped,
        pairs=everything.anomaly.size,
        anomalies=int(everything.anomaly.sum()),
        policies=measured,
        calibrations={name: tuple(records) for name, records in calibrations.items()},
        seconds=seconds,
    )


def verdict(result: Backtest, default: str) -> Verdict:
    """Cheaper than doing nothing and than the better of the trailing rules, or not to be used here."""
    cost = result.policies[default].cost_ratio
    rules = {name: result.policies[name].cost_ratio for name in TRAILING if name in result.policies}
    if result.anomalies == 0:
        return Verdict(False, "there is no anomaly in these weeks, so nothing can be said")
    if not cost < 1.0:
        return Verdict(False, f"{default} costs {cost:.3f} of doing nothing: do not use it on such data")
    if rules and not cost < min(rules.values()):
        best = min(rules, key=lambda name: rules[name])
        return Verdict(
            False, f"{default} costs {cost:.3f} of doing nothing, {best} {rules[best]:.3f}: use that instead"
        )
    better = f", the better trailing rule {min(rules.values()):.3f}" if rules else ""
    return Verdict(True, f"{default} costs {cost:.3f} of doing nothing{better}")
