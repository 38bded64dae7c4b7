"""The rank at national scale, by cross-validation on held-out entries.

One descending path instead of a fit per rank: the largest candidate is fitted first, and each smaller one
starts from the leading directions of the one before, which finds the same rank as cold starts at a third
of the work. Candidates leave out ranks above five; those next to the best are tried afterwards, since a
factor too few is a part of the demand that looks like anomalies. The hidden counts are scored by the log
predictive of the anomaly mixture, its theta and dispersion fitted for each rank, so that neither anomalies
nor overdispersion speak for more factors.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.algorithm._als_kernels import Variance
from ew_pipeline.algorithm.als import balanced
from ew_pipeline.algorithm.binned import Grid, bin_counts
from ew_pipeline.algorithm.binned_theta import CENSORED_FROM, calibration, censored_terms, fit_binned
from ew_pipeline.algorithm.both_ways import BothWays
from ew_pipeline.algorithm.cavity_theta import Parameters
from ew_pipeline.algorithm.factors import gather
from ew_pipeline.algorithm.families import ExposureFamily
from ew_pipeline.algorithm.folds import RankCurve, rank_curve
from ew_pipeline.algorithm.large import FLOOR, Effort, FactorState, log_predictive, start_large
from ew_pipeline.algorithm.types import Bool, Float, Int64, Real
from ew_pipeline.data.sales_matrix import SalesMatrix

HELD_OUT = 10  # every tenth entry, at random
FEW_ENTRIES = 50_000  # below which all tenths take their turn
SWEEPS = 2  # per rank, after the truncation
START = Effort(least_squares=3, poisson=2)


def held_out_rank(
    sales: SalesMatrix,
    level: Float | None,
    family: ExposureFamily,
    ranks: tuple[int, ...],
    rng: np.random.Generator,
    *,
    most_entries: int,
    threads: int,
) -> RankCurve:
    """The score of each rank. Above ``most_entries`` only a part of the rows is used."""
    sales, level = _some_rows(sales, level, most_entries)
    parts = min(HELD_OUT, sales.n_observed)
    fold = rng.permutation(sales.n_observed) % parts
    folds = parts if sales.n_observed < FEW_ENTRIES else 1
    paths = [_Path(sales, level, family, fold == k, rng, threads) for k in range(folds)]
    curve = _descend(paths, ranks)
    between = _left_out(curve.best, ranks)
    return _descend(paths, between) if between else curve


def _left_out(best: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks between the best and the candidates on its two sides."""
    below = max((rank for rank in ranks if rank < best), default=best)
    above = min((rank for rank in ranks if rank > best), default=best)
    return tuple(rank for rank in range(below + 1, above) if rank != best)


def _descend(paths: list[_Path], ranks: tuple[int, ...]) -> RankCurve:
    """The curve over these ranks and all that were tried before."""
    for path in paths:
        path.descend(ranks)
    tried = sorted(paths[0].scores)
    return rank_curve({rank: np.concatenate([path.scores[rank] for path in paths]) for rank in tried})


class _Path:
    """Log predictives of the hidden entries by rank; each rank starts from the next larger one known."""

    def __init__(
        self,
        sales: SalesMatrix,
        level: Float | None,
        family: ExposureFamily,
        hidden: Bool,
        rng: np.random.Generator,
        threads: int,
    ) -> None:
        self.test, self.test_level = sales.select(hidden), None if level is None else level[hidden]
        self.both = BothWays.of(sales.select(~hidden), None if level is None else level[~hidden])
        self.family, self.rng, self.threads = family, rng, threads
        self.scores: dict[int, Float] = {}
        self._factors: dict[int, tuple[Real, Real]] = {}
        self._theta: Parameters | None = None

    def descend(self, ranks: tuple[int, ...]) -> None:
        """Fit and score these ranks, the largest first."""
        both, threads = self.both, self.threads
        for rank in sorted(ranks, reverse=True):
            larger = min((known for known in self._factors if known > rank), default=None)
            start = (
                start_large(both, rank, self.rng, START, threads) if larger is None else self._factors[larger]
            )
            U, V = balanced(*start)
            state = FactorState.start(both, U[:, :rank].copy(), V[:, :rank].copy())
            for _ in range(SWEEPS):
                state.sweep(both, Variance(), threads)
            self._factors[rank] = state.left, state.right
            self.scores[rank], self._theta = _scores(
                self.test,
                self.test_level,
                state.left,
                state.right,
                FLOOR * both.mean,
                self.family,
                self._theta,
                threads,
            )


def _some_rows(
    sales: SalesMatrix, level: Float | None, most_entries: int
) -> tuple[SalesMatrix, Float | None]:
    """Rows spread evenly over the matrix, with about ``most_entries`` entries, as a matrix of their own."""
    if sales.n_observed <= most_entries:
        return sales, level
    n = sales.shape[0]
    wanted = max(1, int(n * most_entries / sales.n_observed))
    rows = np.unique(np.linspace(0, n - 1, wanted).astype(np.int64))
    chosen = _entries_of(sales.indptr, rows)
    indptr = np.concatenate([[0], np.cumsum(np.diff(sales.indptr)[rows])])
    part = SalesMatrix(
        indptr=indptr.astype(np.int64),
        cols=sales.cols[chosen],
        counts=sales.counts[chosen],
        shape=(rows.size, sales.shape[1]),
        store_ids=sales.store_ids[rows],
        sku_ids=sales.sku_ids,
        week=sales.week,
    )
    return part, None if level is None else level[chosen]


def _entries_of(indptr: Int64, rows: Int64) -> Bool:
    """Which entries lie in the rows."""
    mark = np.zeros(indptr[-1] + 1, dtype=np.int8)
    np.add.at(mark, indptr[rows], 1)
    np.add.at(mark, indptr[rows + 1], -1)
    return np.asarray(np.cumsum(mark[:-1], dtype=np.int8) > 0)


def _scores(
    test: SalesMatrix,
    level: Float | None,
    U: Real,
    V: Real,
    floor: float,
    family: ExposureFamily,
    start: Parameters | None,
    threads: int,
) -> tuple[Float, Parameters]:
    """Log predictive of each hidden count, and the theta it is with; ``start``: that of the rank before."""
    means = np.empty(test.n_observed)
    gather(U.astype(np.float64), V.astype(np.float64), test.indptr, test.cols, floor, means)
    means *= 1.0 if level is None else level
    rates, none = means.astype(np.float32), np.zeros(means.size, dtype=np.float32)
    grid = Grid.over(rates, none, classes=1)
    bins = bin_counts(test.counts, rates, none, grid, threads)
    ratio = calibration(bins)
    terms = censored_terms(bins, ratio, CENSORED_FROM)
    p = fit_binned(terms, family, negative_binomial=True, start=start).parameters
    scale = ratio / (1.0 - p.anomaly_rate * (1.0 - family.mean_factor(p.alpha)))
    means = grid.scaled(scale, rates, none, threads).astype(np.float64)
    return log_predictive(test.counts, means, np.zeros(means.size), family, p)[1], p
