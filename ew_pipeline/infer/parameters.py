"""Parameters of the hidden state: those under which each week was best predicted from the weeks before it.

The search starts from the panel itself and never from what ran before, so that a week is a function of its
inputs. It looks at a sample of pairs, drawn by a hash of their ids: the order of rows and pairs that come
later change nothing.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, logit

from ew_pipeline.core.arrays import Bool, Float, Float32, Int64
from ew_pipeline.infer.follow import LOSSES, Followed, StateParameters, cells_of, follow, grid_of
from ew_pipeline.infer.kernels import Kept, Pairs, pass_pairs
from ew_pipeline.intake.panel import Panel

MOST_PAIRS = 40_000  # of the SKUs whose factors are estimated, all stores of each
SAMPLE = 3_000  # pairs whose predictions are maximised
MOST_WEEKS = 26
SETTLED_AFTER = 5  # weeks until predictions count: levels have to form
LEAST_ONSET, MOST_ONSET = 1e-6, 0.08
START = StateParameters(onset=0.005)
STRENGTHS = (10.0, 3.0)
CLEAR_NATS = 30.0  # that SKUs must gain by rates of their own
NONE_WRONG = 0.5  # prior probability that no record is wrong
ONSET_STEPS = tuple(2.0 ** (k / 2.0) for k in range(-8, 5))
STEP = 1e-3  # of the numerical gradient, in units of the search


class Axis(NamedTuple):
    """One direction of the search: bounds, and where nothing is known, in logits or logarithms; how far from
    there costs half a nat."""

    low: float
    high: float
    centre: float
    spread: float


AXES = (
    Axis(math.log(LEAST_ONSET), math.log(MOST_ONSET), math.log(0.005), 50.0),  # onset
    Axis(float(logit(0.2)), float(logit(0.96)), float(logit(0.75)), 1.0),  # stay
    Axis(float(logit(0.3)), float(logit(0.97)), float(logit(0.8)), 1.0),  # depth
    Axis(math.log(0.5), math.log(20.0), math.log(2.0), 0.7),  # concentration
    Axis(math.log(0.2), math.log(1e4), math.log(5.0), 5.0),  # size
    Axis(float(logit(1e-4)), float(logit(0.2)), float(logit(0.02)), 2.0),  # shock
    Axis(math.log(0.05), math.log(0.7), math.log(0.2), 1.0),  # wide over size
    Axis(float(logit(0.6)), float(logit(0.99)), float(logit(0.95)), 2.0),  # forgetting
    Axis(math.log(0.3), math.log(300.0), math.log(3.0), 2.0),  # start
)


@dataclass(frozen=True, eq=False)
class Fit:
    """Parameters and how they were found.

    Attributes
    ----------
    parameters : to price with; the onset is averaged over what the weeks leave open, "none" included.
    best : the maximum itself.
    none_wrong : P(no record is wrong), as far as the sample tells.
    nats : by strength, what rates of SKUs gain over one rate for all; empty when it was not asked.
    pairs, weeks : of the sample.
    """

    parameters: StateParameters
    best: StateParameters
    none_wrong: float
    nats: dict[float, float]
    pairs: int
    weeks: int


def fit_parameters(panel: Panel, on_hand: Float32 | None = None) -> Fit:
    """Fit on the last ``MOST_WEEKS`` weeks of the panel."""
    part, held = _part(panel, on_hand)
    count_from = min(SETTLED_AFTER, part.n_weeks // 2)
    if part.n_pairs == 0 or part.n_weeks < 2:
        return Fit(replace(START, onset=0.0), START, 1.0, {}, 0, part.n_weeks)
    now = START
    for most in (SAMPLE // 3, SAMPLE):  # factors come from a pass that itself needs parameters
        sample = sample_pairs(part, follow(part, now, on_hand=held), held, most)
        now = maximise(sample, now, count_from)
    averaged, none_wrong = _average_onset(sample, now, count_from)
    parameters = replace(now, onset=averaged)
    nats = _strengths(part, parameters, count_from, held) if none_wrong < 0.5 else {}
    best = max(nats, key=lambda each: nats[each], default=math.inf)
    if nats and nats[best] > CLEAR_NATS:
        parameters = replace(parameters, strength=best)
    return Fit(parameters, now, none_wrong, nats, sample.units.shape[0], part.n_weeks)


def sample_pairs(panel: Panel, followed: Followed, on_hand: Float32 | None, most: int = SAMPLE) -> Pairs:
    """The pairs with the least hash of their ids, and the factors of the pass."""
    begun = np.flatnonzero(followed.level_exposure > 0)
    order = np.argsort(_hashes(panel)[begun], kind="stable")
    return take_pairs(panel, followed, np.sort(begun[order[:most]]), on_hand)


def take_pairs(
    panel: Panel, followed: Followed, rows: Int64, on_hand: Float32 | None, onset: Float | None = None
) -> Pairs:
    """Some pairs as the pass of the kernels takes them, with factors of a pass over all."""
    weeks = followed.weeks
    seen, out = (np.empty((rows.size, weeks), dtype=np.bool_) for _ in range(2))
    for t in range(weeks):
        of_week = cells_of(panel, t, on_hand)
        seen[:, t], out[:, t] = of_week[0][rows], of_week[1][rows]
    factor = (
        followed.sku_factor.T[panel.sku[rows]].astype(np.float64) * followed.store_factor.T[panel.store[rows]]
    )
    factor *= np.cumsum(seen, axis=1) > 0  # a pair enters with its first sales
    return Pairs(
        np.where(seen, panel.units[rows, :weeks], 0.0).astype(np.float64),
        seen,
        out,
        factor,
        followed.start[rows].astype(np.float64),
        np.ones(rows.size) if onset is None else onset,
    )


def predictive(parameters: StateParameters, sample: Pairs, count_from: int) -> float:
    """The sum of log predictives of the sample's weeks."""
    return pass_pairs(sample, parameters.law(), grid_of(parameters), count_from, False, NOTHING_KEPT)


