"""A week that lies in many parquet files, each with some stores of its own, as row blocks.

The client never sees the rows. A first pass over the files agrees on the ids: each worker says which stores
and SKUs are in its files, how many rows, and the hash of each file; a second one reads every file where its
block will be held.
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
from ew_pipeline.data.coded_text import CodedText
from ew_pipeline.data.sales_matrix import SalesMatrix
from ew_pipeline.data.snapshot import NOT_KEPT
from ew_pipeline.distribute.blocks import ClusterBlocks
from ew_pipeline.errors import DataError, UsageError, name_some
from ew_pipeline.provenance import canonical_hash, file_hash
from ew_pipeline.settings import RunConfig
from ew_pipeline.week import Week

if TYPE_CHECKING:
    from distributed import Client

# Of a block, about. Not taken from the number of workers: where the blocks are cut decides the order of
# additions, and the same data are to give the same result on every cluster.
BLOCK_ENTRIES = 10_000_000
COLUMNS = ("store_id", "sku_id", "week", "units")
PROMO = "promo"
Ids = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Census:
    """What one file holds of the week; ``before``: the stores with a row of the weeks before it."""

    path: str
    stores: Ids
    skus: Ids
    rows: int
    promoted: int
    before: Ids
    sha256: str


@dataclass(frozen=True)
class Reading:
    """Which rows of a file are read: those of the week, promoted ones or not. ``recent``: how many weeks
    before it tell which stores there are."""

    week: str
    recent: int = 0
    without_promoted: bool = False

    @classmethod
    def of(cls, week: Week, config: RunConfig) -> Reading:
        return cls(str(week), config.recent_weeks, config.promotions == "exclude")


@dataclass(frozen=True, eq=False)
class Partitions:
    """A week as it lies in its files: ``files`` are those with rows of it, by their first store."""

    reading: Reading
    files: tuple[Census, ...]
    missing: tuple[str, ...]  # stores that had rows in the weeks before

    @property
    def data_hash(self) -> str:
        """Of the files' hashes, in whatever folder and by whatever name."""
        content = {"week": self.reading.week, "files": sorted(one.sha256 for one in self.files)}
        return NOT_KEPT + canonical_hash(content)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)

    @property
    def promoted(self) -> int:
        return sum(one.promoted for one in self.files)

    @property
    def stores(self) -> int:
        return sum(len(one.stores) for one in self.files)


def partition_files(folder: Path) -> list[str]:
    """The parquet files of a partitioned input, by name."""
    files = sorted(str(path) for path in folder.rglob("*.parquet")) if folder.is_dir() else []
    if not files:
        raise UsageError(
            f"{folder} is no folder of parquet files.",
            "row blocks need one: each file with all rows of some stores (for example by store range).",
        )
    return files


def take_census(client: Client, folder: Path, reading: Reading) -> Partitions:
    """Have the workers say what the files hold."""
    files = partition_files(folder)
    found: list[Census] = client.gather(client.map(census, files, reading=reading, pure=False))
    seen = sorted((one for one in found if one.rows), key=lambda one: str(one.stores[0]))
    if not seen:
        raise DataError(f"no row of {reading.week} is in {folder}.", "check the week and the folder.")
    _refuse_shared_stores(seen)
    here = np.concatenate([one.stores for one in seen])
    missing = np.setdiff1d(np.concatenate([one.before for one in found]), here)
    return Partitions(reading, tuple(seen), tuple(str(store) for store in missing))


def load_blocks(client: Client, week: Partitions, block_entries: int = BLOCK_ENTRIES) -> ClusterBlocks:
    """The week as blocks of about ``block_entries`` on the workers, cut between files."""
    skus: Ids = np.unique(np.concatenate([one.skus for one in week.files]))
    groups = _groups(week.files, block_entries)
    stores = tuple(np.sort(np.concatenate([one.stores for one in group])) for group in groups)
    rows = np.concatenate([[0], np.cumsum([len(own) for own in stores])]).astype(np.int64)
    entries = np.concatenate([[0], np.cumsum([sum(one.rows for one in group) for group in groups])])
    shared = client.submit(_same, skus, pure=False)
    futures = [
        client.submit(
            read_block,
            [one.path for one in group],
            week.reading,
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


def census(path: str, reading: Reading) -> Census:
    """On a worker: which stores and SKUs are in a file, how many rows of the week, and its hash."""
    part = _Part.read(path, reading, ("store_id", "sku_id", "week"))
    return Census(
        path=path,
        stores=part.stores.used(),
        skus=part.skus.used(),
        rows=part.stores.codes.size,
        promoted=part.promoted,
        before=part.before,
        sha256=file_hash(path),
    )


def read_block(
    paths: Sequence[str], reading: Reading, stores: Ids, skus: Ids, first_row: int, first_entry: int
) -> RowBlock:
    """On a worker: the rows of its stores, checked as any ``SalesMatrix`` is."""
    parts = [_Part.read(path, reading, COLUMNS) for path in paths]
    sales = SalesMatrix.from_coo(
        np.concatenate([part.stores.places(stores) for part in parts]),
        np.concatenate([part.skus.places(skus) for part in parts]),
        np.concatenate([part.units for part in parts]),
        (len(stores), len(skus)),
        store_ids=stores,
        sku_ids=skus,
        week=reading.week,
    )
    return RowBlock.of(sales, first_row, first_entry)


@dataclass(frozen=True, eq=False)
class _Part:
    """The rows of one file that are read; a text is made of distinct ids alone."""

    stores: CodedText
    skus: CodedText
    units: NDArray[Any]
    promoted: int
    before: Ids

    @classmethod
    def read(cls, path: str, reading: Reading, columns: Sequence[str]) -> _Part:
        """Weeks may be labels or the date they start. ``units`` are read where they are asked for."""
        there = pq.read_schema(path).names
        missing = set(columns) - set(there)
        if missing:
            raise DataError(
                f"{path} has no column {', '.join(sorted(missing))}.",
                "see ew_pipeline/schema.py for the columns.",
            )
        promo = [PROMO] if reading.without_promoted and PROMO in there else []
        texts = ["store_id", "sku_id", "week"]
        table = pq.read_table(path, columns=[*columns, *promo], read_dictionary=texts)
        stores, skus, weeks = (_coded(table[name], path, name) for name in texts)
        week = Week.parse(reading.week)
        labels = [Week.parse(label[:10]) for label in weeks.texts.tolist()]
        rows = np.array([label == week for label in labels], dtype=bool)[weeks.codes]
        earlier = np.array([week.shift(-reading.recent) <= label < week for label in labels], dtype=bool)
        promoted = rows & _promoted(table[PROMO]) if promo else np.zeros(rows.size, dtype=bool)
        kept = rows & ~promoted
        units = table["units"].to_numpy()[kept] if "units" in columns else np.empty(0)
        return cls(
            stores.kept(kept),
            skus.kept(kept),
            units,
            int(np.count_nonzero(promoted)),
            stores.kept(earlier[weeks.codes]).used(),
        )


def _coded(column: pa.ChunkedArray, path: str, name: str) -> CodedText:
    if column.null_count:
        raise DataError(
            f"{column.null_count} rows of {path} have no {name}.",
            "fill in the ids and week of every row.",
        )
    return CodedText.of(column)


def _promoted(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Flags, or numbers other than zero; nothing said is no."""
    flags = column.cast(pa.float64()) if not pa.types.is_boolean(column.type) else column.cast(pa.int8())
    return np.asarray(flags.fill_null(0).to_numpy() != 0)


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
