"""Sufficient statistics of theta: how many entries have which count, where much the same was predicted.

The likelihood of theta and of the noise is a sum over entries of a smooth function of (count, predicted
mean, its squared coefficient of variation cv2). Entries are put into bins by count, by narrow bands of the
mean and by classes of cv2: one term per bin gives theta to better than 1e-3 of the full likelihood (tested),
and its cost does not grow with the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int32, Int64
from ew_pipeline.method.entry_blocks import entry_shares, in_entry_blocks
from ew_pipeline.method.large._bin_kernels import CV2_UNIT, bin_entries, scale_entries

MOST_COUNTS = 512  # larger counts share the last row of the table
BAND = 0.02  # of the logarithm of the mean
MOST_BANDS = 512
MOST_CLASSES, PER_CLASS = 8, 20_000  # classes of cv2: as many as have so many entries each
SAMPLED = 20_000  # entries from which the edges of the classes are taken


@dataclass(frozen=True, eq=False)
class Grid:
    """Where an entry belongs: a class of cv2 and a band of the predicted mean."""

    edges: Float32
    low: float
    width: float
    n_bands: int

    @classmethod
    def over(cls, means: Float32, cv2: Float32, classes: int | None = None) -> Grid:
        """Bands over all means, and classes of cv2 with about equally many entries."""
        sample = cv2[:: sample_stride(cv2.size)]
        return cls.between(float(means.min()), float(means.max()), sample, means.size, classes)

    @classmethod
    def between(
        cls, least: float, most: float, cv2: Float32, n_entries: int, classes: int | None = None
    ) -> Grid:
        """From the least and the greatest mean of ``n_entries``, and cv2 of a sample of them."""
        classes = classes or min(max(n_entries // PER_CLASS, 1), MOST_CLASSES)
        low, high = math.log(least), math.log(most)
        width = max(BAND, (high - low) / MOST_BANDS)
        edges = np.quantile(cv2, np.linspace(0.0, 1.0, classes + 1)[1:-1]).astype(np.float32)
        return cls(edges, low, width, int((high - low) / width) + 1)

    @property
    def shape(self) -> tuple[int, int]:
        return self.edges.size + 1, self.n_bands

    @property
    def means(self) -> Float:
        """The middle of each band."""
        return np.asarray(np.exp(self.low + (np.arange(self.n_bands) + 0.5) * self.width))

    def scaled(
        self, scale: Float, means: Float32, cv2: Float32, threads: int = 1, out: Float32 | None = None
    ) -> Float32:
        """The means times scale[class, band], in ``out`` if it is given."""
        found = np.empty_like(means) if out is None else out

        def block(first: int, end: int) -> None:
            scale_entries(first, end, means, cv2, self.edges, self.low, self.width, scale, found)

        in_entry_blocks(block, means.size, threads)
        return found


@dataclass(frozen=True, eq=False)
class Bins:
    """The table: ``weights[class, band, count]`` entries, with the sum of the counts in each (class, band)
    and the mean of their cv2, the band's own width in it. The last count stands for all from there on."""

    grid: Grid
    weights: Int64
    sold: Int64
    cv2: Float

    @property
    def entries(self) -> Int64:
        """Entries by class and band."""
        return np.asarray(self.weights.sum(axis=2))


@dataclass(frozen=True, eq=False)
class Table:
    """Whole-number sums behind ``Bins``; those of several blocks of entries can be added in any order."""

    weights: Int64
    sold: Int64
    spread: Int64

    def __add__(self, other: Table) -> Table:
        return Table(self.weights + other.weights, self.sold + other.sold, self.spread + other.spread)

    def bins(self, grid: Grid) -> Bins:
        entries = np.maximum(self.weights.sum(axis=2), 1)
        within = grid.width**2 / 12.0  # the means of a band differ by that much from its middle
        return Bins(grid, self.weights, self.sold, self.spread * CV2_UNIT / entries + within)


def sample_stride(n_entries: int) -> int:
    """One entry in so many is looked at for the edges of the classes."""
    return max(1, n_entries // SAMPLED)


def bin_counts(counts: Int32, means: Float32, cv2: Float32, grid: Grid, threads: int = 1) -> Bins:
    """The entries binned."""
    return tabulate(counts, means, cv2, grid, int(counts.max()), threads).bins(grid)


def tabulate(
    counts: Int32, means: Float32, cv2: Float32, grid: Grid, largest: int, threads: int = 1
) -> Table:
    """The table of some entries, for counts up to ``largest``. Sums are of whole numbers, so that their
    order (and ``threads``) is immaterial."""
    n_counts = min(largest, MOST_COUNTS) + 1
    tables: list[Table] = []

    def share(first: int, end: int) -> None:
        weights = np.zeros((*grid.shape, n_counts), dtype=np.int64)
        sold, spread = np.zeros(grid.shape, dtype=np.int64), np.zeros(grid.shape, dtype=np.int64)
        bin_entries(first, end, counts, means, cv2, grid.edges, grid.low, grid.width, weights, sold, spread)
        tables.append(Table(weights, sold, spread))

    entry_shares(share, counts.size, threads)
    return reduce(add, tables)
