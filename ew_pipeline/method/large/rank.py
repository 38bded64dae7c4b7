"""The rank at national scale, by cross-validation on held-out entries, and where its fit starts.

One descending path instead of a fit per rank: the largest candidate is fitted first, and each smaller one
starts from the leading directions of the one before, which finds the same rank as cold starts at a third
of the work. Candidates leave out ranks above five; those next to the best are tried afterwards, since a
factor too few is a part of the demand that looks like anomalies. The hidden counts are scored by the log
predictive of the anomaly mixture, its theta and dispersion fitted for each rank, so that neither anomalies
nor overdispersion speak for more factors.

All of that is done on a part of the rows where there are many. It leaves factors of the columns that are
nearly right, and the fit of all rows goes on from them: three sweeps over the whole week do more than six
from nothing did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.arrays import Bool, Float, Real
from ew_pipeline.core.errors import DataError
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.entry_blocks import in_entry_blocks, in_line_blocks
from ew_pipeline.method.factors import gather
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.folds import RankCurve, rank_curve
from ew_pipeline.method.large._als_kernels import Variance
from ew_pipeline.method.large.als import balanced, first_guess
from ew_pipeline.method.large.binned import Grid, bin_counts
from ew_pipeline.method.large.factor_state import FLOOR, FactorState
from ew_pipeline.method.large.scores import log_predictive
from ew_pipeline.method.large.theta import CENSORED_FROM, calibration, censored_terms, fit_binned
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.selection import candidate_ranks, largest_rank
from ew_pipeline.method.variational.theta import Parameters

HELD_OUT = 10  # every tenth entry, at random
FEW_ENTRIES = 50_000  # below which all tenths take their turn
LEAST_SQUARES, POISSON = 3, 2  # sweeps from nothing
SWEEPS, POLISH = 2, 4  # per rank, after the truncation; more of the largest
# Entries of a row and of a column below which every rank takes as many: it settles slowly there, and
# would lose to a smaller one for that (of five factors at 30 pairs a row, four were found).
SHORT_ROW, SHORT_COLUMN = 100, 30
ENOUGH_WORSE, CLEARLY = 2, 3.0  # ranks below the best, and by how many standard errors each
SPARE = 2  # directions more in them than the largest rank has: with room to turn, they get there sooner
START_ENTRIES = 600_000  # to start from, where the rank is not in question
PER_COLUMN = 40  # entries of a column, on average, below which its factors would mean little


@dataclass(frozen=True, eq=False)
class Sketch:
    """What a part of the rows says.

    Attributes
    ----------
    right : factors of all columns, of the best rank.
    curve : held-out scores by rank; None where there was no choice.
    """

    right: Real
    curve: RankCurve | None

    @classmethod
    def of(cls, state: FactorState, curve: RankCurve | None = None) -> Sketch:
        return cls(balanced(state.left, state.right)[1], curve)

    @property
    def rank(self) -> int:
        return int(self.right.shape[1])


def large_ranks(shape: tuple[int, int], n_observed: int, max_rank: int) -> tuple[int, ...]:
    """The candidates, and the largest rank that is allowed, which may lie between them."""
    candidates = candidate_ranks(shape, n_observed, max_rank)
    return tuple(sorted({*candidates, largest_rank(shape, n_observed, max_rank)}))


def sketch(
    sales: SalesMatrix,
    level: Float | None,
    family: ExposureFamily,
    ranks: tuple[int, ...],
    rng: np.random.Generator,
    threads: int,
) -> Sketch:
    """The best of the ranks on held-out entries of some rows."""
    if not sales.counts.any():
        raise DataError(
            f"{sales.shape[0]} stores, spread over all, sold nothing in the whole week.",
            "check the units of the sales.",
        )
    if len(ranks) == 1:
        return Sketch.of(_Descent(BothWays.of(sales, level, threads=threads), rng, threads).fit(ranks[0]))
    parts = min(HELD_OUT, sales.n_observed)
    fold = rng.permutation(sales.n_observed) % parts
    folds = parts if sales.n_observed < FEW_ENTRIES else 1
    paths = [_Path(sales, level, family, fold == k, rng, threads) for k in range(folds)]
    curve = _descend(paths, ranks)
    between = _left_out(curve.best, ranks)
    curve = _descend(paths, between) if between else curve
    if curve.best in curve.ranks[-2:-1]:  # the largest has the fewest sweeps behind it, and could be the one
        for path in paths:
            path.polish(curve.ranks[-1])
        curve = _curve(paths)
    return Sketch.of(paths[0].descent.known[curve.best], curve)


def sketch_rows(shape: tuple[int, int], n_observed: int, ranks: tuple[int, ...], most_entries: int) -> int:
    """How many rows are enough: with about so many entries, less where only the start depends on it, and
    more where columns would have next to none."""
    entries = most_entries if len(ranks) > 1 else min(most_entries, START_ENTRIES)
    return int(shape[0] * min(1.0, max(entries, PER_COLUMN * shape[1]) / n_observed))


def _left_out(best: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Ranks between the best and the candidates on its two sides."""
    below = max((rank for rank in ranks if rank < best), default=best)
    above = min((rank for rank in ranks if rank > best), default=best)
    return tuple(rank for rank in range(below + 1, above) if rank != best)


