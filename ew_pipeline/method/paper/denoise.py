"""Step 1: a low-rank estimate of expected sales, by a zero-filled SVD or by soft-impute.

The SVD is the paper's Algorithm 1 (section 3):

    M_hat = nm/|Omega| * SVD(X')_r,      X' = X on Omega and 0 elsewhere

nm/|Omega| undoes, on average, the shrinkage that zero-filling causes. The estimate is of e(theta) M*, not of
M*: the anomalies are still inside (Theorem 1). Fine on dense data, useless on sparse data (``large.als``).

Soft-impute, with the penalty tuned to a rank, is what the paper runs in section 4:

    minimise over M    1/2 ||P_Omega(X - M)||_F^2 + penalty ||M||_*

(appendix "Additional Experimental Details", which leaves out the 1/2: its lambda is twice our penalty.)
One iteration fills the unobserved entries with the current M and soft-thresholds the singular values,

    M <- S_penalty(Z),      Z = P_Omega(X - M) + M,

and Z is sparse plus low rank: it is only ever multiplied with thin blocks, never formed. We add Nesterov
momentum, dropped whenever the objective rises: the same minimiser in fewer iterations.

The penalty for a rank: the paper raises lambda until the rank of the solution fits; we come from above.
An M of rank r is the solution exactly when the singular values of Z beyond the r-th are at most the
penalty, so ``penalty <- sigma_{r+1}(Z)``, solved again from the last M, falls to the smallest penalty
whose solution still has rank r, in a few warm-started solves instead of a grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, svds

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.sales_matrix import SalesMatrix

# Up to this many cells LAPACK on the dense matrix is quicker than Lanczos on the sparse one. Above, LAPACK
# with several threads is also at the mercy of a busy machine: 100 x 100 took 470 ms instead of 3.
DENSE_CELLS = 2_500
# Noiseless data have no noise level for the penalty to stop at; this part of the largest one is the end.
SMALLEST_PENALTY = 1e-4
PENALTY_TOLERANCE = 0.005
MAX_SOLVES = 40
# Search directions beyond the rank cap, and power iterations on them per step. The search goes on from where
# the last step left it, so few are enough: on the paper's ensemble, the exact answer to 6e-5.
EXTRA_DIRECTIONS = 5
POWER_ITERATIONS = 2
LANCZOS_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class SoftImputeFit:
    """A solution of the penalised problem.

    Attributes
    ----------
    factors : the minimiser M; one zero column where M = 0.
    penalty : the weight of the nuclear norm.
    n_iter : soft-thresholding iterations, over all penalties tried.
    converged : whether the last solve ended by its tolerance rather than by its number of iterations.
    objective : half the squared error on the observed entries + penalty * nuclear norm.
    next_singular_value : the largest singular value of Z that M leaves out. At most the penalty, unless
        the rank cap cut the solution off.
    """

    factors: LowRankFactors
    penalty: float
    n_iter: int
    converged: bool
    objective: float
    next_singular_value: float


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


def soft_impute(
    sales: SalesMatrix,
    penalty: float,
    rank_cap: int,
    rng: np.random.Generator,
    start: LowRankFactors | None = None,
    *,
    tolerance: float = 1e-5,
    max_iter: int = 500,
) -> SoftImputeFit:
    """Minimise the penalised squared error at one penalty, keeping at most ``rank_cap`` directions.

    ``tolerance`` bounds the last relative change of M in Frobenius norm. ``rng`` draws the first search
    directions. The problem is convex: start and search directions change the path, not the solution.
    """
    check_rank(rank_cap, sales.shape)
    if not (np.isfinite(penalty) and penalty >= 0.0):
        raise UsageError(f"the penalty is {penalty}; it must be finite and not negative.")
    problem = _Problem(sales, rank_cap, rng)
    first = problem.origin() if start is None else problem.point(*thin_svd(start.left, start.right))
    solution = problem.solve(penalty, first, tolerance, max_iter)
    return solution.as_fit(float(penalty), solution.n_iter)


def soft_impute_to_rank(
    sales: SalesMatrix,
    rank: int,
    rng: np.random.Generator,
    *,
    tolerance: float = 1e-4,
    max_iter: int = 500,
) -> SoftImputeFit:
    """The solution at the smallest penalty, within half a percent, that leaves it at most ``rank``.

    The solution's rank is below ``rank`` only where it cannot be had: noiseless data of a lower rank, or
    tied singular values, which enter the solution together.
    """
    check_rank(rank, sales.shape)
    problem = _Problem(sales, rank, rng)
    M = problem.origin()
    best = _Solution(M, n_iter=0, converged=True, objective=M.half_square, spectrum=problem.spectrum(M))
    penalty = float(best.spectrum[0])
    smallest, n_iter = SMALLEST_PENALTY * penalty, 0
    for _ in range(MAX_SOLVES):
        target = max(float(best.spectrum[rank]), smallest)
        if target >= penalty * (1.0 - PENALTY_TOLERANCE):
            break
        trial = problem.solve(target, best.point, tolerance, max_iter)
        n_iter += trial.n_iter
        if trial.spectrum[rank] <= target * (1.0 + PENALTY_TOLERANCE):
            best, penalty = trial, target
        else:  # one more direction entered on the way down: the wanted penalty is between the two
            smallest = float(np.sqrt(target * penalty))
    return best.as_fit(penalty, n_iter)


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


class _Point(NamedTuple):
    """M = U diag(s) V^T with its residual on Omega."""

    U: Float
    s: Float
    V: Float
    residual: Float
    half_square: float  # half the squared length of the residual


class _Solution(NamedTuple):
    point: _Point
    n_iter: int
    converged: bool
    objective: float
    spectrum: Float  # leading singular values of Z at the solution, one more than the rank cap

    def as_fit(self, penalty: float, n_iter: int) -> SoftImputeFit:
        U, s, V = self.point.U, self.point.s, self.point.V
        if s.size == 0:
            U, s, V = np.zeros((len(U), 1)), np.zeros(1), np.zeros((len(V), 1))
        return SoftImputeFit(
            factors=split_singular_values(U, s, V),
            penalty=penalty,
            n_iter=n_iter,
            converged=self.converged,
            objective=self.objective,
            next_singular_value=float(self.spectrum[self.point.s.size]),
        )


class _Problem:
    """The data of one problem and the operations on Z that the iteration needs."""

    def __init__(self, sales: SalesMatrix, rank_cap: int, rng: np.random.Generator) -> None:
        self.sales = sales
        self.rank_cap = rank_cap
        directions = min(rank_cap + EXTRA_DIRECTIONS, *sales.shape)
        self.search = rng.standard_normal((sales.shape[1], directions))
        self.lanczos_start = rng.uniform(0.5, 1.5, size=min(sales.shape))

    def origin(self) -> _Point:
        n, m = self.sales.shape
        return self.point(np.empty((n, 0)), np.empty(0), np.empty((m, 0)))

    def point(self, U: Float, s: Float, V: Float) -> _Point:
        residual = self.sales.counts - LowRankFactors(left=U * s, right=V).rates_at(self.sales)
        return _Point(U, s, V, residual, 0.5 * float(residual @ residual))

    def solve(self, penalty: float, first: _Point, tolerance: float, max_iter: int) -> _Solution:
        """Accelerated proximal gradient from ``first``; steps of length one, as P_Omega is a projection."""
        before, now, momentum = first, first, 1.0
        objective = now.half_square + float(penalty * now.s.sum())
        n_iter, converged = 0, False
        while n_iter < max_iter and not converged:
            n_iter += 1
            next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = (momentum - 1.0) / next_momentum
            # Z at now + ahead * (now - before)
            U, s, V = self._leading(
                (1.0 + ahead) * now.residual - ahead * before.residual,
                np.hstack([(1.0 + ahead) * now.U * now.s, -ahead * before.U * before.s]),
                np.hstack([now.V, before.V]),
                self.search,
            )
            self.search = V
            kept = int(np.count_nonzero(s[: self.rank_cap] > penalty))
            new = self.point(U[:, :kept], s[:kept] - penalty, V[:, :kept])
            new_objective = new.half_square + float(penalty * new.s.sum())
            if new_objective > objective and ahead > 0.0:
                before, momentum = now, 1.0
                continue
            moved = _distance(new, now)
            before, now, momentum, objective = now, new, next_momentum, new_objective
            converged = moved <= tolerance * float(np.linalg.norm(new.s))
        return _Solution(now, n_iter, converged, objective, self.spectrum(now))

    def spectrum(self, M: _Point) -> Float:
        """The rank_cap + 1 largest singular values of Z at M, zero where Z has no more."""
        S, A, B = self._sparse(M.residual), M.U * M.s, M.V
        k = self.rank_cap + 1
        if not (M.residual.any() or M.s.any()):
            return np.zeros(k)
        if k >= min(S.shape):  # more than Lanczos can find; Z is then thin enough to be formed
            values = np.linalg.svd(S.toarray() + A @ B.T, compute_uv=False)
            return np.append(values, np.zeros(k))[:k]
        Z = LinearOperator(
            S.shape,
            matvec=lambda x: S @ x + A @ (B.T @ x),
            rmatvec=lambda y: S.T @ y + B @ (A.T @ y),
            dtype=np.float64,
        )
        found = svds(Z, k=k, v0=self.lanczos_start, tol=LANCZOS_TOLERANCE, return_singular_vectors=False)
        return np.sort(np.asarray(found, dtype=np.float64))[::-1]

    def _leading(self, residual: Float, A: Float, B: Float, search: Float) -> tuple[Float, Float, Float]:
        """Leading singular triples of Z = P_Omega(residual) + A B^T by subspace iteration from ``search``."""
        S = self._sparse(residual)
        for _ in range(POWER_ITERATIONS):
            Q = np.linalg.qr(S @ search + A @ (B.T @ search)).Q
            search = S.T @ Q + B @ (A.T @ Q)
        V, s, Wt = scipy.linalg.svd(search, full_matrices=False, check_finite=False)
        return Q @ Wt.T, s, V

    def _sparse(self, values: Float) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array((values, self.sales.cols, self.sales.indptr), shape=self.sales.shape)


def _distance(a: _Point, b: _Point) -> float:
    """||A - B||_F of two low-rank matrices, by the parts of B inside and outside the row space of A.

    Differences are taken before squaring: |A|^2 + |B|^2 - 2 <A, B> loses half the digits near convergence.
    """
    across = b.V.T @ a.V
    inside = a.U * a.s - (b.U * b.s) @ across
    outside = (b.V - a.V @ across.T) * b.s
    return float(np.hypot(np.linalg.norm(inside), np.linalg.norm(outside)))
