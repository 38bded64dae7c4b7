"""The observed entries row by row and column by column, as compact as the passes of a large fit allow.

Indices are 32 bit, levels and probabilities single precision: at 1e7 observed pairs this is 0.16 GB
besides the sales themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.algorithm._als_kernels import Lines
from ew_pipeline.algorithm._blocks import in_entry_blocks
from ew_pipeline.algorithm._cavity_kernels import transpose_lines
from ew_pipeline.algorithm._numba import njit
from ew_pipeline.algorithm.types import Float, Float32, Int32
from ew_pipeline.data.sales_matrix import SalesMatrix


@dataclass(frozen=True, eq=False)
class BothWays:
    """``by_row`` and ``by_column`` hold the same entries; ``entry`` leads from the second to the first.

    ``mean`` is the mean rate: units sold per unit of level.
    """

    shape: tuple[int, int]
    by_row: Lines
    by_column: Lines
    entry: Int32
    mean: float

    @classmethod
    def of(
        cls, sales: SalesMatrix, level: Float | None = None, dtype: type[np.floating[Any]] = np.float32
    ) -> BothWays:
        n = sales.n_observed
        col_indptr = np.zeros(sales.shape[1] + 1, dtype=np.int64)
        np.cumsum(np.bincount(sales.cols, minlength=sales.shape[1]), out=col_indptr[1:])
        rows, counts, entry = (np.empty(n, dtype=np.int32) for _ in range(3))
        transpose_lines(sales.indptr, sales.cols, sales.counts, col_indptr, rows, counts, entry)
        none = _frozen(np.empty(0, dtype=dtype))
        L = none if level is None else _frozen(level.astype(dtype))
        total = float(sales.counts.sum(dtype=np.int64))
        return cls(
            shape=sales.shape,
            by_row=Lines(sales.indptr, sales.cols, sales.counts, L, none),
            by_column=Lines(
                _frozen(col_indptr),
                _frozen(rows),
                _frozen(counts),
                L if level is None else _frozen(L[entry]),
                none,
            ),
            entry=_frozen(entry),
            mean=total / (n if level is None else float(level.sum())),
        )

    @property
    def n_observed(self) -> int:
        return self.by_row.counts.size

    def with_healthy(self, healthy: Float32, threads: int) -> BothWays:
        """The same entries, each with its probability of being healthy, given in row-major order."""
        by_column = np.empty(self.n_observed, dtype=np.float32)

        def block(first: int, end: int) -> None:
            take(first, end, healthy, self.entry, by_column)

        in_entry_blocks(block, self.n_observed, threads)
        return replace(
            self,
            by_row=replace(self.by_row, healthy=_frozen(healthy)),
            by_column=replace(self.by_column, healthy=_frozen(by_column)),
        )


@njit
def take(first: int, end: int, values: Float32, where: Int32, out: Float32) -> None:
    """out = values[where], a part of it."""
    for p in range(first, end):
        out[p] = values[where[p]]


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
