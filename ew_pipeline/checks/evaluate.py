"""How good the published decisions were, from what people found at the shelves.

Two groups were checked: flags, and a random share of the pairs that were not flagged. Each stands for its
group. A check in week w weighs (pairs of its group in w) / (checks of its group in w), with the inclusion
probability where it differs between pairs; pairs that nobody got to are taken to be like those of their group
that were checked. With T the weighted wrong records among flags and U those among the rest:

    precision = T / flags       recall = T / (T + U)       lift = precision / ((T + U) / pairs)

Intervals: a bootstrap over stores, since the checks of one store are made by the same people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.resample import Estimate, estimate, ratio, times_drawn
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, Publication
from ew_pipeline.ledger.reading import UNDECIDED
from ew_pipeline.ledger.store import newest_checks

DRAWS = 2000
BINS = 10
# Columns of the sums per store.
FLAG, FLAG_WRONG, REST, REST_WRONG, SAVED, WASTED, MISSED = range(7)


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs with a predicted P(wrong) in [low, high): what was predicted and what was found, weighted."""

    low: float
    high: float
    checks: int
    predicted: float
    confirmed: float


@dataclass(frozen=True)
class CheckEvaluation:
    """Figures over the weeks from ``first`` to ``last`` that have both a publication and checks.

    ``saving`` is what the flags saved against doing nothing, ``cost`` what errors and useless checks cost all
    the same, ``cost_ignoring`` what doing nothing would have cost. ``why`` says what cannot be told.
    """

    first: str
    last: str
    weeks: int
    flags: int
    pairs: int
    flags_checked: int
    flags_confirmed: int
    random_checked: int
    random_confirmed: int
    not_checked: int
    unlinked: int
    precision: Estimate
    recall: Estimate
    anomaly_rate: Estimate
    lift: Estimate
    saving: Estimate
    cost: Estimate
    cost_ignoring: Estimate
    calibration: tuple[CalibrationBin, ...]
    calibration_error: float
    why: tuple[str, ...]


def evaluate_checks(
    ledger: Ledger, from_week: Week, to_week: Week, *, seed: int = 0, draws: int = DRAWS
) -> CheckEvaluation:
    """Evaluate the checks of ``from_week`` to ``to_week`` against the publications they were made for."""
    labels = [str(week) for week in from_week.through(to_week)]
    checks = newest_checks(ledger)
    checks = checks[checks["week"].isin(labels)]
    if checks.empty:
        raise UsageError(
            f"there are no checks of {from_week} to {to_week}.", "record some: ew checks import FILE"
        )
    linked = checks[checks["publication_id"].notna()]
    made = linked[linked["outcome"] != UNDECIDED]
    publications = {one.id: one for one in ledger.publications() if one.id in set(made["publication_id"])}
    sample = _weighted(made, publications)
    flag, wrong = (sample["source"] == "flag").to_numpy(), (sample["outcome"] == "confirmed").to_numpy()
    totals = _Totals.of(list(publications.values()))
    stores, store = np.unique(sample["store_id"].to_numpy(dtype=str), return_inverse=True)
    sums = _sums_by_store(sample, flag, wrong, store, stores.size)
    times = times_drawn(stores.size, draws, seed)
    once = _figures(sums.sum(axis=0, keepdims=True), totals)
    many = _figures(times @ sums, totals)
    estimates = {name: estimate(once[name][0], many[name]) for name in once}
    curve = _calibration(sample, wrong)
    return CheckEvaluation(
        first=str(from_week),
        last=str(to_week),
        weeks=len({one.week for one in publications.values()}),
        flags=totals.flags,
        pairs=totals.pairs,
        flags_checked=int(flag.sum()),
        flags_confirmed=int((flag & wrong).sum()),
        random_checked=int((~flag).sum()),
        random_confirmed=int((~flag & wrong).sum()),
        not_checked=int((checks["outcome"] == UNDECIDED).sum()),
        unlinked=int(checks["publication_id"].isna().sum()),
        calibration=curve,
        calibration_error=_calibration_error(sample, wrong, curve),
        why=tuple(_reasons(flag, stores.size)),
        **estimates,
    )


@dataclass(frozen=True)
class _Totals:
    flags: int
    pairs: int

    @property
    def unflagged(self) -> int:
        return self.pairs - self.flags

    @classmethod
    def of(cls, publications: list[Publication]) -> _Totals:
        return cls(
            sum(one.flags_count for one in publications), sum(one.pairs_scored for one in publications)
        )


