"""A week that lies in many parquet files, each with some stores of its own, as row blocks.

The client never sees the rows. A first pass over the files agrees on the ids: each worker says which stores
and SKUs are in its files, how many rows, and the hash of each file; what they say is united on the workers, a
few files at a time, so that of ids that many files share the client gets one copy. A second pass reads every
file where its block will be held, and only if it still has the hash of the first: so does each later one, for
a block that was lost with its worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ew_pipeline.cluster.blocks import ClusterBlocks, Traffic
from ew_pipeline.cluster.connection import ClusterError, end_of_worker, gathered
from ew_pipeline.cluster.file_rows import FileRows, Reading
from ew_pipeline.core.arrays import Int64
from ew_pipeline.core.coded_text import Texts
from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.provenance import canonical_hash
from ew_pipeline.intake.snapshot import NOT_KEPT
from ew_pipeline.method.large.row_blocks import RowBlock
from ew_pipeline.method.sales_matrix import SalesMatrix

if TYPE_CHECKING:
    from distributed import Client

# Of a block, about. Not taken from the number of workers: where the blocks are cut decides the order of
# additions, and the same data are to give the same result on every cluster.
BLOCK_ENTRIES = 10_000_000
TOGETHER = 8  # censuses that one task unites


@dataclass(frozen=True)
class InputFile:
    """What the client keeps of one file. ``first_store``: empty where no row is of the week."""

    path: str
    sha256: str
    rows: int
    promoted: int
    stores: int
    first_store: str

    @property
    def nbytes(self) -> int:
        """Under way, about: the path, the hash, numbers."""
        return len(self.path) + 100


@dataclass(frozen=True, eq=False)
class Census:
    """What some files hold of the week: ids once each, in any order, as Arrow's texts, which take a third of
    NumPy's. ``stores``: those with a row of it, be it on promotion; ``before``: those with one of the weeks
    before; ``shared``: those in several files."""

    files: tuple[InputFile, ...]
    stores: pa.Array
    skus: pa.Array
    before: pa.Array
    shared: pa.Array

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)

    @property
    def nbytes(self) -> int:
        ids = (self.stores, self.skus, self.before, self.shared)
        return sum(int(one.nbytes) for one in ids) + sum(one.nbytes for one in self.files)

    def __sizeof__(self) -> int:  # who holds it goes by that
        return self.nbytes


@dataclass(frozen=True, eq=False)
class Partitions:
    """A week as it lies in its files: ``files`` are those with rows of it, on promotion or not, by their
    first store; ``store_ids`` are likewise of all that reported."""

    reading: Reading
    files: tuple[InputFile, ...]
    store_ids: pa.Array  # sorted, as are the SKUs
    skus: pa.Array
    missing: tuple[str, ...]  # stores that had rows in the weeks before
    traffic: Traffic = field(default_factory=Traffic)  # of the census

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
        return len(self.store_ids)


def partition_files(folder: Path) -> list[str]:
    """The parquet files of a partitioned input, by name; what begins with . or _ is somebody's scratch."""
    files = sorted(
        str(path)
        for path in folder.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts) and path.is_file()
    )
    if not files:
        raise UsageError(
            f"{folder} is no folder of parquet files.",
            "row blocks need one: each file with all rows of some stores (for example by store range).",
        )
    return files


def take_census(client: Client, folder: Path, reading: Reading, known: Collection[str] = ()) -> Partitions:
    """Have the workers say what the files hold. ``known``: stores that are missed if they are in none."""
    paths = partition_files(folder)
    found = _united(client, paths, reading)
    files = sorted((one for one in found.files if one.rows + one.promoted), key=lambda one: one.first_store)
    if not any(one.rows for one in files):
        raise DataError(f"no row of {reading.week} is in {folder}.", "check the week and the folder.")
    if len(found.shared):
        shared = sorted(found.shared.to_pylist())
        raise DataError(
            f"{len(shared)} stores are in more than one file ({name_some(shared, len(shared))}).",
            "write all rows of a store to one file.",
        )
    missing = sorted({*known, *found.before.to_pylist()}.difference(found.stores.to_pylist()))
    traffic = Traffic(sent=sum(map(len, paths)), received=found.nbytes)
    return Partitions(reading, tuple(files), found.stores.sort(), found.skus.sort(), tuple(missing), traffic)