NOTHING_KEPT = Kept(np.empty((0, 0, 0)), np.empty((0, 0)), np.empty((0, 0, 0)), np.empty((0, 0, 0)))


def maximise(sample: Pairs, start: StateParameters, count_from: int) -> StateParameters:
    """A quasi-Newton climb with numerical gradients; deterministic, some 200 passes over the sample."""
    low, high, centre, spread = (np.array(each) for each in zip(*AXES, strict=True))

    def worth(place: Float) -> float:
        prior = 0.5 * float((((place - centre) / spread) ** 2).sum())
        return prior - predictive(_from_place(place), sample, count_from)

    def slope(place: Float) -> tuple[float, Float]:
        here = worth(place)
        gradient = np.empty(place.size)
        for k in range(place.size):
            step = STEP if place[k] + STEP <= high[k] else -STEP
            moved = place.copy()
            moved[k] += step
            gradient[k] = (worth(moved) - here) / step
        return here, gradient

    found = minimize(
        slope,
        np.clip(_place_of(start), low, high),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(low, high, strict=True)),
        options={"maxiter": 40, "ftol": 1e-6},
    )
    return _from_place(found.x)


def _from_place(place: Float) -> StateParameters:
    size = math.exp(place[4])
    return StateParameters(
        onset=math.exp(place[0]),
        stay=float(expit(place[1])),
        depth=float(expit(place[2])),
        concentration=math.exp(place[3]),
        size=size,
        shock=float(expit(place[5])),
        wide=size * math.exp(place[6]),
        forgetting=float(expit(place[7])),
        start=math.exp(place[8]),
    )


def _place_of(parameters: StateParameters) -> Float:
    one = parameters
    return np.array(
        [
            math.log(one.onset),
            logit(one.stay),
            logit(one.depth),
            math.log(one.concentration),
            math.log(one.size),
            logit(one.shock),
            math.log(one.wide / one.size),
            logit(one.forgetting),
            math.log(one.start),
        ]
    )


def _average_onset(sample: Pairs, best: StateParameters, count_from: int) -> tuple[float, float]:
    """(the posterior mean of the onset, P(none are wrong)), the other parameters as they are.

    A belief is nearly linear in the onset, so beliefs averaged over it are those of its mean.
    """
    rates = [best.onset * step for step in ONSET_STEPS]
    rates = [rate for rate in rates if rate < MOST_ONSET]
    nats = np.array([predictive(replace(best, onset=rate), sample, count_from) for rate in (0.0, *rates)])
    prior = np.array([NONE_WRONG, *[(1.0 - NONE_WRONG) / len(rates)] * len(rates)])
    weight = prior * np.exp(nats - nats.max())
    weight /= weight.sum()
    return float(weight[1:] @ np.array(rates)), float(weight[0])


def _strengths(
    panel: Panel, parameters: StateParameters, count_from: int, on_hand: Float32 | None
) -> dict[float, float]:
    """By strength of the chain's rate, the gain of SKUs with rates of their own; ends where it falls."""
    base = follow(panel, parameters, on_hand=on_hand).predictive[count_from:].sum()
    gains: dict[float, float] = {}
    for strength in STRENGTHS:
        tried = follow(panel, replace(parameters, strength=strength), on_hand=on_hand)
        gains[strength] = float(tried.predictive[count_from:].sum() - base)
        if gains[strength] < CLEAR_NATS / 2.0:
            break
    return gains


def _part(panel: Panel, on_hand: Float32 | None) -> tuple[Panel, Float32 | None]:
    """The last weeks, of as many SKUs as ``MOST_PAIRS`` allows, by the hash of their ids."""
    recent, rows = panel.recent(MOST_WEEKS)
    held = None if on_hand is None else on_hand[rows, max(0, panel.n_weeks - MOST_WEEKS) : panel.n_weeks]
    if recent.n_pairs <= MOST_PAIRS:
        return recent, held
    order = np.argsort(hash_ids(recent.sku_ids), kind="stable")
    total = np.cumsum(np.bincount(recent.sku, minlength=order.size)[order])
    kept: Bool = np.zeros(order.size, dtype=np.bool_)
    kept[order[: max(1, int(np.searchsorted(total, MOST_PAIRS, side="right")))]] = True
    pairs = kept[recent.sku]
    return recent.take(pairs), None if held is None else held[pairs]


def _hashes(panel: Panel) -> npt.NDArray[np.uint64]:
    """One number per pair that depends on its ids alone."""
    mixed = hash_ids(panel.store_ids)[panel.store] ^ (hash_ids(panel.sku_ids)[panel.sku] << np.uint64(1))
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed ^ (mixed >> np.uint64(29)))


def hash_ids(ids: npt.NDArray[np.str_]) -> npt.NDArray[np.uint64]:
    """A number for each id, the same on every machine."""
    digests = (hashlib.blake2b(str(each).encode(), digest_size=8).digest() for each in ids)
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


assert len(LOSSES) > 1  # a law of losses has two parameters
