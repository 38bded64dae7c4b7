"""Policies: what a retailer could do with a week of sales. One interface for all of them.

A policy sees a ``PastView`` and gives each pair observed in its week a probability of being an anomaly, which
is then priced. A hard rule gives 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.calibration import (
    MOST_WEEKS,
    NOTHING,
    Calibration,
    LabelledWeek,
    learn,
    sample_rows,
)
from ew_pipeline.backtest.evidence import CrossSection, Evidence
from ew_pipeline.backtest.features import (
    CROSS_FRACTION,
    LEAST_MEAN,
    TRUTH_FRACTION,
    cross_drop,
    cross_features,
    few_features,
    level_drop,
    many_features,
    window_drop,
)
from ew_pipeline.backtest.labels import DROP, Labels
from ew_pipeline.backtest.view import PastView
from ew_pipeline.infer.follow import Followed, follow, infer
from ew_pipeline.infer.parameters import Fit, fit_parameters
from ew_pipeline.infer.pricing import HARD

FloatArray = npt.NDArray[np.float64]
FeatureSets = Mapping[str, Mapping[str, FloatArray]]
MOST_TOGETHER = 4  # weeks fitted side by side, each in 150 MB of memory for half a million pairs


@dataclass(frozen=True, eq=False)
class Score:
    """One value per pair observed in the week, in the panel's order.

    Attributes
    ----------
    probability : of being an anomaly, in [0, 1]; what is priced.
    ranking : higher is more suspicious; for a hard rule finer than its 0 and 1. The probability by default.
    calibration : what was learnt for the week, for policies that learn.
    """

    probability: FloatArray
    ranking: FloatArray | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        self.probability.setflags(write=False)

    @property
    def order(self) -> FloatArray:
        return self.probability if self.ranking is None else self.ranking


class Policy(Protocol):
    """One way of scoring a week."""

    @property
    def name(self) -> str: ...

    def score(self, view: PastView) -> Score: ...


@dataclass(frozen=True)
class History:
    """The detector on the ratio to each pair's own level; label-free."""

    name: str = "history"

    def score(self, view: PastView) -> Score:
        if view.t < 1:
            return CrossSectionOnly().score(view)
        return Score(label_free(view.evidence(), view.rule))


@dataclass(frozen=True)
class CrossSectionOnly:
    """The week alone, no labels: P(the pair sells half of what its store and SKU suggest, or less)."""

    name: str = "cross-section"

    def score(self, view: PastView) -> Score:
        return Score(label_free_cross(view.cross_section(), view.rule))


@dataclass(frozen=True)
class Calibrated:
    """The evidence with or without history, weighed by what past labels have taught.

    Falls back to a label-free form, and to flagging nothing, by what the past labels say of those.
    """

    name: str
    history: bool = True

    def score(self, view: PastView) -> Score:
        form = "history" if self.history and view.t >= 1 else "cross-section"
        policy, mature = self._that_learns(view)
        if policy != self:
            return policy.score(view)
        weeks = [self._labelled(view, week, labels) for week, labels in mature.items()]
        learnt = learn(weeks, view.rule, form)
        sku = view.panel.sku_ids[view.panel.sku[view.pairs]]
        evidence = self._evidence(view, view.t)
        features = _features(evidence) if learnt.accepted else {}
        rivals = _rivals(evidence, view.rule)
        probability = learnt.probability(features, sku, rivals)
        if learnt.chosen == NOTHING or learnt.chosen in HARD:
            # Still ranked, and finely: who walks a shelf should walk the right one.
            return Score(probability, (probability + rivals[form]) / 2.0, learnt)
        return Score(probability, calibration=learnt)

    def fit(self, view: PastView, threads: int = 1) -> int:
        """Have the view's memory hold all that ``score`` fits, and say how many weeks that learns from.

        Those weeks, and the week itself against its past, are fitted side by side; no number depends on it.
        """
        policy, mature = self._that_learns(view)
        view.hash_weeks()

        def work(week: int) -> None:
            if week == view.t:
                policy._evidence(view, week)
            else:
                policy._labelled(view, week, mature[week])

        # The week itself first: nothing of it is kept between runs, so it is never the quick one.
        with ThreadPoolExecutor(max(1, min(threads, MOST_TOGETHER))) as pool:
            for _ in pool.map(work, [view.t, *mature]):
                pass
        return len(mature)

    def _that_learns(self, view: PastView) -> tuple[Calibrated, Mapping[int, Labels]]:
        """This policy, or the one without history where that is all there is to learn from, and its weeks."""
        mature = view.mature(MOST_WEEKS)
        if self.history and list(mature) == [0]:  # the only labelled week has no past to learn from
            return Calibrated(self.name, history=False), mature
        first = 1 if self.history else 0
        return self, {week: labels for week, labels in mature.items() if week >= first}

    def _labelled(self, view: PastView, week: int, labels: Labels) -> LabelledWeek:
        what = f"labelled by {'history' if self.history else 'cross-section'}"
        found = view.memory.get(what, week, LabelledWeek)
        if found is not None:
            return found
        kept = view.memory.labelled
        if kept is None:
            return view.memory.keep(what, week, self._make_labelled(view, week, labels))
        content = f"{what} {view.content(week, labels)}"
        made = kept.find(content, lambda: self._make_labelled(view, week, labels))
        return view.memory.keep(what, week, made)

    def _make_labelled(self, view: PastView, week: int, labels: Labels) -> LabelledWeek:
        pairs = np.flatnonzero(view.panel.observed[:, week])
        known = np.flatnonzero(labels.known[pairs])
        rows, weight = sample_rows(labels.anomaly[pairs][known])
        rows = known[rows]
        if labels.weight is not None:
            weight = weight * labels.weight[pairs[rows]]
        seen = self._evidence(view, week).take(rows)  # once: the memory may not keep it
        return LabelledWeek(
            week=view.panel.weeks[week],
            features=_features(seen),
            sku=view.panel.sku_ids[view.panel.sku[pairs[rows]]],
            anomaly=labels.anomaly[pairs[rows]],
            weight=weight,
            rivals=_rivals(seen, view.rule),
        )

    def _evidence(self, view: PastView, week: int) -> Evidence | CrossSection:
        if self.history and view.t >= 1:
            return view.evidence(week)
        return view.cross_section(week)


