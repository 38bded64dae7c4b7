"""The large fit (``fit.py``) on a week that is held in blocks of rows.

The passes over the entries are made block by block, and their sums added up. The factors, the table of
``binned.py`` and theta are here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Float, Int64, Real, available_threads
from ew_pipeline.core.errors import DataError
from ew_pipeline.method.entry_blocks import in_lines
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.large._als_kernels import Variance
from ew_pipeline.method.large._column_kernels import solve_columns
from ew_pipeline.method.large.als import balanced
from ew_pipeline.method.large.binned import Bins, Grid, sample_stride
from ew_pipeline.method.large.factor_state import FLOOR, learnt_prior, ridges
from ew_pipeline.method.large.fit import Effort, Fitted, fit_rounds, has_short_lines
from ew_pipeline.method.large.row_blocks import (
    Blocks,
    HalfSweep,
    Parts,
    Totals,
    column_totals,
    lift_of,
    lifted,
    predict_block,
    rescored,
    spread_of,
    sweep_block,
    table_of,
    weights_of,
)
from ew_pipeline.method.variational.theta import Parameters


@dataclass(frozen=True, eq=False)
class BlockFit(Fitted):
    """Compare ``LargeFit``.

    Attributes
    ----------
    predictions : of each block (``Prediction``), where the block is.
    column_entries : how many entries each column has.
    """

    predictions: Parts
    column_entries: Int64


class BlockSweeps:
    """Implements ``large.Passes``: factors, priors and inverse informations here, entries wherever their
    blocks are. ``right``: factors of the columns to start from; the rows have none yet."""

    def __init__(self, blocks: Blocks, totals: Totals, right: Real, threads: int) -> None:
        self.blocks, self.threads = blocks, threads
        self.mean = float(totals.sold.sum()) / float(totals.offered.sum())
        if self.mean == 0.0:
            raise DataError("nothing was sold in the whole week.", "check the units of the sales.")
        rank = right.shape[1]
        self.left, self.right = np.zeros((blocks.shape[0], rank), dtype=right.dtype), right
        self.sweeps = 0
        self._none: Parts = [None] * (len(blocks.row_bounds) - 1)
        self.predictions: Parts = self._none
        self._weights: Parts = self._none
        self._priors = ridges(rank, self.mean)
        size = rank * (rank + 1) // 2
        self._inverses = tuple(np.empty((n, size), dtype=right.dtype) for n in blocks.shape)

    def first_sweep(self, variance: Variance) -> None:
        self._sweep(variance)
        self.left, self.right = balanced(self.left, self.right)

    def sweep(self, variance: Variance) -> None:
        self._sweep(variance)
        self._priors = (
            learnt_prior(self.left, self._inverses[0]),
            learnt_prior(self.right, self._inverses[1]),
        )
        self.sweeps += 1

    def _sweep(self, variance: Variance) -> None:
        found: HalfSweep = self.blocks.total(
            sweep_block,
            [self._weights, self._own(self.left)],
            self.right,
            self._priors[0],
            FLOOR * self.mean,
            variance,
            self.threads,
        )
        self.left = np.concatenate([found.left[first][0] for first in sorted(found.left)])
        left_inverses = np.concatenate([found.left[first][1] for first in sorted(found.left)])
        right, right_inverses = np.empty_like(self.right), np.empty_like(self._inverses[1])
        prior = self._priors[1]

        def work(first: int, end: int) -> None:
            solve_columns(
                first, end, found.sums, prior.precision, prior.precision @ prior.mean, right, right_inverses
            )

        in_lines(work, len(right), available_threads())
        self.right, self._inverses = right, (left_inverses, right_inverses)

    def predict(self, variance: Variance) -> None:
        own = list(zip(self._own(self.left), self._own(self._inverses[0]), strict=True))
        self.predictions = self.blocks.keep(
            predict_block,
            [self._weights, own],
            (self.right, self._inverses[1]),
            self.mean,
            variance,
            self.threads,
        )

    def binned(self) -> Bins:
        blocks, predicted = self.blocks, self.predictions
        spread = blocks.total(spread_of, [predicted], sample_stride(blocks.n_observed))
        sample = np.concatenate([spread.cv2[first] for first in sorted(spread.cv2)])
        grid = Grid.between(spread.low, spread.high, sample, blocks.n_observed)
        return blocks.total(table_of, [predicted], grid, spread.most, self.threads).bins(grid)

    def rescore(self, grid: Grid, scale: Float, family: ExposureFamily, p: Parameters) -> None:
        self.predictions = self.blocks.keep(
            rescored, [self.predictions], grid, scale, family, p, self.threads
        )

    def weigh(self) -> None:
        self._weights = self.blocks.keep(weights_of, [self.predictions], self.threads)
        self.predictions = self._none  # they are made anew before anybody asks

    def lift(self) -> float:
        return self.blocks.total(lift_of, [self.predictions]).ratio

    def _own(self, values: Real) -> list[Real]:
        """The part of each block."""
        return np.split(values, self.blocks.row_bounds[1:-1])


def fit_large_blocks(
    blocks: Blocks, family: ExposureFamily, right: Real, *, noise: str, effort: Effort, threads: int
) -> BlockFit:
    """``fit_large`` over blocks; ``threads`` of each block."""
    totals: Totals = blocks.total(column_totals, [])
    week = BlockSweeps(blocks, totals, right, threads)
    short = has_short_lines(blocks.shape, blocks.n_observed)
    fitted = fit_rounds(week, family, noise=noise, effort=effort, short_lines=short)
    return BlockFit(
        **vars(fitted),
        predictions=blocks.keep(lifted, [week.predictions], fitted.lift),
        column_entries=totals.entries,
    )
