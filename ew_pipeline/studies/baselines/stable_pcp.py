"""Stable Principal Component Pursuit with missing entries (appendix "Additional Experimental Details").

    min ||M||_* + lambda ||A||_1 + mu ||P_Omega(M + A - X)||_F²

by turns: singular values of the filled X - A are lowered by a penalty, residuals beyond a limit go to A. The
two weights are set as the paper does it: the ratio lambda/mu so that a given share of entries are anomalies,
and the penalty so that M has the given rank, i.e. it equals the first singular value left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.baselines.low_rank import LowRank, filled_svd, start, usable_rank

TURNS = 60
TOLERANCE = 1e-3


def stable_pcp(sales: SalesMatrix, rank: int, share: float, bound: float = np.inf) -> LowRank:
    """M; ``share`` of the observed entries may be anomalies. ``bound`` is RMC's on |M| and |A|."""
    rank = usable_rank(rank, sales)
    X = sales.counts.astype(np.float64)
    M = start(sales, rank)
    fitted = np.clip(M.at(sales), -bound, bound)
    for _ in range(TURNS):
        residual = X - fitted
        limit = np.quantile(np.abs(residual), 1.0 - share)
        A = np.sign(residual) * np.minimum(np.maximum(np.abs(residual) - limit, 0.0), bound)
        k = min(rank + 1, min(sales.shape))
        U, s, V = filled_svd(sales, X - A - M.at(sales), M, k)
        penalty = s[rank] if k > rank else 0.0
        M = LowRank(U[:, :rank] * (s[:rank] - penalty), V[:rank])
        before, fitted = fitted, np.clip(M.at(sales), -bound, bound)
        if np.linalg.norm(fitted - before) <= TOLERANCE * max(float(np.linalg.norm(before)), 1e-9):
            break
    return replace(M, bound=bound)
