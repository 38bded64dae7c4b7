"""The data of a comparison: drawn once, kept in a folder, read by the process of every contender."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.studies.ensemble import SparseInstance, SparseSettings, draw_sparse

ARRAYS = ("indptr", "cols", "counts", "rates", "anomalous", "left", "right")


@dataclass(frozen=True)
class Size:
    """How large the data are, and the seed they are drawn from."""

    rows: int
    cols: int
    observed: int
    rank: int = 5
    seed: int = 0

    @property
    def settings(self) -> SparseSettings:
        return SparseSettings(n=self.rows, m=self.cols, observed=self.observed, rank=self.rank)

    def grown(self, observed: float) -> Size:
        """The same density with another number of observed pairs: rows and columns go with its root."""
        ratio = (observed / self.observed) ** 0.5
        rows, cols = (max(int(length * ratio), 20) for length in (self.rows, self.cols))
        return Size(rows, cols, int(observed), self.rank, self.seed)


def store(size: Size, folder: Path) -> Path:
    """Draw the data into the folder."""
    instance = draw_sparse(size.settings, np.random.default_rng(size.seed))
    sales = instance.sales
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", getattr(sales if hasattr(sales, name) else instance, name))
    return folder


def load(folder: Path) -> SparseInstance:
    """The data, in memory."""
    arrays = {name: np.load(folder / f"{name}.npy") for name in ARRAYS}
    for array in arrays.values():
        array.flags.writeable = False  # ours alone: SalesMatrix need not copy
    n, m = len(arrays["left"]), len(arrays["right"])
    sales = SalesMatrix(
        arrays["indptr"],
        arrays["cols"],
        arrays["counts"],
        (n, m),
        np.arange(n).astype(np.str_),
        np.arange(m).astype(np.str_),
    )
    return SparseInstance(sales, arrays["rates"], arrays["anomalous"], arrays["left"], arrays["right"])
