"""The large fit (``fit.py``) on a week that is held in one place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float, Real
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.large._als_kernels import Variance
from ew_pipeline.method.large.binned import Bins, Grid, bin_counts
from ew_pipeline.method.large.factor_state import FactorState
from ew_pipeline.method.large.fit import Effort, Fitted, fit_rounds, has_short_lines
from ew_pipeline.method.large.scores import healthy_probabilities
from ew_pipeline.method.variational.theta import Parameters
from ew_pipeline.method.widening import Widening


@dataclass(frozen=True, eq=False)
class LargeFit(Fitted):
    """Of every observed entry, in row-major order.

    Attributes
    ----------
    means : demand as fitted. cavity : as predicted without the entry itself, calibrated; cv2 : its squared
        coefficient of variation.
    healthy : f.
    """

    means: Widening
    cavity: Widening
    cv2: Widening
    healthy: Widening


class WholeWeek:
    """Implements ``large.Passes``. ``right``: factors of the columns to start from."""

    def __init__(self, both: BothWays, right: Real, threads: int) -> None:
        self.threads, self.mean = threads, both.mean
        left = np.zeros((both.shape[0], right.shape[1]), dtype=right.dtype)
        self._both, self._state = both, FactorState.start(both, left, right)
        # Once for all rounds: getting memory from the system takes longer than most passes over it.
        n = both.n_observed
        self.space = tuple(Widening.of(n) for _ in range(4))
        self.means, self.cavity, self.cv2, self.healthy = (each.single for each in self.space)
        self._turned = np.empty(n, dtype=np.float32)
        self._uncalibrated = 0.0

    @property
    def left(self) -> Real:
        return self._state.left

    @property
    def right(self) -> Real:
        return self._state.right

    @property
    def sweeps(self) -> int:
        return self._state.sweeps

    def first_sweep(self, variance: Variance) -> None:
        self._state.first_sweep(self._both, variance, self.threads)

    def sweep(self, variance: Variance) -> None:
        self._state.sweep(self._both, variance, self.threads)

    def predict(self, variance: Variance) -> None:
        self._state.predict(self._both, variance, self.threads, self.means, self.cavity, self.cv2)

    def binned(self) -> Bins:
        grid = Grid.over(self.cavity, self.cv2)
        return bin_counts(self._both.by_row.counts, self.cavity, self.cv2, grid, self.threads)

    def rescore(self, grid: Grid, scale: Float, family: ExposureFamily, p: Parameters) -> None:
        self._uncalibrated = float(self.cavity.sum(dtype=np.float64))
        grid.scaled(scale, self.cavity, self.cv2, self.threads, self.cavity)
        counts = self._both.by_row.counts
        healthy_probabilities(counts, self.cavity, self.cv2, family, p, self.threads, self.healthy)

    def weigh(self) -> None:
        self._both = self._both.with_healthy(self.healthy, self.threads, self._turned)

    def lift(self) -> float:
        return float(self.cavity.sum(dtype=np.float64)) / self._uncalibrated


def fit_large(
    both: BothWays,
    family: ExposureFamily,
    right: Real,
    *,
    noise: str,
    effort: Effort,
    threads: int,
) -> LargeFit:
    """The fit from factors of the columns, as a part of the rows gave them (``rank.sketch``)."""
    week = WholeWeek(both, right, threads)
    short = has_short_lines(both.shape, both.n_observed)
    fitted = fit_rounds(week, family, noise=noise, effort=effort, short_lines=short)
    week.means *= np.float32(fitted.lift)
    means, cavity, cv2, healthy = week.space
    return LargeFit(**vars(fitted), means=means, cavity=cavity, cv2=cv2, healthy=healthy)
