"""Which matrix a pair belongs to: an attribute of its SKU, its store, or the pair itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
ALL, UNKNOWN = "all", "unknown"


@dataclass(frozen=True, eq=False)
class Segments:
    """``names[of(keys)]`` is the segment of each pair.

    Attributes
    ----------
    names : sorted; the last one stands for pairs of which nothing is known.
    by_store, by_sku : segment of each position, when the attribute is one of the store or the SKU.
    keys, by_key : otherwise, ascending keys of pairs and the segment of each.
    """

    names: tuple[str, ...]
    skus: int
    by_store: Codes | None = None
    by_sku: Codes | None = None
    keys: Keys | None = None
    by_key: Codes | None = None

    def of(self, pairs: Keys) -> Codes:
        if self.by_store is not None:
            return self.by_store[pairs // self.skus]
        if self.by_sku is not None:
            return self.by_sku[pairs % self.skus]
        if self.keys is None or self.by_key is None or self.keys.size == 0:
            return np.broadcast_to(np.int32(len(self.names) - 1), pairs.size)
        position = np.minimum(np.searchsorted(self.keys, pairs), self.keys.size - 1)
        return np.where(self.keys[position] == pairs, self.by_key[position], len(self.names) - 1).astype(
            np.int32
        )


def one_segment(skus: int) -> Segments:
    """All pairs in one matrix."""
    return Segments((ALL,), skus)


def segments_of_axis(names: tuple[str, ...], codes: Codes, skus: int, *, stores: bool) -> Segments:
    """From a table of stores or SKUs: the segment of each position, -1 where it is missing."""
    known, names = _with_unknown(names, codes)
    return Segments(names, skus, by_store=known) if stores else Segments(names, skus, by_sku=known)


def segments_of_pairs(names: tuple[str, ...], keys: Keys, codes: Codes, shape: tuple[int, int]) -> Segments:
    """From a column beside the pairs, latest row last; -1 where it is missing.

    Where every SKU has one value, it is the SKU's, also for pairs without a row; likewise for stores.
    """
    stated = codes >= 0
    keys, codes = keys[stated], codes[stated]
    for position, size, stores in ((keys % shape[1], shape[1], False), (keys // shape[1], shape[0], True)):
        value = np.full(size, -1, dtype=np.int32)
        value[position] = codes
        if np.array_equal(value[position], codes):
            return segments_of_axis(names, value, shape[1], stores=stores)
    # np.unique keeps the first of equal keys; reversed, that is the latest row.
    unique, last = np.unique(keys[::-1], return_index=True)
    known, names = _with_unknown(names, codes[::-1][last])
    return Segments(names, shape[1], keys=unique, by_key=known)


def _with_unknown(names: tuple[str, ...], codes: Codes) -> tuple[Codes, tuple[str, ...]]:
    if UNKNOWN in names:  # a person's own "unknown" is the same thing
        at = names.index(UNKNOWN)
        order = np.array([*(k for k in range(len(names)) if k != at), at])
        place = np.empty(len(names), dtype=np.int32)
        place[order] = np.arange(len(names), dtype=np.int32)
        codes = np.where(codes >= 0, place[codes], -1).astype(np.int32)
        names = tuple(names[k] for k in order)
    else:
        names = (*names, UNKNOWN)
    return np.where(codes < 0, len(names) - 1, codes).astype(np.int32), names
