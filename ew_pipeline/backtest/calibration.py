"""Learn from labels that have matured what the evidence is worth, and refuse when it is worth nothing.

A calibration is a small logistic regression from the evidence of a pair to the chance that it is an anomaly,
learnt on weeks before the one it is used for. Those weeks are first held back in turn, a block at a time: on
them the calibrated forms compete with the label-free ones and with flagging nothing, by cost. Only a
calibration that wins is accepted and learnt on all weeks; otherwise the record says what is used and why.

The record is plain JSON with a version that is a hash of its content: the same labels give the same version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from ew_pipeline.backtest.logistic import Logistic, fit_logistic
from ew_pipeline.backtest.priced import ignore_cost, priced_cost
from ew_pipeline.core.errors import DataError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

NOTHING = "nothing"
RIDGE = 20.0
FEWEST_ANOMALIES = 25  # below this a regression learns the noise; and as many healthy pairs
PRUDENCE = 0.02  # of Ignore, by which a regression alone must beat its mean with the label-free form
FOLDS = 3  # blocks of weeks held back in turn
MOST_WEEKS = 16
MOST_ROWS = 40_000  # learnt from; more moves the cost by less than .002
MOST_ROWS_OF_A_WEEK = 10_000
RATE_PRIOR = 10.0  # pairs' worth of the overall rate in each SKU's own


@dataclass(frozen=True, eq=False)
class LabelledWeek:
    """A past week whose labels are known. Arrays run over its labelled pairs, or a sample of them.

    Attributes
    ----------
    week : its label.
    features : by name of the feature set ("few", "many"), by name of the feature.
    sku : text id of each pair's SKU.
    anomaly : the labels.
    weight : how many pairs each row stands for.
    rivals : label-free probabilities by name, what a calibration has to beat.
    """

    week: str
    features: Mapping[str, Mapping[str, FloatArray]]
    sku: npt.NDArray[np.str_]
    anomaly: BoolArray
    weight: FloatArray
    rivals: Mapping[str, FloatArray]


@dataclass(frozen=True)
class Model:
    """One logistic on one feature set, as plain numbers."""

    feature_set: str
    features: tuple[str, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    intercept: float
    coefficients: tuple[float, ...]

    def log_odds(self, columns: Mapping[str, FloatArray], sku_rate: FloatArray) -> FloatArray:
        missing = [name for name in self.features[:-1] if name not in columns]
        if missing:
            raise DataError(f"the calibration needs features that are not there: {', '.join(missing)}.")
        logistic = Logistic(
            np.array(self.centre), np.array(self.scale), self.intercept, np.array(self.coefficients)
        )
        return logistic.log_odds_of([*(columns[name] for name in self.features[:-1]), sku_rate])


@dataclass(frozen=True)
class Calibration:
    """What was learnt for one week, and whether it is used.

    Attributes
    ----------
    version : hash of everything below; "" for a record without models.
    rule : what the labels mean: text, pair, code, truth.
    weeks : past weeks learnt from.
    pairs, anomalies : labelled pairs and anomalies in ``weeks``.
    accepted : whether a calibrated form is used.
    chosen : the form in use: a set of features ("many"), the mean of its log-odds and the label-free ones
        ("many + history"), a label-free form ("history"), or "nothing".
    reason : the decision in words.
    costs : cost ratio to Ignore of every form on those weeks, each held back from what was learnt for it.
    gain : cost ratio of the best label-free form (or of flagging nothing) minus that of the chosen one.
    model : the regression in use; None when refused.
    prior : the label-free form whose log-odds are averaged with the model's; "" for the model alone.
    sku_rates, overall_rate : log-odds of the SKUs' shrunk anomaly rates; of one not seen.
    """

    rule: str
    weeks: tuple[str, ...]
    pairs: int
    anomalies: int
    accepted: bool
    chosen: str
    reason: str
    costs: Mapping[str, float] = field(default_factory=dict)
    gain: float = 0.0
    model: Model | None = None
    prior: str = ""
    sku_rates: Mapping[str, float] = field(default_factory=dict)
    overall_rate: float = 0.0
    version: str = ""

    def probability(
        self,
        features: Mapping[str, Mapping[str, FloatArray]],
        sku: npt.NDArray[np.str_],
        rivals: Mapping[str, FloatArray],
    ) -> FloatArray:
        """P(anomaly) of pairs in the chosen form, given their features and label-free probabilities."""
        if self.chosen == NOTHING:
            return np.zeros(sku.size)
        if self.model is None:
            return rivals[self.chosen]
        codes, ids = pd.factorize(sku)  # ids repeat, and each need be looked up once
        of_ids = [self.sku_rates.get(str(one), self.overall_rate) for one in ids]
        rate = np.array(of_ids, dtype=np.float64)[codes]
        odds = self.model.log_odds(features[self.model.feature_set], rate)
        return np.asarray(expit(_with_prior(odds, rivals[self.prior]) if self.prior else odds))

    def to_json(self) -> str:
        """The record as one JSON text; keys in order, so that equal records are equal texts."""
        return json.dumps(_plain(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read back what ``to_json`` wrote; refuses a record whose content does not fit its version."""
        raw = _tuples(json.loads(text))
        model = raw.pop("model")
        record = cls(**raw, model=None if model is None else Model(**_tuples(model)))
        if record.version != _version(record):
            raise DataError(
                f"calibration {record.version} was changed after it was written.", "learn it again."
            )
        return record