def load_blocks(client: Client, week: Partitions, block_entries: int = BLOCK_ENTRIES) -> ClusterBlocks:
    """The week as blocks of about ``block_entries`` on the workers, cut between files."""
    groups = _groups([one for one in week.files if one.rows], block_entries)
    rows = _bounds(sum(one.stores for one in group) for group in groups)
    entries = _bounds(sum(one.rows for one in group) for group in groups)
    shared = client.submit(_as_texts, week.skus, pure=False)
    futures = [
        client.submit(read_block, group, week.reading, shared, int(rows[k]), int(entries[k]), pure=False)
        for k, group in enumerate(groups)
    ]
    sent = week.traffic.sent + week.skus.nbytes + sum(one.nbytes for one in week.files)
    return ClusterBlocks(
        client,
        tuple(futures),
        (int(rows[-1]), len(week.skus)),
        rows,
        int(entries[-1]),
        traffic=Traffic(sent=sent, received=week.traffic.received),
    )


def census(path: str, reading: Reading) -> Census:
    """On a worker: which stores and SKUs are in a file, how many rows of the week, and its hash."""
    part = FileRows.read(path, reading, ("store_id", "sku_id", "week"))
    stores = part.stores.used()
    facts = InputFile(
        path=path,
        sha256=part.sha256,
        rows=part.stores.codes.size,
        promoted=part.promoted,
        stores=stores.size,
        first_store=str(stores[0]) if stores.size else "",
    )
    return Census(
        files=(facts,),
        stores=_as_arrow(part.reporting),
        skus=_as_arrow(part.skus.used()),
        before=_as_arrow(part.before),
        shared=_as_arrow(()),
    )


def unite(parts: Sequence[Census]) -> Census:
    """On a worker: what the files of all these hold."""
    stores = pc.value_counts(pa.concat_arrays([part.stores for part in parts]))
    ids, times = stores.field("values"), stores.field("counts")
    several = ids.filter(pc.greater(times, 1))
    return Census(
        files=tuple(one for part in parts for one in part.files),
        stores=ids,
        skus=_each_once([part.skus for part in parts]),
        before=_each_once([part.before for part in parts]),
        shared=_each_once([several, *(part.shared for part in parts)]),
    )


def read_block(
    files: Sequence[InputFile], reading: Reading, skus: Texts, first_row: int, first_entry: int
) -> RowBlock:
    """On a worker: the rows of the files that the census saw, checked as any ``SalesMatrix`` is."""
    parts = [FileRows.read(one.path, reading, sha256=one.sha256) for one in files]
    stores = np.unique(np.concatenate([part.stores.used() for part in parts]))
    places = [part.places(stores, skus) for part in parts]
    sales = SalesMatrix.from_coo(
        np.concatenate([rows for rows, _ in places]),
        np.concatenate([columns for _, columns in places]),
        np.concatenate([part.units for part in parts]),
        (len(stores), len(skus)),
        store_ids=stores,
        sku_ids=skus,
        week=reading.week,
    )
    return RowBlock.of(sales, first_row, first_entry)


def _united(client: Client, paths: Sequence[str], reading: Reading) -> Census:
    """One graph for all files: whoever orders it unites as it goes, and holds few censuses at a time."""
    from dask.delayed import delayed
    from distributed import KilledWorker

    keys = {f"census-{uuid4().hex}": path for path in paths}
    level: list[Any] = [
        delayed(census, traverse=False)(path, reading, dask_key_name=key) for key, path in keys.items()
    ]
    while len(level) > 1:
        level = [delayed(unite)(level[k : k + TOGETHER]) for k in range(0, len(level), TOGETHER)]
    try:
        found: Census = gathered(client, client.compute(level[0]))
    except KilledWorker as error:
        raise ClusterError(
            f"the ids of {keys.get(str(error.task), 'the files')} were not taken: {end_of_worker(error)}.",
            "give the workers more memory, or cut the input into smaller files.",
        ) from error
    return found


def _each_once(ids: list[pa.Array]) -> pa.Array:
    return pc.unique(pa.concat_arrays(ids))


def _as_arrow(ids: Iterable[str]) -> pa.Array:
    return pa.array(ids, pa.string())


def _as_texts(ids: pa.Array) -> Texts:
    return np.array(ids.to_pylist(), dtype=np.str_)


def _bounds(sizes: Iterable[int]) -> Int64:
    return np.concatenate([[0], np.cumsum(list(sizes))]).astype(np.int64)


def _groups(files: Sequence[InputFile], block_entries: int) -> list[list[InputFile]]:
    """Neighbouring files together, as long as they begin within the same ``block_entries`` rows."""
    rows = np.array([one.rows for one in files])
    group = (np.cumsum(rows) - rows) // block_entries
    return [[files[k] for k in np.flatnonzero(group == g).tolist()] for g in np.unique(group)]
