"""Direct Robust Matrix Factorization (Xiong, Chen, Schneider 2011, Algorithm 1), with missing entries.

    min ||P_Omega(X - A - M)||_F   with rank(M) <= r, ||A||_0 <= e

by turns: M is the best matrix of rank r of X - A (missing entries filled with M), A takes the e largest
residuals whole.
"""

from __future__ import annotations

import numpy as np

from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.baselines.low_rank import LowRank, filled_svd, start, usable_rank

TURNS = 40
TOLERANCE = 1e-3


def drmf(sales: SalesMatrix, rank: int, share: float) -> LowRank:
    """M; ``share`` of the observed entries may be anomalies."""
    rank = usable_rank(rank, sales)
    X = sales.counts.astype(np.float64)
    M = start(sales, rank)
    fitted = M.at(sales)
    for _ in range(TURNS):
        residual = X - fitted
        limit = np.quantile(np.abs(residual), 1.0 - share)
        kept = np.where(np.abs(residual) > limit, 0.0, residual)  # A takes the others whole
        U, s, V = filled_svd(sales, kept, M, rank)
        M = LowRank(U * s, V)
        before, fitted = fitted, M.at(sales)
        if np.linalg.norm(fitted - before) <= TOLERANCE * max(float(np.linalg.norm(before)), 1e-9):
            break
    return M
