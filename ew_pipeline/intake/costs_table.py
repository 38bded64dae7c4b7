"""Costs of every pair from a table by store, SKU, both, or for the whole chain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ew_pipeline.method.costs import Costs

Codes = npt.NDArray[np.int64]
Money = npt.NDArray[np.float64]
ALL = -1


@dataclass(frozen=True, eq=False)
class CostRows:
    """Rows of the table, those of unknown ids left out; ``store`` and ``sku`` are positions, or ``ALL``."""

    store: Codes
    sku: Codes
    false_alarm: Money
    missed: Money


def price_pairs(
    rows: CostRows | None, store: Codes, sku: Codes, shape: tuple[int, int], default: tuple[float, float]
) -> Costs:
    """The costs of each pair: its own row, or its SKU's, its store's, the chain's, or ``default``.

    ``store`` and ``sku`` are positions, one per pair; ``default`` is (false alarm, missed). Without a table
    all pairs have the same two costs.
    """
    if rows is None:
        return Costs(*default)
    row = _most_specific(rows, store, sku, shape)
    # The defaults come after the last row, which is where -1 points.
    return Costs(np.append(rows.false_alarm, default[0])[row], np.append(rows.missed, default[1])[row])


def _most_specific(rows: CostRows, store: Codes, sku: Codes, shape: tuple[int, int]) -> Codes:
    """The row that prices each pair, -1 for none."""
    every_store, every_sku = rows.store == ALL, rows.sku == ALL
    chain = np.flatnonzero(every_store & every_sku)
    row = np.full(store.size, chain[0] if chain.size else -1, dtype=np.int64)
    for chosen, codes, size, pairs in (
        (~every_store & every_sku, rows.store, shape[0], store),
        (every_store & ~every_sku, rows.sku, shape[1], sku),
    ):
        place = np.full(size, -1, dtype=np.int64)
        place[codes[chosen]] = np.flatnonzero(chosen)
        own = place[pairs]
        row = np.where(own >= 0, own, row)
    both = np.flatnonzero(~every_store & ~every_sku)
    if both.size:
        keys = rows.store[both] * shape[1] + rows.sku[both]
        order = np.argsort(keys)
        wanted = store * shape[1] + sku
        position = np.minimum(np.searchsorted(keys[order], wanted), both.size - 1)
        hit = keys[order][position] == wanted
        row[hit] = both[order][position[hit]]
    return row
