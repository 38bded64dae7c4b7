"""The floor under a policy on a simulated chain: the same filter, told what pairs would sell if healthy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.core.arrays import Float
from ew_pipeline.infer.follow import cells_of
from ew_pipeline.infer.kernels import Kept, Pairs, pass_pairs
from ew_pipeline.infer.parameters import START, maximise
from ew_pipeline.infer.state import LOSSES, StateParameters, grid_of
from ew_pipeline.intake.panel import Panel

KNOWN = 1e12  # units that a level rests on which no week moves
LEAST_MEAN = 1e-3
SAMPLE = 3_000


@dataclass(frozen=True, eq=False)
class Told:
    """P(wrong) over the weeks, given the expected sales and parameters fitted to all weeks with them.

    ``panel`` is the whole chain, later weeks included; ``expected`` its expected sales, pairs x weeks.
    """

    panel: Panel
    expected: Float
    name: str = "told"

    @cached_property
    def parameters(self) -> StateParameters:
        """Fitted once, on all weeks: an oracle may."""
        step = max(1, self.panel.n_pairs // SAMPLE)
        pairs = told_pairs(self.panel, self.expected, np.arange(0, self.panel.n_pairs, step))
        return maximise(pairs, replace(START, start=KNOWN, forgetting=0.99), 0, told=True)

    def score(self, view: PastView) -> Score:
        """Pairs on promotion have the belief of the weeks before."""
        pairs = told_pairs(view.panel, self.expected[:, : view.t + 1], view.pairs)
        count, weeks = pairs.units.shape
        losses = len(LOSSES)
        kept = Kept(
            np.zeros((count, weeks, losses)),
            np.empty((count, weeks)),
            np.empty((count, weeks, losses)),
            np.empty((count, weeks, losses)),
        )
        pass_pairs(pairs, self.parameters.law(), grid_of(self.parameters), 0, True, kept)
        return Score(np.clip(kept.wrong[:, -1].sum(axis=1), 0.0, 1.0))


def told_pairs(panel: Panel, expected: Float, rows: np.typing.NDArray[np.int64]) -> Pairs:
    """Some pairs for a pass whose levels are known: all of the expected sales are in the factor."""
    seen = np.stack([cells_of(panel, t)[0][rows] for t in range(panel.n_weeks)], axis=1)
    return Pairs(
        np.where(seen, panel.units[rows], 0.0).astype(np.float64),
        seen,
        np.zeros(seen.shape, dtype=np.bool_),
        np.where(np.cumsum(seen, axis=1) > 0, np.maximum(expected[rows], LEAST_MEAN), 0.0),
        np.ones(rows.size),
        np.ones(rows.size),
    )
