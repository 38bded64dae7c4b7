"""One week by row blocks: its rank and its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Int64
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.method.families import ExposureFamily, exposure_family
from ew_pipeline.method.folds import RankCurve
from ew_pipeline.method.large.blocks import BlockFit, fit_large_blocks
from ew_pipeline.method.large.rank import large_ranks, sketch, sketch_rows
from ew_pipeline.method.large.row_blocks import Blocks, RowBlock
from ew_pipeline.method.large.some_rows import rows_of, spread_rows
from ew_pipeline.method.large.theta import binned_theta
from ew_pipeline.method.large.tier import effort_at, spending_on
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.theta import Theta


@dataclass(frozen=True, eq=False)
class FittedBlocks:
    """A week's fit with its theta; ``curve``: held-out scores by rank, None where there was no choice."""

    fit: BlockFit
    theta: Theta
    family: ExposureFamily
    curve: RankCurve | None
    mode: str

    @property
    def rank(self) -> int:
        return int(self.fit.right.shape[1])


def fit_by_blocks(blocks: Blocks, config: RunConfig, threads: int) -> FittedBlocks:
    """Fit the week; what is predicted of its entries stays with the blocks. ``threads``: of each block."""
    wanted = config.detector
    family = exposure_family("exponential" if wanted.anomaly == "auto" else wanted.anomaly)
    rng = np.random.default_rng(wanted.random_state)
    mode = "fast" if wanted.mode == "fast" else "large"
    spending = spending_on(mode, blocks.n_observed)
    ranks = (
        large_ranks(blocks.shape, blocks.n_observed, wanted.max_rank)
        if wanted.rank == "auto"
        else (int(wanted.rank),)
    )
    n_rows = sketch_rows(blocks.shape, blocks.n_observed, ranks, spending.rank_entries)
    part = sketch(sample_rows(blocks, n_rows), None, family, ranks, rng, threads)
    effort = effort_at(spending.effort, blocks.shape, blocks.n_observed, part.rank)
    fit = fit_large_blocks(blocks, family, part.right, noise=wanted.noise, effort=effort, threads=threads)
    theta = binned_theta(fit.bins, fit.ratio, family, fit.theta, fit.null_gain)
    return FittedBlocks(fit, theta, family, part.curve, mode)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of some blocks, by the first row of the block."""

    by_block: dict[int, SalesMatrix]

    def __add__(self, other: Rows) -> Rows:
        return Rows(self.by_block | other.by_block)


def sample_rows(blocks: Blocks, n_rows: int) -> SalesMatrix:
    """Rows spread evenly over all blocks, brought here: the rank is chosen on them, as it is where the whole
    week is in one place."""
    found: Rows = blocks.total(rows_of_block, [], spread_rows(blocks.shape[0], n_rows))
    return stacked([found.by_block[first] for first in sorted(found.by_block)])


def rows_of_block(block: RowBlock, rows: Int64) -> Rows:
    own = rows[(rows >= block.first_row) & (rows < block.first_row + block.sales.shape[0])] - block.first_row
    return Rows({block.first_row: rows_of(block.sales, own)} if own.size else {})


def stacked(parts: Sequence[SalesMatrix]) -> SalesMatrix:
    """Matrices of the same SKUs below each other."""
    before = np.cumsum([0, *(part.n_observed for part in parts)])
    return SalesMatrix(
        indptr=np.concatenate(
            [[0], *(part.indptr[1:] + at for part, at in zip(parts, before[:-1], strict=True))]
        ).astype(np.int64),
        cols=np.concatenate([part.cols for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        shape=(sum(part.shape[0] for part in parts), parts[0].shape[1]),
        store_ids=np.concatenate([part.store_ids for part in parts]),
        sku_ids=parts[0].sku_ids,
        week=parts[0].week,
    )
