"""What DRMF, Stable-PCP and RMC share: the singular values of a filled-in matrix, never formed.

Missing entries are filled with the current M, so the matrix is sparse plus low rank:
Z = P_Omega(X - A - M) + M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, svds

from ew_pipeline.core.errors import FitError
from ew_pipeline.method.sales_matrix import SalesMatrix

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LowRank:
    """M = left @ right, its entries kept within ``bound`` of zero."""

    left: FloatArray
    right: FloatArray
    bound: float = np.inf

    def at(self, sales: SalesMatrix) -> FloatArray:
        """M on the observed entries, in their order."""
        product = np.einsum("er,re->e", self.left[sales.rows], self.right[:, sales.cols])
        return np.asarray(np.clip(product, -self.bound, self.bound))

    def dense(self) -> FloatArray:
        """M everywhere, n x m: for simulated data, where its error is known."""
        return np.asarray(np.clip(self.left @ self.right, -self.bound, self.bound))


def start(sales: SalesMatrix, rank: int) -> LowRank:
    """The best matrix of rank one by store and SKU means, with room for ``rank`` directions."""
    mean = max(float(sales.counts.mean()), 1e-9)
    rows = np.bincount(sales.rows, sales.counts, sales.shape[0]) / np.maximum(
        np.bincount(sales.rows, minlength=sales.shape[0]), 1
    )
    cols = np.bincount(sales.cols, sales.counts, sales.shape[1]) / np.maximum(
        np.bincount(sales.cols, minlength=sales.shape[1]), 1
    )
    left, right = np.zeros((sales.shape[0], rank)), np.zeros((rank, sales.shape[1]))
    left[:, 0], right[0] = rows / mean, cols
    return LowRank(left, right)


def filled_svd(
    sales: SalesMatrix, residual: FloatArray, current: LowRank, k: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The largest ``k`` singular triples of P_Omega(residual) + M, descending."""
    n, m = sales.shape
    if k > min(n, m):
        raise FitError(f"{k} directions do not fit into {n} x {m}.")
    change = sparse.csr_array((residual, sales.cols, sales.indptr), shape=(n, m))
    if min(n, m) <= k + 2 or n * m <= 4096:  # Lanczos wants room; small ones are quicker whole
        U, s, V = np.linalg.svd(change.toarray() + current.left @ current.right, full_matrices=False)
        return U[:, :k], s[:k], V[:k]
    operator = LinearOperator(
        (n, m),
        matvec=lambda v: change @ v + current.left @ (current.right @ v),
        rmatvec=lambda u: change.T @ u + current.right.T @ (current.left.T @ u),
        dtype=np.float64,
    )
    begin = np.asarray(np.ones(min(n, m)) + 0.1 * np.cos(np.arange(min(n, m))))  # same data, same answer
    U, s, V = svds(operator, k=k, v0=begin, tol=1e-4)
    order = np.argsort(-s)
    return np.asarray(U[:, order]), np.asarray(s[order], dtype=np.float64), np.asarray(V[order])


def usable_rank(rank: int, sales: SalesMatrix) -> int:
    """``rank``, or the largest that leaves one direction for noise."""
    return max(1, min(rank, min(sales.shape) - 1))
