"""The rank by cross-validation on held-out entries ("the rank is identified through cross-validation",
appendix "Additional Experimental Details").

The entries of Omega are dealt into folds; each fold in turn is hidden, the rates are fitted on the rest,
and the hidden counts are scored by their log-probability under the predicted rates. Any denoiser can be
scored: it comes in as a function of the training sales and the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlogy

from ew_pipeline.algorithm.factors import LowRankFactors
from ew_pipeline.algorithm.types import Bool, Float, Int32, Int64
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.errors import FitError, UsageError


@dataclass(frozen=True)
class RankCurve:
    """How well each rank predicts entries it has not seen.

    Attributes
    ----------
    ranks : the candidates, ascending.
    scores : mean log-probability of a held-out count; higher is better.
    standard_errors : of the shortfall from the best score, paired entry by entry; 0 at the best. Most of
        the spread of a score is common to all ranks and says nothing about which is better.
    best : the rank with the highest score, the smaller one on a tie.
    one_standard_error : the smallest rank whose shortfall is at most its standard error.
    """

    ranks: tuple[int, ...]
    scores: tuple[float, ...]
    standard_errors: tuple[float, ...]
    best: int
    one_standard_error: int


def entry_folds(sales: SalesMatrix, n_folds: int, rng: np.random.Generator) -> list[tuple[Bool, Bool]]:
    """Deal the observed entries into folds: a list of (train, test) masks in row-major order.

    Every row and column with an observed entry keeps one in every training part: where a line lies in one
    fold alone, one of its entries, drawn at random, is never held out. All others are held out once.
    """
    if n_folds < 2:
        raise UsageError(f"{n_folds} folds are asked for.", "ask for at least 2.")
    fold = rng.permutation(sales.n_observed) % n_folds
    order = rng.permutation(sales.n_observed)
    fold = _keep_one(fold, sales.rows, sales.shape[0], order)
    fold = _keep_one(fold, sales.cols, sales.shape[1], order)
    empty = n_folds - np.intersect1d(fold, np.arange(n_folds)).size
    if empty:
        raise FitError(
            f"{empty} of {n_folds} folds are empty: {np.sum(fold < 0)} of {sales.n_observed} entries are the "
            "only one their row or column has to learn from.",
            "choose fewer folds, or fix the rank.",
        )
    return [(_frozen(fold != k), _frozen(fold == k)) for k in range(n_folds)]


def held_out_curve(
    sales: SalesMatrix,
    ranks: Sequence[int],
    fit_rates: Callable[..., LowRankFactors],
    folds: Sequence[tuple[Bool, Bool]],
    *,
    size: float = np.inf,
    floor: float = 0.1,
    level: ArrayLike | None = None,
) -> RankCurve:
    """Score each rank by the counts it did not see.

    Parameters
    ----------
    fit_rates
        ``fit_rates(train, rank)`` gives the factors fitted on ``train``; with a level it is called as
        ``fit_rates(train, rank, train_level)``.
    folds
        From ``entry_folds``; the same for every rank.
    size
        s0 of the negative binomial that scores the counts; infinite for Poisson.
    floor
        Predicted rates are at least this part of the mean rate: a denoiser may predict zero or less, and
        one sale there would cost infinitely much.
    level
        L, one per observed entry: the rate is L times the fitted factor.
    """
    candidates = tuple(sorted({int(rank) for rank in ranks}))
    if not candidates or not folds:
        raise UsageError("there is nothing to compare.", "give at least one rank and one fold.")
    if not (size > 0.0 and floor > 0.0):
        raise UsageError(f"size {size} and floor {floor} must both be positive.")
    L = None if level is None else np.asarray(level, dtype=np.float64)
    offered = float(sales.n_observed if L is None else L.sum())
    lowest = floor * max(float(sales.counts.sum(dtype=np.int64)), 1.0) / offered
    by_rank: list[Float] = []
    for rank in candidates:
        scores = []
        for train, test in folds:
            known = sales.select(train)
            factors = fit_rates(known, rank) if L is None else fit_rates(known, rank, L[train])
            hidden = sales.select(test)
            rates = np.maximum(factors.rates_at(hidden), lowest)
            scores.append(log_probability(hidden.counts, rates if L is None else rates * L[test], size))
        by_rank.append(np.concatenate(scores))
    return rank_curve(dict(zip(candidates, by_rank, strict=True)))


def rank_curve(entry_scores: Mapping[int, Float]) -> RankCurve:
    """The curve from each rank's log-probabilities of the same entries, ranks ascending."""
    ranks, by_rank = tuple(entry_scores), list(entry_scores.values())
    means = [float(score.mean()) for score in by_rank]
    best = int(np.argmax(means))
    errors = [_standard_error(by_rank[best] - score) for score in by_rank]
    near = next(k for k, mean in enumerate(means) if means[best] - mean <= errors[k])
    return RankCurve(
        ranks=ranks,
        scores=tuple(means),
        standard_errors=tuple(errors),
        best=ranks[best],
        one_standard_error=ranks[near],
    )


def log_probability(counts: Int32, rates: Float, size: float) -> Float:
    """log P(X = counts) for X negative binomial with mean ``rates`` and size s0; Poisson when infinite.

    x log(M/(s0 + M)) + s0 log(s0/(s0 + M)) is computed as x log M - x log s0 - (x + s0) log(1 + M/s0),
    which stays accurate as s0 grows.
    """
    x = counts.astype(np.float64)
    if np.isinf(size):
        score = xlogy(x, rates) - rates - gammaln(x + 1.0)
    else:
        ways = gammaln(x + size) - gammaln(size) - gammaln(x + 1.0)
        score = ways + xlogy(x, rates / size) - (x + size) * np.log1p(rates / size)
    return np.asarray(score, dtype=np.float64)


def _keep_one(fold: Int64, line: Int32, n_lines: int, order: Int64) -> Int64:
    """``fold`` with one entry of every line that lies in a single fold marked -1: never held out."""
    lowest = np.full(n_lines, np.iinfo(np.int64).max)
    highest = np.full(n_lines, -1)
    np.minimum.at(lowest, line, fold)
    np.maximum.at(highest, line, fold)
    at_random = np.empty(n_lines, dtype=np.int64)
    at_random[line[order]] = order
    kept = fold.copy()
    kept[at_random[(lowest == highest) & (lowest >= 0)]] = -1
    return kept


def _standard_error(difference: Float) -> float:
    return float(difference.std(ddof=1) / np.sqrt(difference.size)) if difference.size > 1 else 0.0


def _frozen(mask: Bool) -> Bool:
    mask.flags.writeable = False
    return mask