def _weighted(made: pd.DataFrame, publications: dict[int, Publication]) -> pd.DataFrame:
    """The checks with ``weight``: how many pairs of its group each one stands for."""
    sample = made.reset_index(drop=True).astype({"publication_id": "int64"})
    base = 1.0 / sample["inclusion_probability"].fillna(1.0).to_numpy(dtype=np.float64)
    sample["weight"] = base
    group = sample.groupby(["publication_id", "source"])["weight"].transform("sum").to_numpy(dtype=np.float64)
    size = [
        publications[number].flags_count
        if source == "flag"
        else publications[number].pairs_scored - publications[number].flags_count
        for number, source in zip(sample["publication_id"], sample["source"], strict=True)
    ]
    sample["weight"] = base / group * np.asarray(size, dtype=np.float64)
    return sample


def _sums_by_store(
    sample: pd.DataFrame, flag: Bool, wrong: Bool, store: NDArray[np.integer], n: int
) -> Float:
    weight = sample["weight"].to_numpy(dtype=np.float64)
    c0, c1 = (sample[name].to_numpy(dtype=np.float64) for name in ("cost_false_alarm", "cost_missed"))
    columns = [
        flag,
        flag & wrong,
        ~flag,
        ~flag & wrong,
        np.where(flag & wrong, c1, 0.0),
        np.where(flag & ~wrong, c0, 0.0),
        np.where(~flag & wrong, c1, 0.0),
    ]
    return np.stack([np.bincount(store, weight * column, minlength=n) for column in columns], axis=1)


def _figures(sums: Float, totals: _Totals) -> dict[str, Float]:
    """The figures of every row of sums, each group scaled to its size."""
    of_flags, of_rest = _scale(totals.flags, sums[:, FLAG]), _scale(totals.unflagged, sums[:, REST])
    found, missed = sums[:, FLAG_WRONG] * of_flags, sums[:, REST_WRONG] * of_rest
    saved, wasted = sums[:, SAVED] * of_flags, sums[:, WASTED] * of_flags
    lost = sums[:, MISSED] * of_rest
    precision = ratio(sums[:, FLAG_WRONG], sums[:, FLAG])
    rate = (found + missed) / max(totals.pairs, 1)
    return {
        "precision": precision,
        "recall": ratio(found, found + missed),
        "anomaly_rate": rate,
        "lift": ratio(precision, rate),
        "saving": saved - wasted,
        "cost": wasted + lost,
        "cost_ignoring": saved + lost,
    }


def _scale(size: int, checked: Float) -> Float:
    """What a group's sums are multiplied with; nothing is known of a group that nobody checked."""
    return np.zeros(len(checked)) if size == 0 else ratio(np.full(len(checked), float(size)), checked)


def _calibration(sample: pd.DataFrame, wrong: Bool) -> tuple[CalibrationBin, ...]:
    """Ten bins of equal width; empty ones are left out."""
    predicted = sample["anomaly_probability"].to_numpy(dtype=np.float64)
    weight = sample["weight"].to_numpy(dtype=np.float64)
    place = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    made = []
    for number in range(BINS):
        here = (place == number) & (weight > 0)
        if here.any():
            made.append(
                CalibrationBin(
                    low=number / BINS,
                    high=(number + 1) / BINS,
                    checks=int(here.sum()),
                    predicted=float(np.average(predicted[here], weights=weight[here])),
                    confirmed=float(np.average(wrong[here], weights=weight[here])),
                )
            )
    return tuple(made)


def _calibration_error(sample: pd.DataFrame, wrong: Bool, curve: tuple[CalibrationBin, ...]) -> float:
    """Mean distance between predicted and found, over the pairs that the checks stand for."""
    predicted = sample["anomaly_probability"].to_numpy(dtype=np.float64)
    weight = sample["weight"].to_numpy(dtype=np.float64)
    if not curve or weight.sum() == 0:
        return math.nan
    place = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    share = np.bincount(place, weight, minlength=BINS) / weight.sum()
    return float(sum(share[round(one.low * BINS)] * abs(one.predicted - one.confirmed) for one in curve))


def _reasons(flag: Bool, stores: int) -> list[str]:
    found = []
    if flag.all():
        found.append(
            "no random checks: what was missed is unknown, so recall, rate, lift and costs are too; "
            "set random_check_share"
        )
    if not flag.any():
        found.append("no flag was checked: precision is unknown")
    if 0 < stores < 10:
        found.append(f"checks of {stores} stores only: the intervals are rough")
    return found
