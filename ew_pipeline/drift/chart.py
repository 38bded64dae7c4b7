"""A self-starting control chart: every week is judged by the weeks before it.

The past weeks give the level and how much it moves from week to week beyond the error of each estimate
(random effects), with the uncertainty of both: the score of a stable week is standard normal, however short
the past. So the limit that ``control_limit`` calculates holds from the first judged week on.

A chart is an exponentially weighted mean of these scores, each clipped: z <- (1 - WEIGHT) z + WEIGHT
clip(score). z is a Markov process, so the mean time until |z| > limit solves a linear equation (Brook and
Evans): with Q the transitions between the cells of [-limit, limit], it is the middle element of (I - Q)^-1 1.
A second week beyond half the limit is needed for an alarm, which makes false ones rarer than calculated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError

WEIGHT = 0.4
CLIP = 3.5
CELLS = 161  # odd, so that one is centred at 0
LONGEST = 1e7  # weeks; beyond, the limit hardly moves and the equation is badly conditioned
LEARNING_WEEKS = 8  # before the first judgement, and again after an alarm
BASELINE_WEEKS = 52  # older weeks no longer count
SUSPECT = 0.5  # of the limit: from here on weeks wait before they may become part of the baseline
AS_BEFORE = 2.0  # score against the baseline before an alarm; two such weeks in a row: it has passed
SCORE_CAP = 8.0
State = Literal["missing", "learning", "settling", "stable", "suspect", "alarm"]


def weeks_between_alarms(limit: float) -> float:
    """Mean number of weeks until the chart of one stable series passes ``limit`` on either side."""
    edges = np.linspace(-limit, limit, CELLS + 1)
    centres = (edges[1:] + edges[:-1]) / 2.0
    below = _clipped_cdf((edges[None, :] - (1.0 - WEIGHT) * centres[:, None]) / WEIGHT)
    stays = np.diff(below, axis=1)
    times = np.linalg.solve(np.eye(CELLS) - stays, np.ones(CELLS))
    return float(times[CELLS // 2])


@cache
def control_limit(weeks: float) -> float:
    """The limit at which a stable series alarms once in ``weeks`` on average."""
    if not weeks >= 2.0:
        raise UsageError(f"weeks between false alarms is {weeks:g}.", "ask for 2 or more; 52 is one a year.")
    wanted = min(weeks, LONGEST)
    return float(brentq(lambda limit: np.log(weeks_between_alarms(limit) / wanted), 0.05, CLIP - 0.05))


def _clipped_cdf(x: Float) -> Float:
    """P(clip(score) <= x)."""
    return np.where(x >= CLIP, 1.0, np.where(x < -CLIP, 0.0, ndtr(x)))


@dataclass(frozen=True)
class ChartPoint:
    """A week on the chart. ``state``: learning what is usual; settling at a new level after an alarm; stable;
    suspect (half way to an alarm); alarm; or missing.

    ``score``: the change against the baseline in standard deviations, made normal; ``statistic``: its
    weighted mean, which is held against ``limit``; ``centre`` and ``spread``: of the baseline, on the
    chart's scale; ``since``: for an alarm, the place of the first week that the change is seen in.
    """

    state: State
    score: float | None = None
    statistic: float | None = None
    limit: float | None = None
    centre: float | None = None
    spread: float | None = None
    since: int | None = None


@dataclass(frozen=True)
class Baseline:
    """What the weeks so far say: level, variance from week to week, variance of the level; from n weeks."""

    centre: float
    between: float
    of_centre: float
    weeks: int

    def score(self, value: float, error: float) -> tuple[float, float]:
        """(score, predictive standard deviation) of a new week with this standard error."""
        spread = math.sqrt(error**2 + self.between + self.of_centre)
        distance = (value - self.centre) / spread
        tail = float(ndtri(stdtr(self.weeks - 1, -abs(distance))))
        return math.copysign(min(-tail, SCORE_CAP), distance), spread


def baseline_of(weeks: Sequence[tuple[float, float]], floor: float) -> Baseline:
    """Random effects over past weeks, each (value, standard error); ``floor``: the least standard deviation
    from week to week."""
    # Plain floats: a baseline has 52 weeks at most, for which arrays are slower.
    n = len(weeks)
    plain = math.fsum(value for value, _ in weeks) / n
    observed = math.fsum((value - plain) ** 2 for value, _ in weeks) / (n - 1)
    between = max(floor**2, observed - math.fsum(error**2 for _, error in weeks) / n)
    weights = [1.0 / (error**2 + between) for _, error in weeks]
    total = math.fsum(weights)
    centre = math.fsum(w * value for w, (value, _) in zip(weights, weeks, strict=True)) / total
    return Baseline(centre, between, 1.0 / total, n)


@dataclass
class _Memory:
    """What the chart carries from week to week."""

    baseline: list[tuple[float, float]] = field(default_factory=list)  # (value, error), wild ones pulled in
    suspects: list[tuple[int, float, float]] = field(default_factory=list)
    statistic: float = 0.0
    before: list[tuple[float, float]] | None = None  # the baseline before the last alarm
    returned: int = 0


def run_chart(
    values: Sequence[float], errors: Sequence[float], *, floor: float, limit: float
) -> tuple[ChartPoint, ...]:
    """Chart a series. A week whose value or error is not finite is passed over."""
    memory = _Memory()
    points = []
    for place, (value, error) in enumerate(zip(values, errors, strict=True)):
        if not (math.isfinite(value) and math.isfinite(error)):
            points.append(ChartPoint("missing"))
        elif len(memory.baseline) < LEARNING_WEEKS:
            points.append(_learn(memory, value, error, floor, limit))
        else:
            points.append(_judge(memory, place, value, error, floor, limit))
    return tuple(points)


def _learn(memory: _Memory, value: float, error: float, floor: float, limit: float) -> ChartPoint:
    """Take a week into a young baseline; go back to the old one when the series has."""
    memory.baseline.append((value, error))
    if memory.before is None:
        return ChartPoint("learning")
    old = baseline_of(memory.before, floor)
    score, spread = old.score(value, error)
    memory.returned = memory.returned + 1 if abs(score) <= AS_BEFORE else 0
    if memory.returned == 2:
        memory.baseline = [*memory.before, *memory.baseline[-2:]]
        memory.before, memory.returned = None, 0
        return ChartPoint("stable", score, 0.0, limit, old.centre, spread)
    if len(memory.baseline) == LEARNING_WEEKS:
        memory.before = None
    return ChartPoint("settling", centre=old.centre, spread=spread)


def _judge(memory: _Memory, place: int, value: float, error: float, floor: float, limit: float) -> ChartPoint:
    base = baseline_of(memory.baseline, floor)
    score, spread = base.score(value, error)
    memory.statistic = (1.0 - WEIGHT) * memory.statistic + WEIGHT * _clipped(score, CLIP)
    statistic = memory.statistic
    if abs(statistic) > limit and memory.suspects:  # two weeks at least: one alone is no drift
        since = memory.suspects[0][0]
        memory.before = memory.baseline
        memory.baseline = [*((v, e) for _, v, e in memory.suspects), (value, error)]
        memory.suspects, memory.statistic, memory.returned = [], 0.0, 0
        return ChartPoint("alarm", score, statistic, limit, base.centre, spread, since)
    if abs(statistic) > SUSPECT * limit:
        memory.suspects.append((place, value, error))
        return ChartPoint("suspect", score, statistic, limit, base.centre, spread)
    cleared = [*((v, e) for _, v, e in memory.suspects), (value, error)]
    memory.baseline = [*memory.baseline, *(_pulled(base, v, e) for v, e in cleared)][-BASELINE_WEEKS:]
    memory.suspects = []
    return ChartPoint("stable", score, statistic, limit, base.centre, spread)


def _pulled(base: Baseline, value: float, error: float) -> tuple[float, float]:
    """The week with its value brought to the clip: a wild one may widen the baseline, not spoil it."""
    _, spread = base.score(value, error)
    return base.centre + _clipped(value - base.centre, CLIP * spread), error


def _clipped(value: float, most: float) -> float:
    return min(max(value, -most), most)
