"""Step 1 for large or sparse data: alternating least squares on the observed entries alone.

    minimise over U, V    sum_Omega w_ij (X_ij - L_ij u_i.v_j)^2 + penalty (|U|_F^2 + |V|_F^2)

First with fixed weights (least squares), then with w = 1 / rate at the current estimate: the variance of
a Poisson count is its mean, so these are the weights of the likelihood (iteratively reweighted least
squares). Not in the paper, whose zero-filled SVD (Algorithm 1, step 1) breaks down on sparse data.

L is an optional level known beforehand, one per observed entry: the low rank is then the ratio to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Float, Int64, Real
from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.large._als_kernels import Prior, Variance, gram, half_sweep, line_sums, turned
from ew_pipeline.method.paper.svd import check_rank
from ew_pipeline.method.sales_matrix import SalesMatrix

# Observed pairs from which the factors are kept in single precision: the passes are bound by memory there,
# and what rounding does to a factor is a thousandth of its own random error. Sums stay double.
SINGLE_FROM = 500_000


@dataclass(frozen=True, eq=False)
class AlsFit:
    """What ``als`` found.

    Attributes
    ----------
    factors : u_i and v_j. A row or column with no observed entry gets the mean of the others.
    n_iter : sweeps done; a sweep updates all rows, then all columns.
    objective_path : the objective at the end of each sweep, with the weights of that sweep. It falls
        within the least-squares sweeps; across sweeps with different weights it cannot be compared.
    """

    factors: LowRankFactors
    n_iter: int
    objective_path: tuple[float, ...]


def als(
    sales: SalesMatrix,
    rank: int,
    rng: np.random.Generator,
    *,
    sweeps_least_squares: int = 4,
    sweeps_poisson: int = 6,
    ridge: float = 1.0,
    floor: float = 0.05,
    level: ArrayLike | None = None,
    start: LowRankFactors | None = None,
    threads: int = 1,
) -> AlsFit:
    """Fit U and V by alternating ridge regressions.

    Parameters
    ----------
    ridge
        In units of the prior a factor of typical size has: penalty = ridge * rank / mean rate.
    floor
        Rates below this part of the mean rate get the weight of that part: a count of zero where the
        rate is nearly zero must not outweigh all others.
    level
        L, positive, one per observed entry in row-major order.
    start
        Factors to go on from; otherwise the column means with noise from ``rng``.
    threads
        Blocks of lines solved side by side; the result does not depend on it.
    """
    check_rank(rank, sales.shape)
    if sweeps_least_squares < 0 or sweeps_poisson < 0 or sweeps_least_squares + sweeps_poisson == 0:
        raise UsageError(
            f"{sweeps_least_squares} least-squares and {sweeps_poisson} Poisson sweeps are asked for.",
            "ask for at least one sweep.",
        )
    if not (ridge > 0.0 and floor > 0.0):
        raise UsageError(f"ridge {ridge} and floor {floor} must both be positive.")
    n, m = sales.shape
    precision: type[np.floating[Any]] = np.float64 if sales.n_observed < SINGLE_FROM else np.float32
    both = BothWays.of(
        sales, None if level is None else _checked_level(level, sales.n_observed), precision, threads
    )
    if both.mean == 0.0:
        return AlsFit(LowRankFactors(left=np.zeros((n, rank)), right=np.zeros((m, rank))), 0, ())
    U, V = first_guess(both, rank, rng) if start is None else _checked_start(start, sales.shape, rank)
    U, V = (np.asarray(side, dtype=precision) for side in (U, V))
    penalty = ridge * rank / both.mean
    priors = (Prior.ridge(rank, penalty),) * 2
    path = []
    for done in range(sweeps_least_squares + sweeps_poisson):
        variance = Variance(constant=both.mean) if done < sweeps_least_squares else Variance()
        U, V, loss = sweep(
            both, U, V, priors=priors, floor=floor * both.mean, variance=variance, threads=threads
        )
        U, V = balanced(U, V)
        path.append(loss + penalty * float(np.trace(gram(U)) + np.trace(gram(V))))
    factors = LowRankFactors(
        left=np.asarray(filled(U, both.by_row.indptr), dtype=np.float64),
        right=np.asarray(filled(V, both.by_column.indptr), dtype=np.float64),
    )
    return AlsFit(factors, n_iter=len(path), objective_path=tuple(path))


def first_guess(both: BothWays, rank: int, rng: np.random.Generator) -> tuple[Real, Real]:
    """Column means, shrunk by one mean observation, and the same times noise as further directions."""
    columns = both.by_column
    sold = line_sums(columns.indptr, columns.counts)
    offered = line_sums(columns.indptr, columns.level) if columns.level.size else np.diff(columns.indptr)
    profile = (sold + both.mean) / (offered + 1.0) / np.sqrt(both.mean)
    V = profile[:, None] * rng.standard_normal((sold.size, rank))
    V[:, 0] = profile
    U = np.zeros((both.shape[0], rank))
    U[:, 0] = np.sqrt(both.mean)
    dtype = both.by_row.level.dtype
    return U.astype(dtype), V.astype(dtype)


def sweep(
    both: BothWays,
    U: Real,
    V: Real,
    *,
    priors: tuple[Prior, Prior],
    floor: float,
    variance: Variance,
    threads: int = 1,
    inverses: tuple[Real, Real] | tuple[None, None] = (None, None),
) -> tuple[Real, Real, float]:
    """All rows given the columns, then all columns given the rows; with the loss of the latter."""
    U, _ = half_sweep(
        both.by_row,
        V,
        U,
        prior=priors[0],
        floor=floor,
        variance=variance,
        inverses=inverses[0],
        threads=threads,
    )
    V, loss = half_sweep(
        both.by_column,
        U,
        V,
        prior=priors[1],
        floor=floor,
        variance=variance,
        inverses=inverses[1],
        threads=threads,
    )
    return U, V, float(loss.sum())


def balanced(U: Real, V: Real) -> tuple[Real, Real]:
    """The same product from the factors of least norm. Alternation alone creeps towards them: it moves one
    side at a time, and the small penalty is all that pulls.

    Through the r x r matrices U'U and V'V and not a QR of the tall factors, which threaded libraries round
    differently from run to run; the turns are rounded so that no last bit of theirs gets into the factors.
    """
    from_left, from_right = _root(gram(U)), _root(gram(V))
    P, s, Qt = np.linalg.svd(from_left.T @ from_right)
    root = np.sqrt(s)
    turns = np.linalg.solve(from_left.T, P * root), np.linalg.solve(from_right.T, Qt.T * root)
    left, right = (rounded(turn, U.dtype) for turn in turns)
    return turned(U, left), turned(V, right)


def _root(square: Float) -> Float:
    """L with L L' = square, also where a direction carries nothing: it gets next to nothing."""
    values, vectors = np.linalg.eigh(square)
    least = max(1e-13 * float(values[-1]), 1e-200)
    return np.asarray(vectors * np.sqrt(np.maximum(values, least)))


