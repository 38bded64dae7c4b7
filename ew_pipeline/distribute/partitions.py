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
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ew_pipeline.algorithm.row_blocks import RowBlock
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.distribute.blocks import ClusterBlocks
from ew_pipeline.errors import DataError, UsageError, name_some
from ew_pipeline.week import Week

if TYPE_CHECKING:
    import pandas as pd
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
    frame = _rows(path, week, ("store_id", "sku_id", "week"))
    return Census(path, _distinct(frame["store_id"]), _distinct(frame["sku_id"]), len(frame))


def read_block(
    paths: Sequence[str], week: str, stores: Ids, skus: Ids, first_row: int, first_entry: int
) -> RowBlock:
    """On a worker: the rows of its stores, checked as any ``SalesMatrix`` is."""
    import pandas as pd

    frame = pd.concat([_rows(path, week, COLUMNS) for path in paths], ignore_index=True)
    sales = SalesMatrix.from_coo(
        np.searchsorted(stores, frame["store_id"].to_numpy(dtype=str)),
        np.searchsorted(skus, frame["sku_id"].to_numpy(dtype=str)),
        frame["units"].to_numpy(),
        (len(stores), len(skus)),
        store_ids=stores,
        sku_ids=skus,
        week=week,
    )
    return RowBlock.of(sales, first_row, first_entry)


def _rows(path: str, week: str, columns: Sequence[str]) -> pd.DataFrame:
    """The rows of the week; weeks may be labels or the date they start."""
    missing = set(columns) - set(pq.read_schema(path).names)
    if missing:
        raise DataError(
            f"{path} has no column {', '.join(sorted(missing))}.",
            "see ew_pipeline/schema.py for the columns.",
        )
    frame = pq.read_table(path, columns=list(columns)).to_pandas()
    labels = frame["week"].unique()
    wanted = [label for label in labels if str(Week.parse(str(label)[:10])) == week]
    rows: pd.DataFrame = frame[frame["week"].isin(wanted)]
    return rows


def _distinct(column: Any) -> Ids:
    return np.unique(column.to_numpy(dtype=str))


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
