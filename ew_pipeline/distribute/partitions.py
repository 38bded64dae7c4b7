"""A week that lies in many parquet files, each with some stores of its own, as row blocks.

The client never sees the rows. A first pass over the files agrees on the ids: each worker says which stores
and SKUs are in its files and how many rows; a second one reads every file where its block will be held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ew_pipeline.algorithm.row_blocks import RowBlock
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.distribute.blocks import ClusterBlocks
from ew_pipeline.errors import DataError, UsageError, name_some
from ew_pipeline.week import Week

if TYPE_CHECKING:
    from distributed import Client

# Of a block, about. Not taken from the number of workers: where the blocks are cut decides the order of
# additions, and the same data are to give the same result on every cluster.
BLOCK_ENTRIES = 10_000_000
COLUMNS = ("store_id", "sku_id", "week", "units")
Ids = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Census:
    """What one file holds of the week."""

    path: str
    stores: Ids
    skus: Ids
    rows: int


def partition_files(folder: Path) -> list[str]:
    """The parquet files of a partitioned input, by name."""
    files = sorted(str(path) for path in folder.rglob("*.parquet")) if folder.is_dir() else []
    if not files:
        raise UsageError(
            f"{folder} is no folder of parquet files.",
            "row blocks need one: each file with all rows of some stores (for example by store range).",
        )
    return files


def load_blocks(
    client: Client, folder: Path, week: Week, block_entries: int = BLOCK_ENTRIES
) -> ClusterBlocks:
    """The week as blocks of about ``block_entries`` on the workers, cut between files."""
    files = partition_files(folder)
    seen: list[Census] = client.gather(client.map(census, files, week=str(week), pure=False))
    seen = [one for one in seen if one.rows]
    if not seen:
        raise DataError(f"no row of {week} is in {folder}.", "check the week and the folder.")
    _refuse_shared_stores(seen)
    seen.sort(key=lambda one: str(one.stores[0]))
    skus: Ids = np.unique(np.concatenate([one.skus for one in seen]))
    groups = _groups(seen, block_entries)
    stores = tuple(np.sort(np.concatenate([one.stores for one in group])) for group in groups)
    rows = np.concatenate([[0], np.cumsum([len(own) for own in stores])]).astype(np.int64)
    entries = np.concatenate([[0], np.cumsum([sum(one.rows for one in group) for group in groups])])
    shared = client.submit(_same, skus, pure=False)
    futures = [
        client.submit(
            read_block,
            [one.path for one in group],
            str(week),
            own,
            shared,
            int(rows[k]),
            int(entries[k]),
            pure=False,
        )
        for k, (group, own) in enumerate(zip(groups, stores, strict=True))
    ]
    shape = (int(rows[-1]), len(skus))
    return ClusterBlocks(client, tuple(futures), shape, rows, int(entries[-1]))


def census(path: str, week: str) -> Census:
    """On a worker: which stores and SKUs are in a file, and how many rows of the week."""
    part = _Part.read(path, week, ("store_id", "sku_id", "week"))
    return Census(path, part.stores.used(), part.skus.used(), part.stores.codes.size)


def read_block(
    paths: Sequence[str], week: str, stores: Ids, skus: Ids, first_row: int, first_entry: int
) -> RowBlock:
    """On a worker: the rows of its stores, checked as any ``SalesMatrix`` is."""
    parts = [_Part.read(path, week, COLUMNS) for path in paths]
    sales = SalesMatrix.from_coo(
        np.concatenate([part.stores.places(stores) for part in parts]),
        np.concatenate([part.skus.places(skus) for part in parts]),
        np.concatenate([part.units for part in parts]),
        (len(stores), len(skus)),
        store_ids=stores,
        sku_ids=skus,
        week=week,
    )
    return RowBlock.of(sales, first_row, first_entry)


@dataclass(frozen=True, eq=False)
class _Coded:
    """A column of texts: the distinct ones, and which of them each row has."""

    texts: Ids
    codes: NDArray[np.int32]

    @classmethod
    def of(cls, column: pa.ChunkedArray, path: str, name: str) -> _Coded:
        if column.null_count:
            raise DataError(
                f"{column.null_count} rows of {path} have no {name}.",
                "fill in the ids and week of every row.",
            )
        if not pa.types.is_dictionary(column.type):  # numbers and dates
            column = column.cast(pa.string()).dictionary_encode()
        chunks = column.unify_dictionaries().chunks
        texts = chunks[0].dictionary.cast(pa.string()).to_pylist() if chunks else []
        codes = [chunk.indices.to_numpy(zero_copy_only=False).astype(np.int32) for chunk in chunks]
        return cls(np.array(texts, dtype=np.str_), np.concatenate([np.empty(0, dtype=np.int32), *codes]))

    def kept(self, rows: NDArray[np.bool_]) -> _Coded:
        return _Coded(self.texts, self.codes[rows])

    def used(self) -> Ids:
        """The texts that some row has, sorted."""
        return np.unique(self.texts[np.bincount(self.codes, minlength=self.texts.size) > 0])

    def places(self, ids: Ids) -> NDArray[np.int64]:
        """Of each row, where its text is among the sorted ``ids``."""
        return np.asarray(np.searchsorted(ids, self.texts)[self.codes])


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of one file that are of the week; a text is made of distinct ids alone."""

    stores: _Coded
    skus: _Coded
    units: NDArray[Any]

    @classmethod
    def read(cls, path: str, week: str, columns: Sequence[str]) -> _Part:
        """Weeks may be labels or the date they start. ``units`` are read where they are asked for."""
        missing = set(columns) - set(pq.read_schema(path).names)
        if missing:
            raise DataError(
                f"{path} has no column {', '.join(sorted(missing))}.",
                "see ew_pipeline/schema.py for the columns.",
            )
        texts = ["store_id", "sku_id", "week"]
        table = pq.read_table(path, columns=list(columns), read_dictionary=texts)
        stores, skus, weeks = (_Coded.of(table[name], path, name) for name in texts)
        wanted = np.array([str(Week.parse(label[:10])) == week for label in weeks.texts.tolist()], dtype=bool)
        rows = wanted[weeks.codes]
        units = table["units"].to_numpy()[rows] if "units" in columns else np.empty(0)
        return cls(stores.kept(rows), skus.kept(rows), units)


def _same(skus: Ids) -> Ids:
    return skus


def _refuse_shared_stores(seen: Sequence[Census]) -> None:
    stores, times = np.unique(np.concatenate([one.stores for one in seen]), return_counts=True)
    twice = stores[times > 1]
    if twice.size:
        raise DataError(
            f"{twice.size} stores are in more than one file ({name_some(twice, twice.size)}).",
            "write all rows of a store to one file.",
        )


def _groups(seen: Sequence[Census], block_entries: int) -> list[list[Census]]:
    """Neighbouring files together, as long as they begin within the same ``block_entries`` rows."""
    rows = np.array([one.rows for one in seen])
    group = (np.cumsum(rows) - rows) // block_entries
    return [[seen[k] for k in np.flatnonzero(group == g).tolist()] for g in np.unique(group)]
