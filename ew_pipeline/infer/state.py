"""Parameters of the hidden state: how often records go wrong, how long they stay so, how much is lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betainc

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.infer.kernels import Grid, Law

LOSSES = (0.45, 0.6, 0.75, 0.85, 0.93, 0.98, 0.998)  # deep ones only: level changes look like small losses
SHARES = (1.0, 0.6, 0.25)  # of the first wrong week; the whole week first, as ``kernels.Grid`` has it
MOST_FIRST = 0.5


@dataclass(frozen=True)
class StateParameters:
    """One set for the chain.

    Attributes
    ----------
    onset : h, the probability that a right record goes wrong within a week.
    stay : r, the probability that a wrong one is still wrong a week later.
    depth, concentration : of the Beta law of the share of sales lost, between the least loss and all.
    size : s0 of the negative binomial noise.
    shock, wide : e, the share of weeks with a shock of their own, and the size of the noise in them.
    forgetting : share of a level's weight that a week leaves.
    start : units that the first guess of a new pair's level is worth.
    strength : K, expected onsets that the chain's rate is worth against a SKU's own; infinite: all alike.
    """

    onset: float
    stay: float = 0.75
    depth: float = 0.8
    concentration: float = 2.0
    size: float = 5.0
    shock: float = 0.02
    wide: float = 1.0
    forgetting: float = 0.95
    start: float = 3.0
    strength: float = float("inf")

    def __post_init__(self) -> None:
        shares = (self.onset, self.stay, self.depth, self.shock, self.forgetting)
        if not all(0.0 <= share < 1.0 for share in shares):
            raise UsageError(f"a parameter of the state is no share: {self}.")
        if not min(self.size, self.wide, self.concentration, self.start, self.strength) > 0.0:
            raise UsageError(f"a size or strength of the state is not above 0: {self}.")

    @property
    def share_wrong(self) -> float:
        """p_A, the share of records that are wrong once onsets and repairs are in balance."""
        return self.onset / (self.onset + 1.0 - self.stay)

    @property
    def alpha(self) -> float:
        """The mean share of its sales that a wrong record leaves."""
        return float(1.0 - self.weights @ np.array(LOSSES))

    @property
    def weights(self) -> Float:
        """Probabilities of the losses."""
        losses = np.array(LOSSES)
        middle = (losses[1:] + losses[:-1]) / 2.0
        ends = np.concatenate([[0.0], (middle - LOSSES[0]) / (1.0 - LOSSES[0]), [1.0]])
        a = max(self.depth, 1e-3) * self.concentration
        return np.diff(betainc(a, (1.0 - self.depth) * self.concentration, ends))

    def law(self) -> Law:
        """The scalars as kernels take them."""
        return Law(
            onset=self.onset,
            stay=self.stay,
            first=min(self.onset / (1.0 - self.stay), MOST_FIRST),
            inverse_size=1.0 / self.size,
            inverse_wide=1.0 / self.wide,
            shock=self.shock,
            forgetting=self.forgetting,
            size=self.size,
            start=self.start,
        )


def make_grid(
    losses: tuple[float, ...], weights: Float, threshold: float = 0.0, shares: tuple[float, ...] = SHARES
) -> Grid:
    """The losses by the share of the week that they take; a deep one is ``threshold`` or more of the week."""
    lost = np.outer(shares, losses).ravel()
    kept = 1.0 - lost
    deep = (lost >= threshold).astype(np.float64)
    return Grid(np.ascontiguousarray(weights, dtype=np.float64), kept, np.log(kept), deep)


def grid_of(parameters: StateParameters, threshold: float = 0.0) -> Grid:
    """The grid of a chain's parameters."""
    return make_grid(LOSSES, parameters.weights, threshold)