def _features(evidence: Evidence | CrossSection) -> FeatureSets:
    if isinstance(evidence, CrossSection):
        return {"few": cross_features(evidence)}
    return {"few": few_features(evidence), "many": many_features(evidence)}


def _rivals(evidence: Evidence | CrossSection, rule: str) -> dict[str, FloatArray]:
    if isinstance(evidence, CrossSection):
        return {"cross-section": label_free_cross(evidence, rule)}
    return {
        "history": label_free(evidence, rule),
        "trailing": trailing_flags(evidence, moved=False),
        "trailing-sku": trailing_flags(evidence, moved=True),
    }


def label_free(evidence: Evidence, rule: str) -> FloatArray:
    """The probability that fits what an anomaly is said to be, without any label."""
    if rule == "truth":
        return level_drop(evidence)
    return window_drop(evidence, pair_specific=rule == "pair")


def label_free_cross(week: CrossSection, rule: str) -> FloatArray:
    """The same from one week; it cannot see the chain's movement, so text and pair are one."""
    if rule == "truth":
        return cross_drop(week, TRUTH_FRACTION, zero_counts_as=DROP)
    return cross_drop(week, CROSS_FRACTION, zero_counts_as=LEAST_MEAN)


def trailing_flags(evidence: Evidence, *, moved: bool) -> FloatArray:
    """1 where X is at most half the mean of the past 5 weeks (times the SKU's movement), else 0."""
    mean = evidence.trailing * (evidence.sku_move_trailing if moved else 1.0)
    low = (evidence.units <= DROP * mean) & (evidence.trailing_weeks > 0)
    return low.astype(np.float64)


EARLY_FITS = (0, 1, 2, 3, 4, 6, 8, 10)
FIT_EVERY = 4  # weeks, from the twelfth on


@dataclass(frozen=True)
class Record:
    """P(the record is wrong), label-free; with a truth that has a threshold, P(that much was lost or more).

    Parameters are fitted at fixed weeks, at first often, then every fourth, on what was known at their end;
    the pass over the weeks goes on from the week scored before. Neither depends on which weeks are scored.
    """

    name: str = "record"

    def score(self, view: PastView) -> Score:
        fitted_at = fit_week(view.t)
        fit = view.memory.get(self.name, fitted_at, Fit)
        if fit is None:
            fit = view.memory.keep(self.name, fitted_at, fit_parameters(view.panel.until(fitted_at)))
        past = self._past(view, fitted_at, fit)
        beliefs = infer(view.panel, past, fit.parameters, view.threshold or 0.0)
        if view.threshold is None:
            return Score(beliefs.wrong)
        return Score(beliefs.deep, (beliefs.deep + 1e-3 * beliefs.wrong) / (1.0 + 1e-3))

    def _past(self, view: PastView, fitted_at: int, fit: Fit) -> Followed:
        """The pass at the end of the week before, from the nearest that is remembered."""
        kind = f"{self.name} followed, parameters of week {fitted_at}"
        nearest = None
        for week in range(view.t, 0, -1):
            nearest = view.memory.get(kind, week, Followed)
            if nearest is not None:
                break
        if view.t == 0:
            return follow(view.panel, fit.parameters, until=-1)
        if nearest is None or nearest.weeks < view.t:
            nearest = follow(view.panel, fit.parameters, nearest, view.t - 1)
            view.memory.keep(kind, view.t, nearest)
        return nearest


def fit_week(t: int) -> int:
    """The week at whose end the parameters for week ``t`` are fitted."""
    early = [week for week in EARLY_FITS if week <= t]
    return early[-1] if t < EARLY_FITS[-1] + 2 else t - t % FIT_EVERY
