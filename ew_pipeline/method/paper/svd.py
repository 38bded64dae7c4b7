"""Step 1 of Algorithm 1: the zero-filled truncated SVD.

    M_hat = nm/|Omega| * SVD(X')_r,      X' = X on Omega and 0 elsewhere      (Algorithm 1, section 3)

The factor nm/|Omega| undoes, on average, the shrinkage that zero-filling causes. The estimate is
of e(theta) M*, not of M*: the anomalies are still inside (Theorem 1). Fine on dense data, useless
on sparse data, where the zeros of X' say more about Omega than about sales: prefer ``als`` there.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.sparse.linalg import svds

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.sales_matrix import SalesMatrix

# Up to this many cells LAPACK on the dense matrix is quicker than Lanczos on the sparse one. Above, LAPACK
# with several threads is also at the mercy of a busy machine: 100 x 100 took 470 ms instead of 3.
DENSE_CELLS = 2_500


def zero_filled_svd(sales: SalesMatrix, rank: int, rng: np.random.Generator) -> LowRankFactors:
    """Rank-``rank`` estimate of the expected sales by the scaled SVD of the zero-filled counts.

    ``rng`` draws the start vector of the Lanczos iteration on large data; the result depends on it
    only within the solver's tolerance. The singular values are split evenly over both sides.
    """
    check_rank(rank, sales.shape)
    n, m = sales.shape
    X = zero_filled(sales)
    if not X.data.any():
        return LowRankFactors(left=np.zeros((n, rank)), right=np.zeros((m, rank)))
    if n * m <= DENSE_CELLS or rank >= min(n, m) - 1:
        U, s, Vt = scipy.linalg.svd(X.toarray(), full_matrices=False, check_finite=False)
        U, s, V = U[:, :rank], s[:rank], Vt[:rank].T
    else:
        start = rng.uniform(0.5, 1.5, size=min(n, m))
        U, s, Vt = svds(X, k=rank, v0=start, rng=rng)
        descending = np.argsort(s)[::-1]
        U, s, V = U[:, descending], s[descending], Vt[descending].T
    return split_singular_values(U, s * (n * m / sales.n_observed), V)


def check_rank(rank: int, shape: tuple[int, int]) -> None:
    """Refuse a rank that no matrix of this shape can have."""
    if not 1 <= rank <= min(shape):
        raise UsageError(
            f"rank {rank} is not possible for a {shape[0]} x {shape[1]} matrix.",
            next_step=f"choose a rank from 1 to {min(shape)}.",
        )


def zero_filled(sales: SalesMatrix) -> scipy.sparse.csr_array:
    """X': the counts on the observed set, zero elsewhere, as a sparse array."""
    return scipy.sparse.csr_array(
        (sales.counts.astype(np.float64), sales.cols, sales.indptr), shape=sales.shape
    )


def split_singular_values(U: Float, s: Float, V: Float) -> LowRankFactors:
    """Factors ``U sqrt(s)`` and ``V sqrt(s)``; the largest entry of each left column is positive.

    The signs of singular vectors are arbitrary; fixing them makes factors comparable between runs.
    """
    biggest = np.abs(U).argmax(axis=0)
    weight = np.sqrt(s) * np.where(U[biggest, np.arange(s.size)] < 0.0, -1.0, 1.0)
    return LowRankFactors(left=U * weight, right=V * weight)


def thin_svd(left: Float, right: Float) -> tuple[Float, Float, Float]:
    """U, s, V of the product ``left @ right.T`` of two thin factors, without forming it."""
    Qu, Ru = np.linalg.qr(left)
    Qv, Rv = np.linalg.qr(right)
    U, s, Vt = np.linalg.svd(Ru @ Rv.T, full_matrices=False)
    return Qu @ U, s, Qv @ Vt.T
