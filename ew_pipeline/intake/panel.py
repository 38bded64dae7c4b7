"""Sales of many weeks side by side: one row per pair, one column per week, and what was known when.

A cell is a number (zero included) where the pair was observed, and NaN where it was not ranged or its store
did not report. ``Panel.until(t)`` gives what was known at the end of week t: a smaller panel that holds
nothing later, so code that is given it cannot look ahead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Int32, Int64
from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.kernels import njit
from ew_pipeline.method.sales_matrix import SalesMatrix

MOST_RUNS = 64  # every run is a pass over the pairs; more than this is no order at all
Whole = NDArray[np.signedinteger[Any]]
Units = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]


def ascending(store: Codes, sku: Codes) -> bool:
    """Whether pairs ascend by store and, within a store, by SKU: whoever looks for one counts on it."""
    later, same = store[1:] > store[:-1], store[1:] == store[:-1]
    return bool((later | (same & (sku[1:] > sku[:-1]))).all())


@dataclass(frozen=True, eq=False)
class Panel:
    """Units of every pair in every week.

    Attributes
    ----------
    store_ids, sku_ids : text, ascending.
    store, sku : codes into them, one per pair; pairs are in row-major order.
    weeks : labels of the columns, consecutive in time; a week without any row is there, all NaN.
    units : pairs x weeks, NaN where not observed.
    promo : pairs x weeks, False where not known; None when the table does not say.
    """

    store_ids: NDArray[np.str_]
    sku_ids: NDArray[np.str_]
    store: Codes
    sku: Codes
    weeks: tuple[str, ...]
    units: Units
    promo: Flags | None = None

    def __post_init__(self) -> None:
        expected = (self.store.size, len(self.weeks))
        if self.units.shape != expected or (self.promo is not None and self.promo.shape != expected):
            raise DataError(f"the panel must have one row per pair and one column per week: {expected}.")
        if not ascending(self.store, self.sku):
            raise DataError(
                "the pairs of a panel must be in row-major order, each once.",
                "sort them by store and SKU, or use panel_from_codes.",
            )
        for array in (self.store_ids, self.sku_ids, self.store, self.sku, self.units, self.promo):
            if array is not None:
                array.setflags(write=False)

    @property
    def n_pairs(self) -> int:
        return self.store.size

    @property
    def n_weeks(self) -> int:
        return len(self.weeks)

    @cached_property
    def observed(self) -> Flags:
        """Where there is a number."""
        seen = ~np.isnan(self.units)
        seen.setflags(write=False)
        return seen

    def index(self, week: str) -> int:
        """The column of ``week``."""
        if week not in self.weeks:
            raise UsageError(
                f"week {week} is not in the sales, which run from {self.weeks[0]} to {self.weeks[-1]}.",
                "choose from them.",
            )
        return self.weeks.index(week)

    def until(self, t: int) -> Panel:
        """What was known at the end of week ``t``: a panel that holds no later column."""
        if not 0 <= t < self.n_weeks:
            raise UsageError(f"week number {t} is not one of the {self.n_weeks} weeks.")
        if t == self.n_weeks - 1:  # nothing is later, and nobody can write to it
            return self
        return Panel(
            self.store_ids,
            self.sku_ids,
            self.store,
            self.sku,
            self.weeks[: t + 1],
            self.units[:, : t + 1].copy(),
            None if self.promo is None else self.promo[:, : t + 1].copy(),
        )

    def recent(self, weeks: int) -> tuple[Panel, npt.NDArray[np.int64]]:
        """The last ``weeks`` weeks of the pairs observed in them, and which rows of this panel those are.

        Stores and SKUs that do not occur are left out: two panels that differ only in what lies further back
        give the same one.
        """
        first = max(0, self.n_weeks - weeks)
        rows = np.flatnonzero(self.observed[:, first:].any(axis=1))
        stores, store = compact(self.store[rows], self.store_ids.size)
        skus, sku = compact(self.sku[rows], self.sku_ids.size)
        recent = Panel(
            self.store_ids[stores],
            self.sku_ids[skus],
            store,
            sku,
            self.weeks[first:],
            self.units[rows, first:],
            None if self.promo is None else self.promo[rows, first:],
        )
        return recent, rows

    def take(self, pairs: Flags) -> Panel:
        """The same weeks with only some pairs."""
        return Panel(
            self.store_ids,
            self.sku_ids,
            self.store[pairs],
            self.sku[pairs],
            self.weeks,
            self.units[pairs],
            None if self.promo is None else self.promo[pairs],
        )

    def content_hash(self) -> str:
        """SHA-256 of what was observed, promotions included: the same for any source of the same numbers.

        Pairs, stores and SKUs without an observation do not count, so a week's data keep their hash when
        later weeks, cut off by ``until``, bring new ones.
        """
        kept = self.observed.any(axis=1)
        digest = hashlib.sha256("\n".join(self.weeks).encode())
        for ids, codes in ((self.store_ids, self.store[kept]), (self.sku_ids, self.sku[kept])):
            used, place = compact(codes, ids.size)
            digest.update(b"\0" + "\n".join(ids[used]).encode() + place.astype("<i4").tobytes())
        units = np.where(self.observed[kept], self.units[kept], np.float32(-1.0))
        digest.update(np.ascontiguousarray(units, dtype="<f4").tobytes())
        if self.promo is not None and self.promo[kept].any():  # none is as good as not known
            digest.update(np.packbits(self.promo[kept]).tobytes())
        return digest.hexdigest()

    @cached_property
    def week_hashes(self) -> tuple[str, ...]:
        """SHA-256 of what was observed in each week by itself: ids, units and promotions."""
        return tuple(self._week_hash(t) for t in range(self.n_weeks))

    def _week_hash(self, t: int) -> str:
        at = np.flatnonzero(self.observed[:, t])
        digest = hashlib.sha256(b"promo" if self.promo is not None else b"")
        for ids, codes in ((self.store_ids, self.store[at]), (self.sku_ids, self.sku[at])):
            used, place = compact(codes, ids.size)
            digest.update("\n".join(ids[used]).encode() + b"\0" + place.astype("<i4").tobytes())
        digest.update(self.units[at, t].astype("<f4").tobytes())
        if self.promo is not None:
            digest.update(np.packbits(self.promo[at, t]).tobytes())
        return digest.hexdigest()

    def rows_of(self, store_ids: Iterable[object], sku_ids: Iterable[object]) -> npt.NDArray[np.int64]:
        """The row of each pair named by text ids; -1 for one that is not there."""
        store = pd.Index(self.store_ids).get_indexer(pd.Index(np.array(list(store_ids), dtype=np.str_)))
        sku = pd.Index(self.sku_ids).get_indexer(pd.Index(np.array(list(sku_ids), dtype=np.str_)))
        m = self.sku_ids.size
        keys = self.store.astype(np.int64) * m + self.sku
        wanted = np.where((store >= 0) & (sku >= 0), store.astype(np.int64) * m + sku, -1)
        position = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
        return np.where(keys[position] == wanted, position, -1)

    def sales(self, t: int) -> SalesMatrix:
        """Week ``t`` as the detector takes it. Entries are ``flatnonzero(observed[:, t])``, in that order.

        Stores and SKUs that nobody observed in the week are left out.
        """
        at = self.observed[:, t]
        if not at.any():
            raise DataError(f"no pair was observed in week {self.weeks[t]}.")
        stores, i = compact(self.store[at], self.store_ids.size)
        skus, j = compact(self.sku[at], self.sku_ids.size)
        return SalesMatrix.from_coo(
            i,
            j,
            self.units[at, t].astype(np.int64),
            (stores.size, skus.size),
            store_ids=self.store_ids[stores],
            sku_ids=self.sku_ids[skus],
            week=self.weeks[t],
        )


def compact(codes: Codes, size: int) -> tuple[npt.NDArray[np.int64], Codes]:
    """(the codes below ``size`` that occur, ascending; the place of each in them), without sorting."""
    used = np.zeros(size, dtype=np.bool_)
    used[codes] = True
    place = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(used), place[codes]


def panel_from_codes(
    store: NDArray[np.str_],
    sku: NDArray[np.str_],
    week: npt.NDArray[np.int64],
    units: npt.NDArray[np.float64],
    weeks: tuple[str, ...],
    promo: Flags | None = None,
) -> Panel:
    """From one row per observed pair and week; ``week`` counts columns of ``weeks``. Refuses duplicates."""
    store_ids, i = np.unique(store, return_inverse=True)
    sku_ids, j = np.unique(sku, return_inverse=True)
    key = i.astype(np.int64) * max(sku_ids.size, 1) + j
    return panel_from_keys(store_ids, sku_ids, key, week, units, weeks, promo)


def panel_from_keys(
    store_ids: NDArray[np.str_],
    sku_ids: NDArray[np.str_],
    key: npt.NDArray[np.int64],
    week: Whole,
    units: npt.NDArray[np.float64] | npt.NDArray[np.int32],
    weeks: tuple[str, ...],
    promo: Flags | None = None,
) -> Panel:
    """The same with pairs as keys: position of the store times number of SKUs plus position of the SKU."""
    m = max(sku_ids.size, 1)
    row, pairs = pair_rows(key)
    table = np.full((pairs.size, len(weeks)), np.nan, dtype=np.float32)
    repeated = fill_table(row, week, units, table)
    if repeated:
        order = np.sort(row.astype(np.int64) * len(weeks) + week)
        twice = np.unique(order[1:][order[1:] == order[:-1]])
        named = (f"{store_ids[pairs[c // len(weeks)] // m]}/{sku_ids[pairs[c // len(weeks)] % m]} in "
                 f"{weeks[c % len(weeks)]}" for c in twice)  # fmt: skip
        raise DataError(
            f"{repeated} rows repeat a pair in one week: {name_some(named, twice.size)}.",
            "sum them to one row per store, SKU and week.",
        )
    promoted = None
    if promo is not None:
        promoted = np.zeros(table.shape, dtype=np.bool_)
        promoted[row, week] = promo
    return Panel(
        store_ids,
        sku_ids,
        (pairs // m).astype(np.int32),
        (pairs % m).astype(np.int32),
        weeks,
        table,
        promoted,
    )


def fill_ranged_zeros(panel: Panel, trailing: int = 5) -> Panel:
    """Zeros for pairs that are still carried: sold in one of the ``trailing`` weeks before, no row now.

    Past only: whether a cell becomes a zero depends on earlier weeks of the pair alone, and on whether its
    store reported anything in the week; where it did not, the cell stays unobserved.
    """
    if trailing < 1:
        raise UsageError(f"trailing is {trailing}; it must be 1 week or more.")
    units = panel.units.copy()
    sold = panel.units > 0
    n_stores = panel.store_ids.size
    for t in range(1, panel.n_weeks):
        reported = np.zeros(n_stores, dtype=np.bool_)
        reported[panel.store[panel.observed[:, t]]] = True
        carried = sold[:, max(0, t - trailing) : t].any(axis=1)
        units[carried & reported[panel.store] & ~panel.observed[:, t], t] = 0.0
    return Panel(panel.store_ids, panel.sku_ids, panel.store, panel.sku, panel.weeks, units, panel.promo)


def pair_rows(key: Int64) -> tuple[Int32, Int64]:
    """(the place of every key among those that occur, these in ascending order)."""
    starts = np.concatenate([[0], np.flatnonzero(key[1:] <= key[:-1]) + 1, [key.size]])
    if starts.size - 1 > MOST_RUNS:
        place, found = pd.factorize(key, sort=True)
        return place.astype(np.int32), np.asarray(found)
    pairs = key[: starts[1]]
    for k in range(1, starts.size - 1):
        run = key[starts[k] : starts[k + 1]]
        merged = np.empty(pairs.size + run.size, dtype=np.int64)
        count = _merge(pairs, run, merged)
        if count > pairs.size:
            pairs = merged[:count].copy()
    row = np.empty(key.size, dtype=np.int32)
    for k in range(starts.size - 1):
        _place(pairs, key, starts[k], starts[k + 1], row)
    return row, pairs


@njit
def fill_table(row: Int32, column: Whole, values: NDArray[Any], table: NDArray[np.floating[Any]]) -> int:
    """Put every value in its place in a table of NaN; how many had to go where another was."""
    repeated = 0
    for e in range(row.size):
        i, j = row[e], column[e]
        if table[i, j] == table[i, j]:
            repeated += 1
        table[i, j] = values[e]
    return repeated


@njit
def _merge(one: Int64, other: Int64, merged: Int64) -> int:
    """Both ascending runs as one without repeats; its length."""
    i, j, n = 0, 0, 0
    while i < one.size and j < other.size:
        a, b = one[i], other[j]
        merged[n] = a if a <= b else b
        n += 1
        i += a <= b
        j += b <= a
    while i < one.size:
        merged[n] = one[i]
        n, i = n + 1, i + 1
    while j < other.size:
        merged[n] = other[j]
        n, j = n + 1, j + 1
    return n


@njit
def _place(pairs: Int64, key: Int64, begin: int, end: int, row: Int32) -> None:
    at = 0
    for e in range(begin, end):
        while pairs[at] < key[e]:
            at += 1
        row[e] = at
