"""One week in blocks of rows: what a block does with its entries, and how blocks are added up.

A block holds the entries of some stores, by row and by column. The factors are small and are handed to
every block; what comes back is the factors of the block's own rows and sums over its entries, which are
added up. No function here knows where the blocks are: ``LocalBlocks`` has them in this process, and
``ew_pipeline.cluster`` on the workers of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np

from ew_pipeline.core.arrays import Float, Float32, Int64, Real
from ew_pipeline.method._layout import padded
from ew_pipeline.method.both_ways import BothWays
from ew_pipeline.method.entry_blocks import in_line_blocks
from ew_pipeline.method.families import ExposureFamily
from ew_pipeline.method.large._als_kernels import Prior, Variance, half_sweep, line_sums
from ew_pipeline.method.large._column_kernels import sum_columns
from ew_pipeline.method.large.binned import Grid, Table, tabulate
from ew_pipeline.method.large.factor_state import FactorState
from ew_pipeline.method.large.scores import healthy_probabilities
from ew_pipeline.method.sales_matrix import SalesMatrix
from ew_pipeline.method.variational.theta import Parameters

Result = TypeVar("Result")
Parts = Sequence[Any]  # one for each block; what they are is the business of who holds the blocks


def array_bytes(*values: object) -> int:
    """Of all arrays in some values, each once; what else there is hardly counts."""
    arrays: dict[int, int] = {}
    todo = list(values)
    while todo:
        value = todo.pop()
        if isinstance(value, np.ndarray):
            arrays[id(value)] = value.nbytes
        elif isinstance(value, dict):
            todo.extend(value.values())
        elif isinstance(value, (list, tuple)):
            todo.extend(value)
        elif hasattr(value, "__dataclass_fields__"):
            todo.extend(vars(value).values())
    return sum(arrays.values())


class Weighed:
    """Says how large its arrays are. Whoever holds blocks goes by that when deciding what to move where, and
    when memory is short; of an object that does not say, a scheduler sees a few bytes."""

    def __sizeof__(self) -> int:
        return array_bytes(self)


@dataclass(frozen=True, eq=False)
class RowBlock(Weighed):
    """The entries of rows ``first_row`` onwards; ``first_entry`` of them come before, in other blocks."""

    sales: SalesMatrix
    both: BothWays
    first_row: int
    first_entry: int

    @classmethod
    def of(
        cls,
        sales: SalesMatrix,
        first_row: int,
        first_entry: int,
        level: Float | None = None,
        dtype: type[np.floating[Any]] = np.float32,
    ) -> RowBlock:
        return cls(sales, BothWays.of(sales, level, dtype), first_row, first_entry)


@dataclass(frozen=True, eq=False)
class Prediction(Weighed):
    """Of a block's entries: demand as fitted and as predicted without the entry, its squared coefficient of
    variation, and the probability of being healthy once it is known. ``uncalibrated``: the sum of the cavity
    means before they were calibrated."""

    means: Float32
    cavity: Float32
    cv2: Float32
    healthy: Float32 | None = None
    uncalibrated: float = 0.0


@dataclass(frozen=True, eq=False)
class Weights(Weighed):
    """f of a block's entries, by row and by column."""

    by_row: Float32
    by_column: Float32


