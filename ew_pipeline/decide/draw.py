"""A random share of the pairs that were not flagged, to be checked all the same.

Checks of flags alone say how often a flag is right, never what was missed. A small random sample of the rest,
drawn by a seed and not by anybody's choice, gives recall, p_A and calibration without that bias.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ew_pipeline.core.arrays import Bool
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import Week

DRAWN = "random_check"  # the column of scores that marks the drawn pairs


def random_slice(
    scores: pd.DataFrame, week: Week, share: float, seed: int, part: tuple[int, ...] = ()
) -> Bool:
    """Which rows of ``scores`` are drawn: ``share`` of the pairs that are not flagged, each equally likely.

    The same week, seed and scores draw the same pairs. A share above zero draws at least one. ``part``: which
    of a week's scores these are, where they are not all.
    """
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"the random share is {share}; it must lie in [0, 1].")
    drawn = np.zeros(len(scores), dtype=bool)
    unflagged = np.flatnonzero(~scores["flagged"].to_numpy(dtype=bool))
    size = min(unflagged.size, max(1, round(share * unflagged.size))) if share > 0 else 0
    generator = np.random.default_rng([seed, week.index, *part])
    drawn[generator.choice(unflagged, size, replace=False)] = True
    return drawn
