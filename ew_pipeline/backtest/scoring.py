"""One week scored by every policy, and what came of its pairs: for a backtest and for a published week."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.history import Grouping
from ew_pipeline.backtest.parts import Outcomes
from ew_pipeline.backtest.policies import Policy, Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.core.errors import UsageError
from ew_pipeline.intake.panel import Panel

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
VELOCITY_WEEKS = 10


@dataclass(frozen=True, eq=False)
class WeekScores:
    """By policy: one value per pair observed in the week, in the panel's order, and the seconds it took."""

    scores: Mapping[str, Score]
    seconds: Mapping[str, float]


def check_policies(policies: Sequence[Policy]) -> None:
    """Results are kept by name, so names must differ."""
    if not policies or len({policy.name for policy in policies}) != len(policies):
        raise UsageError("give at least one policy, and each name once.")


def score_week(view: PastView, policies: Sequence[Policy]) -> WeekScores:
    """Let every policy look at what was known at the end of the week."""
    scores, seconds = {}, {}
    for policy in policies:
        begun = time.perf_counter()
        scores[policy.name] = policy.score(view)
        seconds[policy.name] = time.perf_counter() - begun
    return WeekScores(scores, seconds)


def outcomes_of(
    panel: Panel, t: int, pairs: IntArray, anomaly: BoolArray, grouping: Grouping | None, number: int = 0
) -> Outcomes:
    """What came of ``pairs`` (rows of the panel) in week ``t``; ``number`` is its place among the weeks."""
    window = panel.units[pairs, max(0, t - VELOCITY_WEEKS) : t].astype(np.float64)
    seen = (~np.isnan(window)).sum(axis=1)
    velocity = np.where(seen > 0, np.nansum(window, axis=1) / np.maximum(seen, 1), panel.units[pairs, t])
    return Outcomes(
        anomaly,
        np.full(pairs.size, number),
        panel.store[pairs].astype(np.int64),
        velocity,
        None if grouping is None else grouping.of[pairs],
        () if grouping is None else grouping.names,
    )


def pooled(parts: Sequence[Outcomes]) -> Outcomes:
    """Several weeks one after the other."""
    segments = [part.segment for part in parts if part.segment is not None]
    return Outcomes(
        np.concatenate([part.anomaly for part in parts]),
        np.concatenate([part.week for part in parts]),
        np.concatenate([part.store for part in parts]),
        np.concatenate([part.velocity for part in parts]),
        np.concatenate(segments) if segments else None,
        parts[0].segment_names,
    )
