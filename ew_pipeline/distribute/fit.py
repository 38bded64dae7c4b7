"""One week by row blocks: rank, fit, and the scores of every pair written where they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ew_pipeline.algorithm.binned_theta import binned_theta
from ew_pipeline.algorithm.costs import Costs
from ew_pipeline.algorithm.decision import expected_saving, flag_by_cost, flag_with_cap
from ew_pipeline.algorithm.families import exposure_family
from ew_pipeline.algorithm.folds import RankCurve
from ew_pipeline.algorithm.large_blocks import fit_large_blocks
from ew_pipeline.algorithm.large_rank import large_ranks, sketch, sketch_rows
from ew_pipeline.algorithm.large_tier import effort_at, spending_on
from ew_pipeline.algorithm.row_blocks import Blocks, Prediction, RowBlock
from ew_pipeline.algorithm.some_rows import rows_of, spread_rows
from ew_pipeline.algorithm.theta import Theta
from ew_pipeline.algorithm.types import Int64
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.settings import RunConfig


@dataclass(frozen=True, eq=False)
class BlockWeek:
    """What came out for the whole week; the scores of its pairs are the files in ``scores``."""

    stores: int
    skus: int
    pairs: int
    flagged: int
    saving: float
    theta: Theta
    rank: int
    noise: str
    anomaly: str
    dispersion_size: float
    converged: bool
    null_gain: float
    rounds: int
    sweeps: int
    rank_curve: RankCurve | None
    scores: Path


@dataclass(frozen=True)
class Tally:
    """Of some blocks: pairs, flags and what the checks are expected to save."""

    pairs: int
    flagged: int
    saving: float

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.pairs + other.pairs, self.flagged + other.flagged, self.saving + other.saving)


def fit_by_blocks(blocks: Blocks, config: RunConfig, folder: Path, threads: int) -> BlockWeek:
    """Fit the week and have every block write its scores to ``folder``. ``threads``: of each block."""
    wanted = config.detector
    family = exposure_family("exponential" if wanted.anomaly == "auto" else wanted.anomaly)
    rng = np.random.default_rng(wanted.random_state)
    spending = spending_on("fast" if wanted.mode == "fast" else "large", blocks.n_observed)
    ranks = (
        large_ranks(blocks.shape, blocks.n_observed, wanted.max_rank)
        if wanted.rank == "auto"
        else (int(wanted.rank),)
    )
    n_rows = sketch_rows(blocks.shape, blocks.n_observed, ranks, spending.rank_entries)
    part = sketch(sample_rows(blocks, n_rows), None, family, ranks, rng, threads)
    effort = effort_at(spending.effort, blocks.shape, blocks.n_observed, part.rank)
    fit = fit_large_blocks(blocks, family, part.right, noise=wanted.noise, effort=effort, threads=threads)
    costs = Costs(false_alarm=config.default_cost_false_alarm, missed=config.default_cost_missed)
    folder.mkdir(parents=True, exist_ok=True)
    tally: Tally = blocks.total(
        write_scores, [fit.predictions], costs, config.max_checks_per_store, str(folder)
    )
    size = fit.theta.parameters.inverse_size
    return BlockWeek(
        stores=blocks.shape[0],
        skus=blocks.shape[1],
        pairs=tally.pairs,
        flagged=tally.flagged,
        saving=tally.saving,
        theta=binned_theta(fit.bins, fit.ratio, family, fit.theta, fit.null_gain),
        rank=part.rank,
        noise="negative_binomial" if size > 0.0 else "poisson",
        anomaly=family.name,
        dispersion_size=1.0 / size if size > 0.0 else math.inf,
        converged=fit.converged,
        null_gain=fit.null_gain,
        rounds=fit.rounds,
        sweeps=fit.sweeps,
        rank_curve=part.curve,
        scores=folder,
    )


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


def write_scores(block: RowBlock, scored: Prediction, costs: Costs, cap: int | None, folder: str) -> Tally:
    """On a worker: decide and write the block's pairs, one parquet file for each block.

    A store's pairs are all in one block, so that the cap per store is decided here too. A pair that sold more
    than expected is never flagged.
    """
    assert scored.healthy is not None
    sales = block.sales
    f = scored.healthy.astype(np.float64)
    too_low = np.flatnonzero(sales.counts < scored.means)
    flags = np.zeros(f.size, dtype=bool)
    if cap is None:
        flags[too_low] = flag_by_cost(f[too_low], costs)
    elif too_low.size:
        flags[too_low] = flag_with_cap(f[too_low], costs, sales.rows[too_low].astype(np.int64), cap).flags
    saving = expected_saving(f, costs)
    frame = pd.DataFrame(
        {
            "store_id": pd.Categorical.from_codes(sales.rows, categories=pd.Index(sales.store_ids)),
            "sku_id": pd.Categorical.from_codes(sales.cols, categories=pd.Index(sales.sku_ids)),
            "units": sales.counts,
            "expected_units": scored.means,
            "anomaly_probability": (1.0 - f).astype(np.float32),
            "expected_saving": saving.astype(np.float32),
            "flagged": flags,
        }
    )
    whole = Path(folder) / f"rows-{block.first_row:09d}.parquet"
    part = whole.with_suffix(".part")
    frame.to_parquet(part, index=False)
    part.replace(whole)  # a block that is made twice writes the same file twice, and never half of it
    return Tally(f.size, int(flags.sum()), float(saving[flags].sum()))
