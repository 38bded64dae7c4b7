"""A policy's measures on part of the pairs: by what they sell, by segment, at the top of each store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.metrics import auc
from ew_pipeline.backtest.priced import UniformCosts, cost_ratio

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]

BANDS = (0.0, 1.0, 5.0, 20.0, np.inf)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The labelled pairs of all evaluated weeks, one after the other.

    Attributes
    ----------
    anomaly : labels.
    week, store : codes.
    velocity : units a week the pair used to sell, known beforehand.
    segment : codes into ``segment_names``; None when the chain is not split.
    """

    anomaly: BoolArray
    week: IntArray
    store: IntArray
    velocity: FloatArray
    segment: IntArray | None = None
    segment_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """The measures on some of the pairs."""

    pairs: int
    anomaly_rate: float
    cost_ratio: float
    auc: float


@dataclass(frozen=True)
class Band(Part):
    """Pairs that used to sell from ``low`` to below ``high`` units a week."""

    low: float
    high: float

    @property
    def words(self) -> str:
        return f"{self.low:g} to {self.high:g}" if self.high < float("inf") else f"{self.low:g} or more"


@dataclass(frozen=True)
class Segment(Part):
    """Pairs of one value of the column that splits the chain."""

    name: str


def by_band(
    probability: FloatArray, order: FloatArray, outcomes: Outcomes, costs: UniformCosts
) -> tuple[Band, ...]:
    """Slow sellers first: their zeros flatter every method, so bands are shown."""
    found = []
    for low, high in pairwise(BANDS):
        inside = (outcomes.velocity >= low) & (outcomes.velocity < high)
        if inside.any():
            found.append(Band(*_measured(probability, order, outcomes, inside, costs), low, high))
    return tuple(found)


def by_segment(
    probability: FloatArray, order: FloatArray, outcomes: Outcomes, costs: UniformCosts
) -> tuple[Segment, ...]:
    """Every segment that has labelled pairs, in order of its name; empty when the chain is not split."""
    if outcomes.segment is None:
        return ()
    found = []
    for code, name in sorted(enumerate(outcomes.segment_names), key=lambda one: one[1]):
        inside = outcomes.segment == code
        if inside.any():
            found.append(Segment(*_measured(probability, order, outcomes, inside, costs), name))
    return tuple(found)


def lift_in_top(order: FloatArray, outcomes: Outcomes, tops: Sequence[int]) -> Mapping[int, float]:
    """Share of anomalies among the first k of each store in each week, over the share among all pairs."""
    group = outcomes.week * (int(outcomes.store.max()) + 1) + outcomes.store
    # Ties by a hash of the position: the order in the table must not decide.
    tie = (np.arange(order.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    by = np.lexsort((tie, -order, group))
    starts = np.flatnonzero(np.r_[True, np.diff(group[by]) != 0])
    place = np.arange(order.size) - np.repeat(starts, np.diff(np.r_[starts, order.size]))
    found, rate = outcomes.anomaly[by], outcomes.anomaly.mean()
    return {top: float(found[place < top].mean() / rate) if rate > 0 else float("nan") for top in tops}


def _measured(
    probability: FloatArray, order: FloatArray, outcomes: Outcomes, inside: BoolArray, costs: UniformCosts
) -> tuple[int, float, float, float]:
    y = outcomes.anomaly[inside]
    return (
        int(inside.sum()),
        float(y.mean()),
        cost_ratio(probability[inside], y, costs),
        auc(order[inside], y),
    )
