"""Alternating least squares with fixed numbers of sweeps: our contender beside other libraries' ALS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ew_pipeline.core.arrays import Float
from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.factors import LowRankFactors
from ew_pipeline.method.large.als import (
    SINGLE_FROM,
    Prior,
    Variance,
    balanced,
    filled,
    first_guess,
    gram,
    sweep,
)
from ew_pipeline.method.paper.denoise import check_rank
from ew_pipeline.method.sales_matrix import SalesMatrix


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
    threads: int = 1,
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
    threads
        Blocks of lines solved side by side; the result does not depend on it.
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
    precision: type[np.floating[Any]] = np.float64 if sales.n_observed < SINGLE_FROM else np.float32
    both = BothWays.of(
        sales, None if level is None else _checked_level(level, sales.n_observed), precision, threads
    )
    if both.mean == 0.0:
        return AlsFit(LowRankFactors(left=np.zeros((n, rank)), right=np.zeros((m, rank))), 0, ())
    U, V = first_guess(both, rank, rng) if start is None else _checked_start(start, sales.shape, rank)
    U, V = (np.asarray(side, dtype=precision) for side in (U, V))
    penalty = ridge * rank / both.mean
    priors = (Prior.ridge(rank, penalty),) * 2
    path = []
    for done in range(sweeps_least_squares + sweeps_poisson):
        variance = Variance(constant=both.mean) if done < sweeps_least_squares else Variance()
        U, V, loss = sweep(
            both, U, V, priors=priors, floor=floor * both.mean, variance=variance, threads=threads
        )
        U, V = balanced(U, V)
        path.append(loss + penalty * float(np.trace(gram(U)) + np.trace(gram(V))))
    factors = LowRankFactors(
        left=np.asarray(filled(U, both.by_row.indptr), dtype=np.float64),
        right=np.asarray(filled(V, both.by_column.indptr), dtype=np.float64),
    )
    return AlsFit(factors, n_iter=len(path), objective_path=tuple(path))


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
    return start.left, start.right
