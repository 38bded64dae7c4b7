"""Step 1 for large or sparse data: alternating least squares on the observed entries alone.

    minimise over U, V    sum_Omega w_ij (X_ij - L_ij u_i.v_j)^2 + penalty (|U|_F^2 + |V|_F^2)

First with fixed weights (least squares), then with w = 1 / rate at the current estimate: the variance of
a Poisson count is its mean, so these are the weights of the likelihood (iteratively reweighted least
squares). Not in the paper, whose zero-filled SVD (Algorithm 1, step 1) breaks down on sparse data.

L is an optional level known beforehand, one per observed entry: the low rank is then the ratio to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ew_pipeline.core.arrays import Float, Int64, Real
from ew_pipeline.method.both_ways import BothWays

# Named twice to be exported too: other rooms do not import from private modules.
from ew_pipeline.method.large._als_kernels import Prior as Prior
from ew_pipeline.method.large._als_kernels import Variance as Variance
from ew_pipeline.method.large._als_kernels import gram as gram
from ew_pipeline.method.large._als_kernels import half_sweep, line_sums, turned

# Observed pairs from which the factors are kept in single precision: the passes are bound by memory there,
# and what rounding does to a factor is a thousandth of its own random error. Sums stay double.
SINGLE_FROM = 500_000


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
