"""The estimate of expected sales as two thin matrices, M = U V^T.

Section 2 of the paper assumes M* of low rank. At 70 000 stores by 10 000 SKUs the product has 7e8
entries and is never formed: we evaluate it where a sale was observed and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Float, Int32, Int64
from ew_pipeline.core.errors import FitError, UsageError
from ew_pipeline.core.kernels import njit
from ew_pipeline.method.sales_matrix import SalesMatrix


@dataclass(frozen=True, eq=False)
class LowRankFactors:
    """Expected sales M = left @ right.T, with stores on the left and SKUs on the right.

    Attributes
    ----------
    left : U, n x r, read-only.
    right : V, m x r, read-only.
    """

    left: NDArray[np.float64]
    right: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("left", "right"):
            factor = np.array(getattr(self, name), dtype=np.float64, order="C")
            if factor.ndim != 2:
                raise UsageError(f"the {name} factor has {factor.ndim} dimensions; it must have 2.")
            if not np.isfinite(factor).all():
                raise FitError(
                    f"the {name} factor has {np.count_nonzero(~np.isfinite(factor))} entries that are not "
                    "finite: the factorisation diverged.",
                    "fit with a lower rank or stronger regularisation.",
                )
            factor.flags.writeable = False
            object.__setattr__(self, name, factor)
        if self.left.shape[1] != self.right.shape[1]:
            raise UsageError(
                f"the left factor has rank {self.left.shape[1]} and the right {self.right.shape[1]}; "
                "they must agree."
            )

    @property
    def rank(self) -> int:
        """r, the number of columns of each factor."""
        return int(self.left.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """n x m, the shape of the product."""
        return self.left.shape[0], self.right.shape[0]

    def mixed(self, other: LowRankFactors, weight: float) -> LowRankFactors:
        """Factors of (1 - weight) M + weight M_other: both pairs side by side."""
        return LowRankFactors(
            np.hstack([(1.0 - weight) * self.left, weight * other.left]), np.hstack([self.right, other.right])
        )

    def rates_at(self, sales: SalesMatrix) -> NDArray[np.float64]:
        """M on the observed entries of ``sales``, in their row-major order."""
        if sales.shape != self.shape:
            raise UsageError(
                f"the factors are for {self.shape[0]} x {self.shape[1]} pairs and the sales are "
                f"{sales.shape[0]} x {sales.shape[1]}.",
                "fit on the sales you want rates for.",
            )
        rates = np.empty(sales.n_observed)
        gather(self.left, self.right, sales.indptr, sales.cols, -np.inf, rates)
        rates.flags.writeable = False
        return rates

    def dense(self) -> NDArray[np.float64]:
        """The whole product, n x m. For small matrices only."""
        return self.left @ self.right.T

    def singular_values(self) -> NDArray[np.float64]:
        """The r largest singular values of M, largest first.

        With U = Q_u R_u and V = Q_v R_v, M = Q_u (R_u R_v^T) Q_v^T has the singular values of the
        small middle matrix.
        """
        middle = np.linalg.qr(self.left).R @ np.linalg.qr(self.right).R.T
        values = np.zeros(self.rank)
        found = np.linalg.svd(middle, compute_uv=False)  # fewer than r when r > min(n, m): the rest are 0
        values[: found.size] = found
        values.flags.writeable = False
        return values


@njit
def gather(left: Float, right: Float, indptr: Int64, cols: Int32, floor: float, out: Float) -> None:
    """M at the observed entries, row-major, and at least ``floor``, into ``out``."""
    rank = left.shape[1]
    for i in range(left.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            j = cols[e]
            total = 0.0
            for k in range(rank):
                total += left[i, k] * right[j, k]
            out[e] = max(total, floor)
