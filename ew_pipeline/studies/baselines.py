"""Methods of other authors, behind the same interface as the detector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, svds

from ew_pipeline.backtest.policies import Score
from ew_pipeline.backtest.view import PastView
from ew_pipeline.core.errors import FitError
from ew_pipeline.method.sales_matrix import SalesMatrix

FloatArray = npt.NDArray[np.float64]
TURNS = 40
TOLERANCE = 1e-3
BOUND = 2.0
BOUND_QUANTILE = 0.999
PCP_TURNS = 60
BoolArray = npt.NDArray[np.bool_]
RANK = 3
SHARE = 0.05  # of anomalies while no label is known, and in the fit
SHARES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
TUNED_ON = 8  # past weeks


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


def rmc(sales: SalesMatrix, rank: int, share: float) -> LowRank:
    """M; ``share`` of the observed entries may be anomalies."""
    bound = BOUND * max(float(np.quantile(sales.counts, BOUND_QUANTILE)), 1.0)
    return stable_pcp(sales, rank, share, bound)


def stable_pcp(sales: SalesMatrix, rank: int, share: float, bound: float = np.inf) -> LowRank:
    """M; ``share`` of the observed entries may be anomalies. ``bound`` is RMC's on |M| and |A|."""
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
    """One of the three methods."""

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

    def _size(self, view: PastView, week: int) -> FloatArray:
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


def distance(units: FloatArray, fitted: FloatArray, *, one_sided: bool) -> FloatArray:
    """How far sales lie from M; only how far below it, if one-sided."""
    gap = fitted - units
    return np.asarray(np.maximum(gap, 0.0) if one_sided else np.abs(gap))


def largest(size: FloatArray, share: float) -> BoolArray:
    """Where A is not zero: the largest ``share`` of the distances, and never a pair on its expectation."""
    if share <= 0.0:
        return np.zeros(size.size, dtype=np.bool_)
    return np.asarray(size > np.quantile(size, 1.0 - share))


def published_methods() -> Sequence[Decomposed]:
    """All three, two-sided and one-sided."""
    return [Decomposed(method, one_sided) for method in METHODS for one_sided in (False, True)]