def learn(weeks: Sequence[LabelledWeek], rule: str, prefer: str) -> Calibration:
    """Learn from ``weeks`` (ascending in time, all mature), or say why not.

    ``prefer`` names the label-free form that is used while labels do not speak against it.
    """
    weeks = [week for week in weeks if week.anomaly.size][-MOST_WEEKS:]
    if not weeks:
        return _refused(rule, (), prefer, "no past week has labels yet")
    if len(weeks) == 1:
        weeks = _halves(weeks[0])
    folds = [list(fold) for fold in np.array_split(np.arange(len(weeks)), min(FOLDS, len(weeks)))]
    enough = all(_teaches([week for k, week in enumerate(weeks) if k not in fold]) for fold in folds)
    costs = {name: _cost([week.rivals[name] for week in weeks], weeks) for name in weeks[0].rivals}
    costs[NOTHING] = _cost([np.zeros(week.anomaly.size) for week in weeks], weeks)
    rival = min(costs, key=lambda name: (costs[name], name != prefer))
    if not enough:
        why = (
            f"{_anomalies(weeks)} anomalies in {len(weeks)} labelled weeks are too few to learn from: "
            f"{FEWEST_ANOMALIES} are needed without the weeks that judge"
        )
        return _refused(rule, weeks, rival, why, costs)
    rivals = dict(costs)
    late = weeks[folds[-1][0] :]  # judged by what was learnt on earlier weeks alone
    late_costs = {name: _cost([week.rivals[name] for week in late], late) for name in late[0].rivals}
    late_costs[NOTHING] = _cost([np.zeros(week.anomaly.size) for week in late], late)
    forms: dict[str, tuple[str, str]] = {}
    for name in weeks[0].features:
        odds = _held_back_odds(name, weeks, folds)
        mixed = [_with_prior(z, week.rivals[prefer]) for z, week in zip(odds, weeks, strict=True)]
        for form, prior, values in ((name, "", odds), (f"{name} + {prefer}", prefer, mixed)):
            forms[form] = name, prior
            probability = [expit(z) for z in values]
            costs[form] = _cost(probability, weeks)
            late_costs[form] = _cost(probability[-len(late) :], late)
    best = _least_regret(costs, late_costs, alone={form for form, (_, prior) in forms.items() if not prior})
    gain = rivals[rival] - costs[best]
    if best in rivals or not gain > 0:
        chosen = best if best in rivals else rival
        why = f"no calibration costs less than {chosen!r}, on weeks held back from it and on the last of them"
        return _refused(rule, weeks, chosen, why, costs)
    rates = _SkuRates(weeks)
    record = Calibration(
        rule=rule,
        weeks=_names(weeks),
        pairs=round(sum(float(week.weight.sum()) for week in weeks)),
        anomalies=_anomalies(weeks),
        accepted=True,
        chosen=best,
        reason=f"costs {gain:.3f} of Ignore less than any form without labels, on weeks held back from it",
        costs=costs,
        gain=gain,
        model=_model(forms[best][0], weeks, rates),
        prior=forms[best][1],
        sku_rates=rates.by_sku(),
        overall_rate=rates.overall,
    )
    return replace(record, version=_version(record))


