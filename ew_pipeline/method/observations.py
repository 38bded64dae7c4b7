"""The observed entries in the forms the compiled passes want."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from scipy.special import gammaln

from ew_pipeline.core.arrays import Float, Float32, Int32, Int64
from ew_pipeline.method.sales_matrix import SalesMatrix


class HasCounts(Protocol):
    """Counts with log x!: all that a law of counts needs to know of them."""

    @property
    def counts(self) -> Float: ...

    @property
    def log_factorial(self) -> Float: ...


@dataclass(frozen=True, eq=False)
class Observations:
    """The observed entries in the forms the kernels want; built once, shared by all fits."""

    sales: SalesMatrix
    counts: Float
    log_factorial: Float
    level: Float
    row_entry: Int64
    col_indptr: Int64
    col_rows: Int32
    col_entry: Int64

    @classmethod
    def of(cls, sales: SalesMatrix, level: Float | None = None) -> Observations:
        counts = sales.counts.astype(np.float64)
        by_column = sales.by_column
        return cls(
            sales=sales,
            counts=counts,
            log_factorial=np.asarray(gammaln(counts + 1.0)),
            level=np.ones_like(counts) if level is None else np.asarray(level, dtype=np.float64),
            row_entry=np.arange(counts.size, dtype=np.int64),
            col_indptr=by_column.indptr,
            col_rows=by_column.rows,
            col_entry=by_column.entry,
        )

    @cached_property
    def counts32(self) -> Float32:
        return self.counts.astype(np.float32)

    @cached_property
    def level32(self) -> Float32:
        return self.level.astype(np.float32)

    @cached_property
    def col_counts32(self) -> Float32:
        """The counts column by column."""
        return self.counts32[self.col_entry]
