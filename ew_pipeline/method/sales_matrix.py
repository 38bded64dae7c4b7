"""The type that travels: one week of sales on the observed pairs, with its ids.

A pair that was ranged and sold nothing is an observed zero and is kept; a pair that was not ranged,
or whose store did not report, is simply not an entry. The two never share a value. In the paper's
letters: X on Omega (section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.method.checks import id_array, matrix_shape, positions, refuse_duplicates, whole_counts
from ew_pipeline.method.long_table import Frame, as_array, id_codes, required_columns, take, week_rows

Ids = Sequence[object] | NDArray[Any]


@dataclass(frozen=True, eq=False)
class ColumnView:
    """The same entries, column by column (CSC).

    ``entry[k]`` is the position in the row-major order of the k-th entry in column-major order, so
    ``counts[entry]`` reads the counts SKU by SKU.
    """

    indptr: NDArray[np.int64]
    rows: NDArray[np.int32]
    entry: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class SalesMatrix:
    """Units sold by n stores of m SKUs in one week, on the observed pairs (CSR, zeros kept).

    Build it with ``from_dense``, ``from_coo``, ``from_long`` or ``from_parquet``; the constructor takes
    the sparse arrays as they are and checks them. Arrays are read-only, and entries are in row-major order:
    every result of the detector is a 1-D array in that order.

    Attributes
    ----------
    indptr : where each store's entries begin; n + 1 positions.
    cols : SKU position of each entry, ascending within a store.
    counts : units sold, whole and >= 0.
    shape : (n, m).
    store_ids, sku_ids : text, one per row and per column.
    week : label of the week, or None.

    Examples
    --------
    >>> import numpy as np
    >>> sales = SalesMatrix.from_dense([[4, 0], [2, 9]], [[True, True], [False, True]])
    >>> sales.counts.tolist()
    [4, 0, 9]
    """

    indptr: NDArray[np.int64]
    cols: NDArray[np.int32]
    counts: NDArray[np.int32]
    shape: tuple[int, int]
    store_ids: NDArray[np.str_]
    sku_ids: NDArray[np.str_]
    week: str | None = None

    def __post_init__(self) -> None:
        if self.week is not None and not isinstance(self.week, str):
            raise UsageError(f"week is {self.week!r}; it must be a text label such as 2026-W34.")
        n, m = matrix_shape(self.shape)
        fields = {
            "shape": (n, m),
            "store_ids": _frozen(id_array(self.store_ids, n, "store")),
            "sku_ids": _frozen(id_array(self.sku_ids, m, "SKU")),
            "indptr": _typed(self.indptr, np.int64, "indptr"),
            "cols": _typed(self.cols, np.int32, "cols"),
            "counts": _typed(self.counts, np.int32, "counts"),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_structure()

    @classmethod
    def from_dense(
        cls,
        counts: ArrayLike,
        observed: ArrayLike | None = None,
        *,
        store_ids: Ids | None = None,
        sku_ids: Ids | None = None,
        week: str | None = None,
    ) -> SalesMatrix:
        """From an n x m array of counts and a boolean array of what was observed.

        Without ``observed`` every pair was observed, so a NaN is refused. Where a pair was not
        observed its count is ignored, whatever it is.
        """
        dense = np.asarray(counts)
        if dense.ndim != 2:
            raise DataError(f"counts have {dense.ndim} dimensions; they must have 2: stores x SKUs.")
        n, m = matrix_shape((dense.shape[0], dense.shape[1]))
        seen = np.ones((n, m), dtype=bool) if observed is None else np.asarray(observed)
        if seen.shape != (n, m):
            raise DataError(f"counts are {n} x {m} and observed has shape {seen.shape}; they must agree.")
        if seen.dtype != np.bool_:
            raise DataError(
                f"observed has type {seen.dtype}; it must be boolean.",
                "pass observed.astype(bool) if 1 means seen.",
            )
        rows, cols = np.nonzero(seen)
        return cls.from_coo(
            rows, cols, dense[rows, cols], (n, m), store_ids=store_ids, sku_ids=sku_ids, week=week
        )

    @classmethod
    def from_coo(
        cls,
        rows: ArrayLike,
        cols: ArrayLike,
        counts: ArrayLike,
        shape: tuple[int, int],
        *,
        store_ids: Ids | None = None,
        sku_ids: Ids | None = None,
        week: str | None = None,
    ) -> SalesMatrix:
        """From one (row, column, count) per observed pair, in any order."""
        n, m = matrix_shape(shape)
        stores, skus = id_array(store_ids, n, "store"), id_array(sku_ids, m, "SKU")
        i, j = positions(rows, n, "row"), positions(cols, m, "column")
        x = np.asarray(counts)
        if not i.shape == j.shape == x.shape:
            raise DataError(
                f"rows, cols and counts have shapes {i.shape}, {j.shape} and {x.shape}; they must agree."
            )

        def naming(e: int) -> str:
            return f"store {stores[i[e]]}, SKU {skus[j[e]]}"

        from ew_pipeline.method.row_major import row_major  # here: the type alone does not need numba

        rows32, cols32 = i.astype(np.int32, copy=False), j.astype(np.int32, copy=False)
        indptr, sorted_cols, sorted_counts, repeated = row_major(rows32, cols32, whole_counts(x, naming), n)
        if repeated:
            refuse_duplicates(i.astype(np.int64) * m + j, naming)
        return cls(
            indptr=_frozen(indptr, own=True),
            cols=_frozen(sorted_cols, own=True),
            counts=_frozen(sorted_counts, own=True),
            shape=(n, m),
            store_ids=_frozen(stores),
            sku_ids=_frozen(skus),
            week=week,
        )

    @classmethod
    def from_long(cls, frame: Frame, week: str | None = None) -> SalesMatrix:
        """From a table with columns ``store_id``, ``sku_id``, ``units`` and optionally ``week``.

        Every row is an observed pair, zeros included; a pair without a row is not observed. Ids are
        sorted as text. ``week`` selects the rows of that week; without a week column it is the label.
        """
        required_columns(frame, ("store_id", "sku_id", "units"))
        chosen, label = week_rows(frame, week)
        units = as_array(take(frame["units"], chosen))
        if units.size == 0:
            raise DataError("the sales table has no rows.", "pass at least one observed pair.")
        store_ids, i = id_codes(take(frame["store_id"], chosen), "store")
        sku_ids, j = id_codes(take(frame["sku_id"], chosen), "SKU")
        shape = store_ids.size, sku_ids.size
        return cls.from_coo(i, j, units, shape, store_ids=store_ids, sku_ids=sku_ids, week=label)

    @classmethod
    def from_parquet(cls, path: Path | str, week: str | None = None) -> SalesMatrix:
        """``from_long`` of a parquet file, in less than half the time and a third of the memory."""
        from ew_pipeline.method.long_parquet import sales_from_parquet

        return sales_from_parquet(path, week)

    @property
    def n_observed(self) -> int:
        """|Omega|, the number of observed pairs."""
        return self.counts.size

    @property
    def density(self) -> float:
        """The share of all pairs that was observed."""
        return self.n_observed / (self.shape[0] * self.shape[1])

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """Store position of each entry."""
        return _frozen(np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.indptr)), own=True)

    @cached_property
    def by_column(self) -> ColumnView:
        """The entries SKU by SKU."""
        entry = np.arange(self.n_observed, dtype=np.int64)
        csc = sparse.csr_array((entry, self.cols, self.indptr), shape=self.shape).tocsc()
        return ColumnView(
            indptr=_frozen(csc.indptr.astype(np.int64), own=True),
            rows=_frozen(csc.indices.astype(np.int32), own=True),
            entry=_frozen(csc.data, own=True),
        )

    def to_dense(self, values: ArrayLike | None = None, fill: float = np.nan) -> NDArray[Any]:
        """An n x m array of ``values`` (one per entry; the counts by default), ``fill`` elsewhere."""
        entries = self.counts if values is None else np.asarray(values)
        if entries.shape != self.counts.shape:
            raise UsageError(f"values have shape {entries.shape} for {self.n_observed} observed pairs.")
        dense = np.full(self.shape, fill, dtype=np.result_type(entries.dtype, np.asarray(fill).dtype))
        dense[self.rows, self.cols] = entries
        return dense

    def to_long(self) -> dict[str, NDArray[Any]]:
        """Columns ``store_id``, ``sku_id`` and ``units``, one row per entry in row-major order."""
        return {
            "store_id": self.store_ids[self.rows],
            "sku_id": self.sku_ids[self.cols],
            "units": self.counts.copy(),
        }

    def transpose(self) -> SalesMatrix:
        """SKUs as rows and stores as columns."""
        view = self.by_column
        return SalesMatrix(
            indptr=view.indptr,
            cols=view.rows,
            counts=_frozen(self.counts[view.entry], own=True),
            shape=(self.shape[1], self.shape[0]),
            store_ids=self.sku_ids,
            sku_ids=self.store_ids,
            week=self.week,
        )

    def select(self, entry_mask: ArrayLike) -> SalesMatrix:
        """The same stores and SKUs with only the entries where ``entry_mask`` is True observed."""
        keep = np.asarray(entry_mask)
        if keep.dtype != np.bool_ or keep.shape != self.counts.shape:
            raise UsageError(
                f"the mask is {keep.dtype} of shape {keep.shape}; it must be boolean, one value for each of "
                f"the {self.n_observed} observed pairs."
            )
        kept_before = np.concatenate([[0], np.cumsum(keep)])
        return SalesMatrix(
            indptr=_frozen(kept_before[self.indptr], own=True),
            cols=_frozen(self.cols[keep], own=True),
            counts=_frozen(self.counts[keep], own=True),
            shape=self.shape,
            store_ids=self.store_ids,
            sku_ids=self.sku_ids,
            week=self.week,
        )

    def __repr__(self) -> str:
        week = "" if self.week is None else f", week {self.week}"
        n, m = self.shape
        return f"SalesMatrix({n} stores x {m} SKUs, {self.n_observed} observed ({self.density:.3g}){week})"

    def __reduce__(self) -> tuple[object, ...]:
        # numpy forgets the read-only flag when it pickles; going through the constructor restores it.
        fields = (self.indptr, self.cols, self.counts, self.shape, self.store_ids, self.sku_ids, self.week)
        return type(self), fields

    def _check_structure(self) -> None:
        n, m = self.shape
        steps = np.diff(self.indptr)
        if self.indptr.shape != (n + 1,) or self.indptr[0] != 0 or (steps < 0).any():
            raise DataError(f"indptr must be {n + 1} positions that start at 0 and never fall.")
        if not self.cols.shape == self.counts.shape == (self.indptr[-1],):
            raise DataError(
                f"indptr ends at {self.indptr[-1]}, cols have shape {self.cols.shape} and counts "
                f"{self.counts.shape}; they must agree."
            )
        if self.counts.size == 0:
            raise DataError("no pair was observed.", "pass at least one observed pair.")
        if self.cols.min() < 0 or self.cols.max() >= m or self.counts.min() < 0:
            raise DataError(
                f"cols must lie in 0..{m - 1} and counts must be >= 0.", "use SalesMatrix.from_coo."
            )
        falls = np.flatnonzero(self.cols[1:] <= self.cols[:-1]) + 1  # allowed only where a new row begins
        if not np.isin(falls, self.indptr, kind="sort").all():
            raise DataError("cols must ascend within each row.", "use SalesMatrix.from_coo, which sorts.")


def _typed(array: NDArray[Any], dtype: type[np.integer[Any]], name: str) -> NDArray[Any]:
    # Converting here would truncate fractions and wrap large numbers without a word.
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
        raise UsageError(f"{name} must be a 1-D array of {dtype.__name__}.", "use SalesMatrix.from_coo.")
    return _frozen(array)


def _frozen(array: NDArray[Any], own: bool = False) -> NDArray[Any]:
    """The array, read-only. Unless we own it, a writeable one is copied: its owner may still write."""
    if array.flags.writeable:
        array = array if own else array.copy()
        array.flags.writeable = False
    return array