def _least_regret(costs: Mapping[str, float], late: Mapping[str, float], alone: set[str]) -> str:
    """The form that is nowhere far from the best: neither over all weeks nor over the last of them.

    All weeks are the larger sample, the last ones are the honest test where the chain changes with time.
    """
    least, least_late = min(costs.values()), min(late.values())
    return min(
        costs,
        key=lambda form: (
            max(costs[form] - least, late[form] - least_late) + (PRUDENCE if form in alone else 0.0)
        ),
    )


def _halves(week: LabelledWeek) -> list[LabelledWeek]:
    """One labelled week as two, every other pair: enough to learn on one and judge on the other."""
    return [
        LabelledWeek(
            week=week.week,
            features={
                name: {column: values[start::2] for column, values in columns.items()}
                for name, columns in week.features.items()
            },
            sku=week.sku[start::2],
            anomaly=week.anomaly[start::2],
            weight=week.weight[start::2],
            rivals={name: values[start::2] for name, values in week.rivals.items()},
        )
        for start in (0, 1)
    ]


def _model(name: str, weeks: Sequence[LabelledWeek], rates: _SkuRates) -> Model:
    columns, fitted = _fit(name, weeks, rates)
    return Model(
        name,
        (*columns, "SKU's past rate"),
        _floats(fitted.centre),
        _floats(fitted.scale),
        fitted.intercept,
        _floats(fitted.coefficients),
    )


def _refused(
    rule: str,
    weeks: Sequence[LabelledWeek],
    chosen: str,
    reason: str,
    costs: Mapping[str, float] | None = None,
) -> Calibration:
    record = Calibration(
        rule=rule,
        weeks=_names(weeks),
        pairs=round(sum(float(week.weight.sum()) for week in weeks)),
        anomalies=_anomalies(weeks),
        accepted=False,
        chosen=chosen,
        reason=reason,
        costs=dict(costs or {}),
    )
    return replace(record, version=_version(record))


class _SkuRates:
    """Shrunk log-odds of each SKU's anomaly rate, over all weeks or without one of them."""

    def __init__(self, weeks: Sequence[LabelledWeek]) -> None:
        self.ids, codes = np.unique(np.concatenate([week.sku for week in weeks]), return_inverse=True)
        weight = np.concatenate([week.weight for week in weeks])
        anomaly = weight * np.concatenate([week.anomaly for week in weeks])
        which = np.repeat(np.arange(len(weeks)), [week.anomaly.size for week in weeks])
        cell = which * self.ids.size + codes
        shape = (len(weeks), self.ids.size)
        self.count = np.bincount(cell, weight, minlength=shape[0] * shape[1]).reshape(shape)
        self.found = np.bincount(cell, anomaly, minlength=shape[0] * shape[1]).reshape(shape)
        self.rate = float(np.clip(anomaly.sum() / weight.sum(), 1e-4, 1.0 - 1e-4))
        self.overall = float(np.log(self.rate / (1.0 - self.rate)))

    def _odds(self, count: FloatArray, found: FloatArray) -> FloatArray:
        share = (found + RATE_PRIOR * self.rate) / (count + RATE_PRIOR)
        share = np.clip(share, 1e-4, 1.0 - 1e-4)
        return np.asarray(np.log(share / (1.0 - share)))

    def without(self, week: int, sku: npt.NDArray[np.str_]) -> FloatArray:
        """For the training rows of a week: the rate in the other weeks, as the future will see it."""
        odds = self._odds(self.count.sum(0) - self.count[week], self.found.sum(0) - self.found[week])
        return odds[np.searchsorted(self.ids, sku)]

    def of(self, sku: npt.NDArray[np.str_]) -> FloatArray:
        odds = self._odds(self.count.sum(0), self.found.sum(0))
        position = np.minimum(np.searchsorted(self.ids, sku), self.ids.size - 1)
        return np.where(self.ids[position] == sku, odds[position], self.overall)

    def by_sku(self) -> dict[str, float]:
        odds = self._odds(self.count.sum(0), self.found.sum(0))
        return {str(name): float(value) for name, value in zip(self.ids, odds, strict=True)}