class Blocks(Protocol):
    """All blocks of a week. A ``step`` takes a block, then what belongs to it (one item of each of
    ``parts``), then what is ``shared`` by all."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def row_bounds(self) -> Int64:
        """Where the rows of each block begin, and where the last ones end."""

    @property
    def n_observed(self) -> int: ...

    def keep(self, step: Callable[..., object], parts: Sequence[Parts], *shared: object) -> Parts:
        """One result per block, which stays with its block."""

    def total(self, step: Callable[..., Result], parts: Sequence[Parts], *shared: object) -> Result:
        """The sum (``+``) of the results, brought here."""


@dataclass(frozen=True, eq=False)
class LocalBlocks:
    """Blocks in this process."""

    blocks: tuple[RowBlock, ...]
    shape: tuple[int, int]
    row_bounds: Int64
    n_observed: int

    @classmethod
    def cut(
        cls, sales: SalesMatrix, row_bounds: Sequence[int], dtype: type[np.floating[Any]] = np.float32
    ) -> LocalBlocks:
        bounds = np.asarray(row_bounds, dtype=np.int64)
        parts = [
            RowBlock.of(rows_between(sales, first, end), first, int(sales.indptr[first]), dtype=dtype)
            for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]
        return cls(tuple(parts), sales.shape, bounds, sales.n_observed)

    def keep(self, step: Callable[..., object], parts: Sequence[Parts], *shared: object) -> Parts:
        return [step(*own, *shared) for own in zip(self.blocks, *parts, strict=True)]

    def total(self, step: Callable[..., Result], parts: Sequence[Parts], *shared: object) -> Result:
        found: Result = reduce(add, self.keep(step, parts, *shared))
        return found


def rows_between(sales: SalesMatrix, first: int, end: int) -> SalesMatrix:
    """Some rows as a matrix of their own, all columns kept."""
    entries = slice(int(sales.indptr[first]), int(sales.indptr[end]))
    return SalesMatrix(
        indptr=sales.indptr[first : end + 1] - sales.indptr[first],
        cols=sales.cols[entries],
        counts=sales.counts[entries],
        shape=(end - first, sales.shape[1]),
        store_ids=sales.store_ids[first:end],
        sku_ids=sales.sku_ids,
        week=sales.week,
    )


@dataclass(frozen=True, eq=False)
class Totals(Weighed):
    """By column: units sold, level offered (entries, where there is no level), entries."""

    sold: Int64
    offered: Float
    entries: Int64

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.sold + other.sold, self.offered + other.offered, self.entries + other.entries)


def column_totals(block: RowBlock) -> Totals:
    columns = block.both.by_column
    entries = np.diff(columns.indptr)
    sold = line_sums(columns.indptr, columns.counts).astype(np.int64)
    offered = line_sums(columns.indptr, columns.level) if columns.level.size else entries.astype(np.float64)
    return Totals(sold, offered, entries)


@dataclass(frozen=True, eq=False)
class HalfSweep(Weighed):
    """New factors of the rows of some blocks, by where they begin, with their inverse informations; and the
    normal equations of all columns, summed over those rows."""

    left: dict[int, tuple[Real, Real]]
    sums: Float

    def __add__(self, other: HalfSweep) -> HalfSweep:
        return HalfSweep(self.left | other.left, self.sums + other.sums)


def sweep_block(
    block: RowBlock,
    weights: Weights | None,
    left: Real,
    right: Real,
    prior: Prior,
    floor: float,
    variance: Variance,
    threads: int,
) -> HalfSweep:
    """All rows of the block given the columns, and what they say of the columns."""
    both = _weighed(block, weights)
    rank = right.shape[1]
    inverses = np.empty((len(left), rank * (rank + 1) // 2), dtype=left.dtype)
    new, _ = half_sweep(
        both.by_row,
        right,
        left,
        prior=prior,
        floor=floor,
        variance=variance,
        inverses=inverses,
        threads=threads,
    )
    columns, wide = both.by_column, padded(new)
    sums = np.empty((block.both.shape[1], (rank + 1) * (rank + 2) // 2))

    def work(first: int, end: int) -> None:
        sum_columns(
            first,
            end,
            columns.indptr,
            columns.others,
            columns.counts,
            columns.level,
            columns.healthy,
            wide,
            right,
            floor,
            variance.constant,
            variance.inverse_size,
            variance.alpha,
            variance.inverse_shape,
            sums,
        )

    in_line_blocks(work, columns.indptr, threads)
    return HalfSweep({block.first_row: (new, inverses)}, sums)


def predict_block(
    block: RowBlock,
    weights: Weights | None,
    left: tuple[Real, Real],
    right: tuple[Real, Real],
    mean: float,
    variance: Variance,
    threads: int,
) -> Prediction:
    """Leave-one-out predictions of the block's entries; ``left`` and ``right``: factors and inverses."""
    both = replace(_weighed(block, weights), mean=mean)
    means, cavity, cv2 = (np.empty(both.n_observed, dtype=np.float32) for _ in range(3))
    state = FactorState.start(both, left[0], right[0])
    state.inverses = left[1], right[1]
    state.predict(both, variance, threads, means, cavity, cv2)
    return Prediction(means, cavity, cv2)


@dataclass(frozen=True, eq=False)
class Spread:
    """The range of the predicted means, the largest count, and a sample of cv2 by where it was taken."""

    low: float
    high: float
    most: int
    cv2: dict[int, Float32]

    def __add__(self, other: Spread) -> Spread:
        return Spread(
            min(self.low, other.low),
            max(self.high, other.high),
            max(self.most, other.most),
            self.cv2 | other.cv2,
        )


def spread_of(block: RowBlock, predicted: Prediction, stride: int) -> Spread:
    """``stride``: one entry in so many is sampled, counted over all blocks."""
    skip = -block.first_entry % stride
    return Spread(
        float(predicted.cavity.min()),
        float(predicted.cavity.max()),
        int(block.sales.counts.max()),
        {block.first_row: predicted.cv2[skip::stride]},
    )


def table_of(block: RowBlock, predicted: Prediction, grid: Grid, largest: int, threads: int) -> Table:
    """The block's entries binned."""
    return tabulate(block.sales.counts, predicted.cavity, predicted.cv2, grid, largest, threads)


def rescored(
    block: RowBlock,
    predicted: Prediction,
    grid: Grid,
    scale: Float,
    family: ExposureFamily,
    parameters: Parameters,
    threads: int,
) -> Prediction:
    """The same with the cavity means calibrated and f known."""
    cavity = grid.scaled(scale, predicted.cavity, predicted.cv2, threads)
    healthy = healthy_probabilities(block.sales.counts, cavity, predicted.cv2, family, parameters, threads)
    return replace(
        predicted, cavity=cavity, healthy=healthy, uncalibrated=float(predicted.cavity.sum(dtype=np.float64))
    )


def weights_of(block: RowBlock, known: Prediction, threads: int) -> Weights:
    """f once more by column, for all sweeps of a round; the rest of what was predicted may go."""
    assert known.healthy is not None
    both = block.both.with_healthy(known.healthy, threads)
    return Weights(both.by_row.healthy, both.by_column.healthy)


@dataclass(frozen=True)
class Lift:
    """Sums of the predicted means, calibrated and not; their ratio is what the calibration adds overall."""

    calibrated: float
    uncalibrated: float

    def __add__(self, other: Lift) -> Lift:
        return Lift(self.calibrated + other.calibrated, self.uncalibrated + other.uncalibrated)

    @property
    def ratio(self) -> float:
        return self.calibrated / self.uncalibrated


def lift_of(block: RowBlock, known: Prediction) -> Lift:
    return Lift(float(known.cavity.sum(dtype=np.float64)), known.uncalibrated)


def lifted(block: RowBlock, known: Prediction, lift: float) -> Prediction:
    """The same with the fitted means calibrated overall."""
    return replace(known, means=known.means * np.float32(lift))


def _weighed(block: RowBlock, weights: Weights | None) -> BothWays:
    if weights is None:
        return block.both
    both = block.both
    return replace(
        both,
        by_row=replace(both.by_row, healthy=weights.by_row),
        by_column=replace(both.by_column, healthy=weights.by_column),
    )
