"""The control limit for a wanted number of weeks between false alarms, by calculation.

The chart is an exponentially weighted mean of scores that are standard normal while nothing changes, each
clipped at +-CLIP: z <- (1 - WEIGHT) z + WEIGHT clip(score). As z is a Markov process, the mean time until
|z| > limit solves a linear equation (Brook and Evans): with Q the transitions between the cells of
[-limit, limit], it is the middle element of (I - Q)^-1 1.

The chart asks for a second week beyond half the limit before it alarms: a drift is what lasts. That makes
false alarms rarer than calculated, and a large change is seen in its second week.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError

WEIGHT = 0.4
CLIP = 3.5
CELLS = 161  # odd, so that one is centred at 0
LONGEST = 1e7  # weeks; beyond, the limit hardly moves and the equation is badly conditioned


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
