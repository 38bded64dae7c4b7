"""The paper's ensemble at national scale: drawn pair by pair, so that no n x m array is ever made.

As in ``synthetic.py``, M* = k U V^T with Gamma(1, 2) factors; here a given number of pairs, distinct and
uniformly chosen, is observed. The truth is kept apart, over the observed pairs in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import UsageError
from ew_pipeline.method.sales_matrix import SalesMatrix

FloatArray = npt.NDArray[np.float64]
CHUNK = 1 << 20


@dataclass(frozen=True)
class SparseSettings:
    """What to draw; see ``EnsembleSettings``. ``dispersion_size`` None is Poisson noise."""

    n: int
    m: int
    observed: int
    rank: int = 5
    mean: float = 5.0
    anomaly_rate: float = 0.04
    alpha: float = 0.2
    dispersion_size: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.observed <= self.n * self.m // 2:
            raise UsageError(
                f"{self.observed} of {self.n} x {self.m} pairs are to be observed.",
                "observe at least one and at most half of them; denser data: synthetic.draw_instance.",
            )


@dataclass(frozen=True, eq=False)
class SparseInstance:
    """The sales, and apart from them what generated them."""

    sales: SalesMatrix
    rates: FloatArray
    anomalous: npt.NDArray[np.bool_]
    left: FloatArray
    right: FloatArray


def draw_sparse(settings: SparseSettings, rng: np.random.Generator) -> SparseInstance:
    """One instance: exponential onset, Poisson or negative binomial noise."""
    n, m = settings.n, settings.m
    left, right = rng.gamma(1.0, 2.0, (n, settings.rank)), rng.gamma(1.0, 2.0, (m, settings.rank))
    left *= settings.mean / float(left.mean(axis=0) @ right.mean(axis=0))
    keys = _distinct(n * m, settings.observed, rng)
    rows, cols = keys // m, (keys % m).astype(np.int32)
    rates = np.empty(keys.size)
    for first in range(0, keys.size, CHUNK):
        part = slice(first, first + CHUNK)
        rates[part] = np.einsum("er,er->e", left[rows[part]], right[cols[part]])
    counts, anomalous = draw_week(settings, rates, rng)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
    for array in (indptr, cols, counts):
        array.flags.writeable = False  # ours alone: SalesMatrix need not copy
    sales = SalesMatrix(
        indptr, cols, counts, (n, m), np.arange(n).astype(np.str_), np.arange(m).astype(np.str_)
    )
    return SparseInstance(sales, rates, anomalous, left, right)


def draw_week(
    settings: SparseSettings, rates: FloatArray, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Sales of pairs with these rates in one week, and which of them are anomalous."""
    s0 = settings.dispersion_size
    anomalous = rng.random(rates.size) < settings.anomaly_rate
    exposure = np.ones(rates.size) if s0 is None else rng.gamma(s0, 1.0 / s0, rates.size)
    exposure[anomalous] = rng.exponential(settings.alpha, np.count_nonzero(anomalous))
    return rng.poisson(exposure * rates).astype(np.int32), anomalous


def _distinct(n: int, size: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """``size`` distinct numbers below n, ascending, uniformly chosen."""
    keys = _sorted_once(rng.integers(0, n, size))
    while keys.size < size:
        keys = _sorted_once(np.concatenate([keys, rng.integers(0, n, 2 * (size - keys.size) + 16)]))
    surplus = keys.size - size
    return np.asarray(np.delete(keys, rng.choice(keys.size, surplus, replace=False)) if surplus else keys)


def _sorted_once(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """``np.unique`` goes through a hash table first, which takes twenty times as long as sorting."""
    keys.sort()
    return np.asarray(keys[np.append(True, keys[1:] != keys[:-1])])
