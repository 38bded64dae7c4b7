"""The observed entries row by row and column by column, as compact as the passes of a large fit allow.

Indices are 32 bit, levels and probabilities single precision: at 1e7 observed pairs this is 0.08 GB
besides the sales themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Float, Float32
from ew_pipeline.method.column_order import by_column, columns_of, rows_and_counts_by_column
from ew_pipeline.method.large._als_kernels import Lines
from ew_pipeline.method.sales_matrix import SalesMatrix


@dataclass(frozen=True, eq=False)
class BothWays:
    """``by_row`` and ``by_column`` hold the same entries. ``mean`` is the mean rate: units sold per unit of
    level."""

    shape: tuple[int, int]
    by_row: Lines
    by_column: Lines
    mean: float

    @classmethod
    def of(
        cls,
        sales: SalesMatrix,
        level: Float | None = None,
        dtype: type[np.floating[Any]] = np.float32,
        threads: int = 1,
    ) -> BothWays:
        starts = columns_of(sales.cols, sales.shape[1])
        order = sales.indptr, sales.cols, starts
        none = _frozen(np.empty(0, dtype=dtype))
        L = none if level is None else _frozen(level.astype(dtype))
        rows, counts = rows_and_counts_by_column(*order, sales.counts, threads)
        total = float(sales.counts.sum(dtype=np.int64))
        return cls(
            shape=sales.shape,
            by_row=Lines(sales.indptr, sales.cols, sales.counts, L, none),
            by_column=Lines(
                _frozen(starts),
                _frozen(rows),
                _frozen(counts),
                L if level is None else _frozen(by_column(*order, L, threads)),
                none,
            ),
            mean=total / (sales.n_observed if level is None else float(level.sum())),
        )

    @property
    def n_observed(self) -> int:
        return self.by_row.counts.size

    def with_healthy(self, healthy: Float32, threads: int, space: Float32 | None = None) -> BothWays:
        """The same entries, each with its probability of being healthy, given in row-major order.

        ``space``: where these are put column by column. Rounds that follow each other share it, and so need
        the memory from the system once only.
        """
        rows = self.by_row
        healthy = _seen(healthy)
        turned = by_column(rows.indptr, rows.others, self.by_column.indptr, healthy, threads, space)
        return replace(
            self,
            by_row=replace(rows, healthy=healthy),
            by_column=replace(self.by_column, healthy=_seen(turned)),
        )


def _seen(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, not to be written to from here."""
    return _frozen(array.view())


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