def _fit(
    name: str, weeks: Sequence[LabelledWeek], rates: _SkuRates, most: int = MOST_ROWS
) -> tuple[list[str], Logistic]:
    columns = list(weeks[0].features[name])
    designs, outcomes, weights = [], [], []
    for position, week in enumerate(weeks):
        rows, share = sample_rows(week.anomaly, most // len(weeks), position)
        table = [week.features[name][column][rows] for column in columns]
        designs.append(np.column_stack([*table, rates.without(position, week.sku)[rows]]))
        outcomes.append(week.anomaly[rows].astype(np.float64))
        weights.append(share * week.weight[rows])
    fitted = fit_logistic(np.vstack(designs), np.concatenate(outcomes), np.concatenate(weights), RIDGE)
    return columns, fitted


def _held_back_odds(
    name: str, weeks: Sequence[LabelledWeek], folds: Sequence[Sequence[int]]
) -> list[FloatArray]:
    """Log-odds of every week by a regression that has not seen its block of weeks."""
    found: dict[int, FloatArray] = {}
    for fold in folds:
        others = [week for k, week in enumerate(weeks) if k not in fold]
        rates = _SkuRates(others)
        columns, fitted = _fit(name, others, rates, MOST_ROWS // 2)
        for k in fold:
            table = [weeks[k].features[name][column] for column in columns]
            found[k] = fitted.log_odds_of([*table, rates.of(weeks[k].sku)])
    return [found[k] for k in range(len(weeks))]


def _teaches(weeks: Sequence[LabelledWeek]) -> bool:
    healthy = sum(int((~week.anomaly).sum()) for week in weeks)
    return _anomalies(weeks) >= FEWEST_ANOMALIES and healthy >= FEWEST_ANOMALIES


def sample_rows(
    anomaly: BoolArray, most: int = MOST_ROWS_OF_A_WEEK, seed: int = 0
) -> tuple[IntArray, FloatArray]:
    """At most ``most`` rows, anomalies first up to half of them, with weights that undo the choice."""
    if anomaly.size <= most:
        return np.arange(anomaly.size), np.ones(anomaly.size)
    rng = np.random.default_rng(seed)
    yes, no = np.flatnonzero(anomaly), np.flatnonzero(~anomaly)
    n_yes = min(yes.size, most // 2)
    n_no = min(no.size, most - n_yes)
    kept_yes, kept_no = rng.choice(yes, n_yes, replace=False), rng.choice(no, n_no, replace=False)
    rows = np.concatenate([kept_yes, kept_no])
    weight = np.concatenate([np.full(n_yes, yes.size / max(n_yes, 1)), np.full(n_no, no.size / max(n_no, 1))])
    return rows, weight


def _cost(probability: Sequence[FloatArray], weeks: Sequence[LabelledWeek]) -> float:
    """Cost over that of Ignore; without any anomaly, 1 plus the cost per thousand pairs: nothing wins."""
    spent = sum(float(priced_cost(p, w.anomaly) @ w.weight) for p, w in zip(probability, weeks, strict=True))
    ignored = sum(float(ignore_cost(week.anomaly) @ week.weight) for week in weeks)
    return spent / ignored if ignored > 0 else 1.0 + spent


def _names(weeks: Sequence[LabelledWeek]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(week.week for week in weeks))


def _anomalies(weeks: Sequence[LabelledWeek]) -> int:
    return round(sum(float(week.weight[week.anomaly].sum()) for week in weeks))


def _floats(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _with_prior(log_odds: FloatArray, prior: FloatArray) -> FloatArray:
    """Half way to a label-free probability on the log-odds: what few labels teach is noisy."""
    held = np.clip(prior, 1e-4, 1.0 - 1e-4)
    return np.asarray((log_odds + np.log(held / (1.0 - held))) / 2.0)


def _plain(record: Calibration) -> dict[str, Any]:
    return {**record.__dict__, "model": None if record.model is None else record.model.__dict__}


def _tuples(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}


def _version(record: Calibration) -> str:
    content = _plain(replace(record, version=""))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
