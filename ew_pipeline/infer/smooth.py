"""Looking back from the newest week: in which weeks a record was wrong, and since when it has been."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int64
from ew_pipeline.infer.follow import LOSSES, Followed, StateParameters, grid_of, sku_rates
from ew_pipeline.infer.kernels import Kept, pass_pairs
from ew_pipeline.infer.parameters import take_pairs
from ew_pipeline.intake.panel import Panel


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Of some pairs, by all weeks of the pass; pairs x weeks.

    Attributes
    ----------
    pairs : rows of the panel.
    wrong : P(the record was wrong in the week).
    since : P(it went wrong in the week and has been wrong until the newest); the first week holds those
        that were wrong already. Its sum is P(wrong in the newest week).
    """

    pairs: Int64
    wrong: Float
    since: Float

    @property
    def week(self) -> Int64:
        """The column since which a record, if it is wrong now, has been so with a chance of one half."""
        known = np.cumsum(self.since, axis=1)
        return np.asarray((known >= 0.5 * known[:, -1:]).argmax(axis=1))


def smooth(
    panel: Panel,
    followed: Followed,
    parameters: StateParameters,
    pairs: Int64,
    on_hand: Float32 | None = None,
) -> Smoothed:
    """The pass that ``followed`` came from, run backwards for some pairs."""
    law = parameters.law()
    rows = np.asarray(pairs, dtype=np.int64)
    onset = np.ones(panel.sku_ids.size) if followed.weeks < 2 else sku_rates(followed, parameters)
    taken = take_pairs(panel, followed, rows, on_hand, onset[panel.sku[rows]])
    count, weeks, losses = rows.size, followed.weeks, len(LOSSES)
    kept = Kept(
        np.zeros((count, weeks, losses)),
        np.ones((count, weeks)),
        np.ones((count, weeks, losses)),
        np.zeros((count, weeks, losses)),
    )
    pass_pairs(taken, law, grid_of(parameters), 0, True, kept)
    rate = np.where(taken.seen & (taken.factor > 0), law.onset * taken.onset[:, None], 0.0)
    weights = parameters.weights
    wrong, since = np.zeros((count, weeks)), np.zeros((count, weeks))
    # What the later weeks say of a state, over what they say of all: healthy, and wrong by loss.
    healthy_after, wrong_after = np.ones(count), np.ones((count, losses))
    unbroken = np.ones((count, losses))  # and the record stays wrong until the newest week
    for t in range(weeks - 1, -1, -1):
        now = kept.wrong[:, t]
        wrong[:, t] = (now * wrong_after).sum(axis=1)
        before = kept.wrong[:, t - 1] if t > 0 else np.zeros((count, losses))
        free = 1.0 - law.stay * before.sum(axis=1)
        begins = kept.begins[:, t] * (rate if t > 0 else np.full_like(rate, law.first))[:, t, None] * weights
        since[:, t] = (free[:, None] * begins * unbroken).sum(axis=1)
        if t == 0:
            break
        fresh = (1.0 - rate[:, t]) * kept.healthy[:, t] * healthy_after + (begins * wrong_after).sum(axis=1)
        stays = law.stay * kept.stays[:, t]
        wrong_after = stays * wrong_after + (1.0 - law.stay) * fresh[:, None]
        unbroken = stays * unbroken
        healthy_after = fresh
    return Smoothed(rows, wrong, since)
