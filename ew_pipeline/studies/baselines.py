"""Methods of other authors as policies: DRMF, Stable-PCP and RMC.

They take X = M + A + E apart, M of low rank, A sparse, and flag where A is not zero. Missing entries are
filled with the current M, so that the matrix whose singular values are needed is sparse plus low rank,
Z = P_Omega(X - A - M) + M, and is never formed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, svds

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.core.arrays import Bool, Float
from ew_pipeline.core.errors import FitError
from ew_pipeline.method.sales_matrix import SalesMatrix

TURNS, PCP_TURNS = 40, 60  # at most, of DRMF and of Stable-PCP
TOLERANCE = 1e-3
BOUND, BOUND_QUANTILE = 2.0, 0.999  # of RMC: the entries are within so many times this quantile of the sales
RANK = 3
SHARE = 0.05  # of anomalies while no label is known, and in the fit
SHARES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
TUNED_ON = 8  # past weeks


@dataclass(frozen=True, eq=False)
class LowRank:
    """M = left @ right, its entries kept within ``bound`` of zero."""

    left: Float
    right: Float
    bound: float = np.inf

    def at(self, sales: SalesMatrix) -> Float:
        """M on the observed entries, in their order."""
        product = np.einsum("er,re->e", self.left[sales.rows], self.right[:, sales.cols])
        return np.asarray(np.clip(product, -self.bound, self.bound))

    def dense(self) -> Float:
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


def filled_svd(sales: SalesMatrix, residual: Float, current: LowRank, k: int) -> tuple[Float, Float, Float]:
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


def drmf(sales: SalesMatrix, rank: int, share: float) -> LowRank:
    """Direct Robust Matrix Factorization (Xiong, Chen, Schneider 2011, Algorithm 1), with missing entries.

    min ||P_Omega(X - A - M)||_F with rank(M) <= r and ||A||_0 <= e, by turns: M is the best matrix of rank r
    of X - A, A takes the e largest residuals whole (``share`` of the observed entries). Returns M.
    """
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


def rmc(sales: SalesMatrix, rank: int, share: float) -> LowRank:
    """Robust Matrix Completion (Klopp, Lounici, Tsybakov 2017): Stable-PCP with |M| and |A| at most a.

    The paper takes a = k ||M*||_max, which needs the truth. Here a comes from the sales.
    """
    bound = BOUND * max(float(np.quantile(sales.counts, BOUND_QUANTILE)), 1.0)
    return stable_pcp(sales, rank, share, bound)


def stable_pcp(sales: SalesMatrix, rank: int, share: float, bound: float = np.inf) -> LowRank:
    """Stable Principal Component Pursuit with missing entries (appendix "Additional Experimental Details").

    min ||M||_* + lambda ||A||_1 + mu ||P_Omega(M + A - X)||_F², by turns: singular values of the filled X - A
    are lowered by a penalty, residuals beyond a limit go to A. Both weights are set as the paper does it: the
    ratio lambda/mu so that ``share`` of the entries are anomalies, and the penalty so that M has the given
    rank, i.e. it equals the first singular value left out. ``bound`` is RMC's. Returns M.
    """
    rank = usable_rank(rank, sales)
    X = sales.counts.astype(np.float64)
    M = start(sales, rank)
    fitted = np.clip(M.at(sales), -bound, bound)
    for _ in range(PCP_TURNS):
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


Method = Callable[[SalesMatrix, int, float], LowRank]

METHODS: dict[str, Method] = {"drmf": drmf, "stable-pcp": stable_pcp, "rmc": rmc}


@dataclass(frozen=True)
class Decomposed:
    """One of the three methods; one-sided, sales above M are no lost sales.

    Which share of the pairs A takes is tuned by cost on labels that are complete: our own calibration has
    them too. M is not fitted again for it: with M fixed, the share only moves the limit.
    """

    method: str
    one_sided: bool = False

    @property
    def name(self) -> str:
        return f"{self.method}-one-sided" if self.one_sided else self.method

    def score(self, view: PastView) -> Score:
        size = self._size(view, view.t)
        share = self._tuned_share(view)
        flags = largest(size, share).astype(np.float64)
        return Score(flags, size / max(float(size.max()), 1e-9))

    def _size(self, view: PastView, week: int) -> Float:
        """How far each pair observed in the week lies from M; below it only, if one-sided."""
        what = f"fitted by {self.method}"
        fitted = view.memory.get(what, week, np.ndarray)
        if fitted is None:
            sales = view.panel.sales(week)
            fitted = view.memory.keep(what, week, METHODS[self.method](sales, RANK, SHARE).at(sales))
        units = view.panel.units[view.panel.observed[:, week], week]
        return distance(units, fitted, one_sided=self.one_sided)

    def _tuned_share(self, view: PastView) -> float:
        wrong = np.zeros(len(SHARES))
        labels = view.mature(TUNED_ON)
        for week, known in labels.items():
            pairs = np.flatnonzero(view.panel.observed[:, week])
            size, labelled = self._size(view, week), known.known[pairs]
            truth = known.anomaly[pairs][labelled]
            # A hard flag costs the same whether it is false or missing: half the highest cost, on average.
            wrong += [float((largest(size, share)[labelled] != truth).sum()) for share in SHARES]
        return SHARES[int(np.argmin(wrong))] if labels else SHARE


def distance(units: Float, fitted: Float, *, one_sided: bool) -> Float:
    """How far sales lie from M; only how far below it, if one-sided."""
    gap = fitted - units
    return np.asarray(np.maximum(gap, 0.0) if one_sided else np.abs(gap))


def largest(size: Float, share: float) -> Bool:
    """Where A is not zero: the largest ``share`` of the distances, and never a pair on its expectation."""
    if share <= 0.0:
        return np.zeros(size.size, dtype=np.bool_)
    return np.asarray(size > np.quantile(size, 1.0 - share))


def published_methods() -> Sequence[Decomposed]:
    """All three, two-sided and one-sided."""
    return [Decomposed(method, one_sided) for method in METHODS for one_sided in (False, True)]
