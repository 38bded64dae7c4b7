"""Why so much was expected: the stores and SKUs that sell alike, and what they did in the week.

Two stores are alike when they sell more and less than usual of the same SKUs: when their rows of M = U V^T,
each about its own mean, point the same way. Their cosine (the correlation of the rows) is computed from the
factors without forming M: with G = W^T W and W = V about its mean,

    cos(i, k) = u_i G u_k / sqrt(u_i G u_i  u_k G u_k).

The cosine of the factors themselves would change with the way M is split in two; this one does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ew_pipeline.core.arrays import Float
from ew_pipeline.method.result import DetectorFit

SHOWN = 5


@dataclass(frozen=True)
class Neighbour:
    """Another store with the SKU, or another SKU of the store. ``similarity``: 1 is the same profile."""

    name: str
    similarity: float
    units: int
    expected_units: float


@dataclass(frozen=True)
class Resemblance:
    """``sku_elsewhere`` and ``store_otherwise``: units over expected units, of all the others together."""

    stores: tuple[Neighbour, ...]
    skus: tuple[Neighbour, ...]
    sku_elsewhere: float | None
    store_otherwise: float | None
    rank: int


def resemblance(fit: DetectorFit, store: str, sku: str) -> Resemblance | None:
    """None when store or SKU was not in the fitted matrix."""
    sales = fit.sales
    row, column = np.flatnonzero(sales.store_ids == store), np.flatnonzero(sales.sku_ids == sku)
    if row.size == 0 or column.size == 0:
        return None
    i, j = int(row[0]), int(column[0])
    with_sku = np.flatnonzero((sales.cols == j) & (sales.rows != i))
    in_store = np.flatnonzero((sales.rows == i) & (sales.cols != j))
    left, right = fit.factors_.left, fit.factors_.right
    by_store = _cosines(left, _gram(right), i, sales.rows[with_sku])
    by_sku = _cosines(right, _gram(left), j, sales.cols[in_store])
    return Resemblance(
        stores=_nearest(fit, with_sku, by_store, sales.store_ids[sales.rows[with_sku]]),
        skus=_nearest(fit, in_store, by_sku, sales.sku_ids[sales.cols[in_store]]),
        sku_elsewhere=_share(fit, with_sku),
        store_otherwise=_share(fit, in_store),
        rank=fit.factors_.rank,
    )


def _gram(factor: Float) -> Float:
    centred = factor - factor.mean(axis=0)
    return np.asarray(centred.T @ centred)


def _cosines(factor: Float, gram: Float, own: int, others: NDArray[np.int32]) -> Float:
    mine = gram @ factor[own]
    lengths = np.sqrt(np.maximum(np.einsum("kr,rs,ks->k", factor[others], gram, factor[others]), 0.0))
    scale = lengths * np.sqrt(max(float(factor[own] @ mine), 0.0))
    product = factor[others] @ mine
    cosines = np.divide(product, scale, out=np.zeros(len(others)), where=scale > 0)
    return np.asarray(np.clip(cosines, -1.0, 1.0))


def _nearest(
    fit: DetectorFit, entries: NDArray[np.intp], cosines: Float, names: NDArray[np.str_]
) -> tuple[Neighbour, ...]:
    order = np.lexsort((names, -cosines))[:SHOWN]
    return tuple(
        Neighbour(
            name=str(names[place]),
            similarity=float(cosines[place]),
            units=int(fit.sales.counts[entries[place]]),
            expected_units=float(fit.expected_sales_[entries[place]]),
        )
        for place in order
    )


def _share(fit: DetectorFit, entries: NDArray[np.intp]) -> float | None:
    expected = float(fit.expected_sales_[entries].sum())
    return float(fit.sales.counts[entries].sum()) / expected if expected > 0 else None