def rounded(values: Real, precision: np.dtype[Any]) -> Float:
    """Rounded to the precision of the factors: what dense algebra leaves in the last bits depends on the
    machine."""
    return np.asarray(np.asarray(values, precision), np.float64)


def filled(factor: Real, indptr: Int64) -> Real:
    """Lines without an entry get the mean of the others: the penalty alone would make them zero."""
    empty = np.diff(indptr) == 0
    if not empty.any():
        return factor
    return np.where(empty[:, None], factor[~empty].mean(axis=0), factor)


def _checked_level(level: ArrayLike, n_observed: int) -> Float:
    L = np.array(level, dtype=np.float64)
    if L.shape != (n_observed,):
        raise UsageError(
            f"the level has shape {L.shape} and {n_observed} entries are observed; they must agree.",
            "give the levels in the row-major order of the sales.",
        )
    bad = np.flatnonzero(~(np.isfinite(L) & (L > 0.0)))
    if bad.size:
        raise UsageError(
            f"{bad.size} levels are not positive and finite (entries {name_some(bad, bad.size)}).",
            "floor the levels at a small positive value.",
        )
    return L


def _checked_start(start: LowRankFactors, shape: tuple[int, int], rank: int) -> tuple[Float, Float]:
    if start.shape != shape or start.rank != rank:
        raise UsageError(
            f"the start is {start.shape[0]} x {start.shape[1]} of rank {start.rank}; "
            f"the sales are {shape[0]} x {shape[1]} and rank {rank} is wanted.",
            "start from factors of the same shape and rank, or from none.",
        )
    return start.left, start.right