def _descend(paths: list[_Path], ranks: tuple[int, ...]) -> RankCurve:
    """The curve over these ranks, the largest first, and all that were tried before. Those below two that are
    clearly worse than the best are left out, unless lines are short: there, in noise, a curve may fall from
    ten factors to five and rise to one."""
    for rank in sorted(ranks, reverse=True):
        if paths[0].scores and not paths[0].descent.short and _hopeless(rank, _curve(paths)):
            break
        for path in paths:
            path.fit(rank)
    return _curve(paths)


def _curve(paths: list[_Path]) -> RankCurve:
    tried = sorted(paths[0].scores)
    return rank_curve({rank: np.concatenate([path.scores[rank] for path in paths]) for rank in tried})


def _hopeless(rank: int, curve: RankCurve) -> bool:
    """Whether enough ranks between this one and the best fall short of the best by more than chance."""
    most = max(curve.scores)
    worse = [
        tried
        for tried, score, error in zip(curve.ranks, curve.scores, curve.standard_errors, strict=True)
        if rank < tried < curve.best and most - score > CLEARLY * error
    ]
    return len(worse) >= ENOUGH_WORSE


class _Descent:
    """Fits of falling rank to the same entries; each starts from the next larger one known."""

    def __init__(self, both: BothWays, rng: np.random.Generator, threads: int) -> None:
        self.both, self.rng, self.threads = both, rng, threads
        n, m = both.shape
        self.short = both.n_observed < max(SHORT_ROW * n, SHORT_COLUMN * m)
        self.sweeps = POLISH if self.short else SWEEPS
        self.known: dict[int, FactorState] = {}

    def fit(self, rank: int) -> FactorState:
        larger = min((known for known in self.known if known > rank), default=None)
        start = self._from_nothing(rank + SPARE) if larger is None else self.known[larger]
        left, right = balanced(start.left, start.right)
        state = FactorState.start(self.both, left[:, :rank].copy(), right[:, :rank].copy())
        self.known[rank] = state
        self.sweep(rank, self.sweeps)
        return state

    def sweep(self, rank: int, times: int) -> None:
        for _ in range(times):
            self.known[rank].sweep(self.both, Variance(), self.threads)

    def _from_nothing(self, rank: int) -> FactorState:
        rank = min(rank, *self.both.shape)
        state = FactorState.start(self.both, *first_guess(self.both, rank, self.rng))
        for done in range(LEAST_SQUARES + POISSON):
            variance = Variance(constant=self.both.mean) if done < LEAST_SQUARES else Variance()
            state.first_sweep(self.both, variance, self.threads)
        return state


class _Path:
    """Log predictives of the hidden entries by rank."""

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
        seen = BothWays.of(sales.select(~hidden), None if level is None else level[~hidden], threads=threads)
        self.descent = _Descent(seen, rng, threads)
        self.family, self.threads = family, threads
        self.scores: dict[int, Float] = {}
        self._theta: Parameters | None = None

    def fit(self, rank: int) -> None:
        """Fit and score this rank."""
        self._score(self.descent.fit(rank))

    def polish(self, rank: int) -> None:
        """The same for one that is known, with more sweeps."""
        self.descent.sweep(rank, POLISH)
        self._score(self.descent.known[rank])

    def _score(self, state: FactorState) -> None:
        self.scores[state.left.shape[1]], self._theta = _scores(
            self.test,
            self.test_level,
            state.left,
            state.right,
            FLOOR * self.descent.both.mean,
            self.family,
            self._theta,
            self.threads,
        )


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
    left, right = U.astype(np.float64), V.astype(np.float64)

    def predict(first: int, end: int) -> None:
        gather(left[first:end], right, test.indptr[first : end + 1], test.cols, floor, means)

    in_line_blocks(predict, test.indptr, threads)
    means *= 1.0 if level is None else level
    rates, none = means.astype(np.float32), np.zeros(means.size, dtype=np.float32)
    grid = Grid.over(rates, none, classes=1)
    bins = bin_counts(test.counts, rates, none, grid, threads)
    ratio = calibration(bins)
    terms = censored_terms(bins, ratio, CENSORED_FROM)
    p = fit_binned(terms, family, negative_binomial=True, start=start).parameters
    scale = ratio / (1.0 - p.anomaly_rate * (1.0 - family.mean_factor(p.alpha)))
    means = grid.scaled(scale, rates, none, threads).astype(np.float64)
    scores, known = np.empty(means.size), np.zeros(means.size)

    def score(first: int, end: int) -> None:
        part = slice(first, end)
        scores[part] = log_predictive(test.counts[part], means[part], known[part], family, p)[1]

    in_entry_blocks(score, means.size, threads)
    return scores, p
