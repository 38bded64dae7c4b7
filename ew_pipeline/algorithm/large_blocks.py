"""The large fit (``large.py``) on a week that is held in blocks of rows.

The same steps in the same order; only the passes over the entries are made block by block, and their sums
added up. The factors, the table of ``binned.py`` and theta are here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ew_pipeline.algorithm._als_kernels import Prior, Variance
from ew_pipeline.algorithm._blocks import available_threads, in_lines
from ew_pipeline.algorithm._column_kernels import solve_columns
from ew_pipeline.algorithm.als import balanced, guess_from
from ew_pipeline.algorithm.binned import Bins, Grid, sample_stride
from ew_pipeline.algorithm.binned_theta import BinnedFit, calibration, fit_binned
from ew_pipeline.algorithm.cavity_theta import Parameters
from ew_pipeline.algorithm.families import ExposureFamily
from ew_pipeline.algorithm.large import (
    FLOOR,
    RIDGE,
    Effort,
    fit_noise,
    learnt_prior,
    settled,
    variance_of,
)
from ew_pipeline.algorithm.row_blocks import (
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
)
from ew_pipeline.algorithm.types import Float, Int64, Real
from ew_pipeline.errors import DataError


@dataclass(frozen=True, eq=False)
class BlockFit:
    """What ``fit_large_blocks`` ends with; compare ``LargeFit``.

    Attributes
    ----------
    left, right : U and V.
    predictions : of each block (``Prediction``), where the block is.
    column_entries : how many entries each column has.
    """

    left: Real
    right: Real
    predictions: Parts
    column_entries: Int64
    bins: Bins
    ratio: Float
    theta: BinnedFit
    null_gain: float
    rounds: int
    sweeps: int
    converged: bool


class BlockSweeps:
    """Factors, priors and inverse informations here; sweeps over blocks wherever they are."""

    def __init__(
        self,
        blocks: Blocks,
        totals: Totals,
        rank: int,
        rng: np.random.Generator,
        dtype: type[np.floating[Any]],
    ) -> None:
        self.blocks = blocks
        self.mean = float(totals.sold.sum()) / float(totals.offered.sum())
        if self.mean == 0.0:
            raise DataError("nothing was sold in the whole week.", "check the units of the sales.")
        U, V = guess_from(totals.sold, totals.offered, self.mean, blocks.shape[0], rank, rng)
        self.left, self.right = U.astype(dtype), V.astype(dtype)
        self.priors: tuple[Prior, Prior] = (Prior.ridge(rank, RIDGE * rank / self.mean),) * 2
        size = rank * (rank + 1) // 2
        self.inverses = tuple(np.empty((n, size), dtype=dtype) for n in blocks.shape)
        self.sweeps = 0

    def sweep(self, healthy: Parts, variance: Variance, threads: int) -> None:
        """All rows given the columns, then all columns given the rows."""
        found: HalfSweep = self.blocks.total(
            sweep_block,
            [healthy, self._own(self.left)],
            self.right,
            self.priors[0],
            FLOOR * self.mean,
            variance,
            threads,
        )
        self.left = np.concatenate([found.left[first][0] for first in sorted(found.left)])
        left_inverses = np.concatenate([found.left[first][1] for first in sorted(found.left)])
        right, right_inverses = np.empty_like(self.right), np.empty_like(self.inverses[1])
        prior = self.priors[1]

        def work(first: int, end: int) -> None:
            solve_columns(
                first, end, found.sums, prior.precision, prior.precision @ prior.mean, right, right_inverses
            )

        in_lines(work, len(right), available_threads())
        self.right, self.inverses = right, (left_inverses, right_inverses)
        self.sweeps += 1

    def learn_priors(self) -> None:
        self.priors = (
            learnt_prior(self.left, self.inverses[0]),
            learnt_prior(self.right, self.inverses[1]),
        )

    def balance(self) -> None:
        self.left, self.right = balanced(self.left, self.right)

    def predict(self, healthy: Parts, variance: Variance, threads: int) -> Parts:
        own = list(zip(self._own(self.left), self._own(self.inverses[0]), strict=True))
        return self.blocks.keep(
            predict_block,
            [healthy, own],
            (self.right, self.inverses[1]),
            self.mean,
            variance,
            threads,
        )

    def _own(self, values: Real) -> list[Real]:
        """The part of each block."""
        return np.split(values, self.blocks.row_bounds[1:-1])


def fit_large_blocks(
    blocks: Blocks,
    family: ExposureFamily,
    rank: int,
    rng: np.random.Generator,
    *,
    noise: str,
    effort: Effort,
    threads: int,
    dtype: type[np.floating[Any]] = np.float32,
) -> BlockFit:
    """``start_large`` and ``fit_large`` over blocks; ``threads`` of each block, ``dtype`` of the factors."""
    nothing: Parts = [None] * (len(blocks.row_bounds) - 1)
    totals: Totals = blocks.total(column_totals, [])
    state = BlockSweeps(blocks, totals, rank, rng, dtype)
    for done in range(effort.least_squares + effort.poisson):
        state.sweep(
            nothing, Variance(constant=state.mean) if done < effort.least_squares else Variance(), threads
        )
        state.balance()
    variance, known = Variance(), nothing
    last: Parameters | None = None
    rounds, converged = 0, False
    while True:
        for _ in range(effort.sweeps):
            state.sweep(known, variance, threads)
            state.learn_priors()
        predicted = state.predict(known, variance, threads)
        bins = _bins(blocks, predicted, threads)
        ratio = calibration(bins)
        found = fit_noise(bins, ratio, family, noise, last)
        p = found.parameters
        scale = ratio / (1.0 - p.anomaly_rate * (1.0 - family.mean_factor(p.alpha)))
        known = blocks.keep(rescored, [predicted], bins.grid, scale, family, p, threads)
        rounds += 1
        converged = last is not None and settled(last, p)
        if converged or rounds == effort.rounds:
            break
        variance = variance_of(family, p)
        last = p
    null = fit_binned(found.terms, family, negative_binomial=p.inverse_size > 0.0, anomalies=False, start=p)
    lift = blocks.total(lift_of, [known]).ratio
    return BlockFit(
        left=state.left * state.left.dtype.type(lift),
        right=state.right,
        predictions=blocks.keep(lifted, [known], lift),
        column_entries=totals.entries,
        bins=bins,
        ratio=ratio,
        theta=found,
        null_gain=found.top.log_likelihood - null.top.log_likelihood,
        rounds=rounds,
        sweeps=state.sweeps,
        converged=found.top.converged and (converged or effort.rounds == 1),
    )


def _bins(blocks: Blocks, predicted: Parts, threads: int) -> Bins:
    spread = blocks.total(spread_of, [predicted], sample_stride(blocks.n_observed))
    sample = np.concatenate([spread.cv2[first] for first in sorted(spread.cv2)])
    grid = Grid.between(spread.low, spread.high, sample, blocks.n_observed)
    return blocks.total(table_of, [predicted], grid, spread.most, threads).bins(grid)
