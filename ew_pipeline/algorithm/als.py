"""Step 1 for large or sparse data: alternating least squares on the observed entries alone.

    minimise over U, V    sum_Omega w_ij (X_ij - L_ij u_i.v_j)^2 + penalty (|U|_F^2 + |V|_F^2)

First with fixed weights (least squares), then with w = 1 / rate at the current estimate: the variance of
a Poisson count is its mean, so these are the weights of the likelihood (iteratively reweighted least
squares). Not in the paper, whose zero-filled SVD (Algorithm 1, step 1) breaks down on sparse data.

L is an optional level known beforehand, one per observed entry: the low rank is then the ratio to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.algorithm._als_kernels import half_sweep
from ew_pipeline.algorithm.factors import LowRankFactors
from ew_pipeline.algorithm.svd import check_rank, thin_svd
from ew_pipeline.algorithm.types import Float, Int32, Int64
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.errors import UsageError, name_some


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
    columns = sales.by_column
    L = np.empty(0) if level is None else _checked_level(level, sales.n_observed)
    mean = float(sales.counts.sum(dtype=np.int64) / (L.sum() if L.size else sales.n_observed))
    if mean == 0.0:
        return AlsFit(LowRankFactors(left=np.zeros((n, rank)), right=np.zeros((m, rank))), 0, ())
    by_row = (sales.indptr, sales.cols, sales.counts, L)
    by_col = (columns.indptr, columns.rows, sales.counts[columns.entry], L[columns.entry] if L.size else L)
    for array in (*by_row, *by_col):
        array.flags.writeable = False  # numba compiles anew for a mixture of writeable and read-only arrays
    if start is None:
        U, V = _first_guess(by_col, (n, m), rank, mean, rng)
    else:
        U, V = _checked_start(start, sales.shape, rank)
    penalty = ridge * rank / mean
    path = []
    for sweep in range(sweeps_least_squares + sweeps_poisson):
        constant = mean if sweep < sweeps_least_squares else 0.0
        U, _ = half_sweep(*by_row, V, U, penalty, floor * mean, constant)
        V, loss = half_sweep(*by_col, U, V, penalty, floor * mean, constant)
        U, V = _balanced(U, V)
        path.append(float(loss.sum() + penalty * ((U * U).sum() + (V * V).sum())))
    factors = LowRankFactors(left=_filled(U, sales.indptr), right=_filled(V, columns.indptr))
    return AlsFit(factors, n_iter=len(path), objective_path=tuple(path))


def _first_guess(
    by_col: tuple[Int64, Int32, Int32, Float],
    shape: tuple[int, int],
    rank: int,
    mean: float,
    rng: np.random.Generator,
) -> tuple[Float, Float]:
    """Column means, shrunk by one mean observation, and the same times noise as further directions."""
    indptr, _, counts, L = by_col
    sold = np.diff(np.append(0, np.cumsum(counts, dtype=np.int64))[indptr])
    offered = np.diff(np.append(0.0, np.cumsum(L))[indptr]) if L.size else np.diff(indptr)
    profile = (sold + mean) / (offered + 1.0) / np.sqrt(mean)
    V = profile[:, None] * rng.standard_normal((shape[1], rank))
    V[:, 0] = profile
    U = np.zeros((shape[0], rank))
    U[:, 0] = np.sqrt(mean)
    return U, V


def _balanced(U: Float, V: Float) -> tuple[Float, Float]:
    """The same product from the factors of least norm. Alternation alone creeps towards them: it moves one
    side at a time, and the small penalty is all that pulls."""
    P, s, Q = thin_svd(U, V)
    return P * np.sqrt(s), Q * np.sqrt(s)


def _filled(factor: Float, indptr: Int64) -> Float:
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
    return start.left.copy(), start.right.copy()
