"""Validated inputs of one week, kept by the hash of their content.

``snapshots/<data_hash>/`` holds a parquet file per table and ``manifest.json``. The hash is taken over the
content in canonical form, never over file bytes: the same rows in another format, order or partitioning, or
written by another version of a library, have the same hash.

The rule (RULE 1). A part is a table, and for sales one week of it, its rows sorted by their key as text:
    SHA-256 of  {"columns": [[name, kind], …], "part": name, "rows": n}  as canonical JSON and a newline, then
    column by column:
    text    number of distinct values (int64), each value in sorted order as length (int64) and UTF-8, then
            for every row the position of its value (int32; -1 where missing)
    count   int32    flag    uint8 (0 or 1)    money    float64     (all little-endian)
data_hash: SHA-256 of {"parts": {name: hash}, "rule": 1, "segment_by": …, "week": …} as canonical JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ew_pipeline.core.errors import DataError, EwError
from ew_pipeline.core.files import writing_to
from ew_pipeline.core.provenance import canonical_hash, canonical_json, file_hash
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week

Values = NDArray[Any] | pd.Categorical  # numbers, or text as codes

RULE = 1
MANIFEST = "manifest.json"
NOT_KEPT = "files-"  # begins the data hash of sales that are too many to be kept here (``is_kept``)
UNFINISHED = ".making-"
STALE_SECONDS = 24 * 3600
TYPES: dict[str, np.dtype[Any]] = {"count": np.dtype("<i4"), "flag": np.dtype("u1"), "money": np.dtype("<f8")}
COLUMNS = {
    "sales": {
        "store_id": "text",
        "sku_id": "text",
        "week": "text",
        "units": "count",
        "promo": "flag",
        "holiday": "flag",
    },
    "withheld": {"store_id": "text", "sku_id": "text", "week": "text"},
    "listing": {"store_id": "text", "sku_id": "text", "first_week": "text", "last_week": "text"},
    "costs": {"store_id": "text", "sku_id": "text", "cost_false_alarm": "money", "cost_missed": "money"},
    "checks": {"store_id": "text", "sku_id": "text", "week": "text", "wrong": "flag", "weight": "money"},
    "stores": {"store_id": "text"},
    "skus": {"sku_id": "text"},
}
"""Columns of each table and their kinds; ``segment`` (text) may be in sales, listing, stores or skus too.

``withheld`` are the keys of quarantined sales rows: it is not known what these pairs sold, so they are not
zero either. ``checks`` are what stores found in earlier weeks, where a calibration learns from it: an input
like the others, so that checks that come in later are new inputs.
"""


@dataclass(frozen=True)
class Snapshot:
    """Validated inputs of a week: their hash, and where they are."""

    data_hash: str
    folder: Path


@dataclass(frozen=True)
class Manifest:
    """What is in a snapshot. ``segment_table``: the table that ``segment`` is in, None when not split."""

    week: str
    weeks: tuple[str, ...]
    segment_by: str | None
    segment_table: str | None
    tables: Mapping[str, Mapping[str, Any]]  # file, sha256, rows
    parts: Mapping[str, str]

    @property
    def data_hash(self) -> str:
        content = {"rule": RULE, "week": self.week, "segment_by": self.segment_by, "parts": dict(self.parts)}
        return canonical_hash(content)


@dataclass(eq=False)
class SnapshotWriter:
    """Takes canonical tables part by part, then puts the snapshot in its place at once.

    Use as a context manager: what was not finished is removed.
    """

    settings: Settings
    week: Week
    segment_by: str | None = None
    segment_table: str | None = None
    _parts: dict[str, str] = field(default_factory=dict)
    _rows: dict[str, int] = field(default_factory=dict)
    _writers: dict[str, pq.ParquetWriter] = field(default_factory=dict)

    def __enter__(self) -> SnapshotWriter:
        with writing_to(self.settings.snapshots):
            self.settings.snapshots.mkdir(parents=True, exist_ok=True)
            _clear_unfinished(self.settings.snapshots)
            self._folder = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=self.settings.snapshots))
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            try:
                writer.close()
            except OSError:  # a full disk also fails the closing footer; the first error is the one to tell
                continue
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, table: str, frame: pd.DataFrame, part: str | None = None) -> Mapping[str, Values]:
        """Rows of ``table``, sorted by their key; ``part`` names a share of a large table.

        Returns its columns in canonical form.
        """
        columns = {name: _column(frame[name], kind) for name, kind in _kinds(table, frame).items()}
        self.add_columns(table, columns, part)
        return columns

    def add_columns(self, table: str, columns: Mapping[str, Values], part: str | None = None) -> None:
        """The same from columns in canonical form."""
        kinds = _kinds(table, columns)
        name = table if part is None else f"{table}/{part}"
        rows = len(next(iter(columns.values())))
        self._rows[table] = self._rows.get(table, 0) + rows
        with ThreadPoolExecutor(1) as beside:  # both work outside of Python
            hashed = beside.submit(_part_hash, name, rows, kinds, columns)
            self._write(table, columns, rows)
            self._parts[name] = hashed.result()

    def _write(self, table: str, columns: Mapping[str, Values], rows: int) -> None:
        arrow = pa.table({column: _arrow(value) for column, value in columns.items()})
        with writing_to(self._folder.parent):
            if table not in self._writers:
                self._writers[table] = pq.ParquetWriter(
                    self._folder / f"{table}.parquet",
                    arrow.schema,
                    compression="zstd",
                    store_schema=False,
                    dictionary_pagesize_limit=1 << 26,
                    write_statistics=False,  # a part is read whole; for texts they take longer than the rest
                )
            self._writers[table].write_table(arrow, row_group_size=max(1, rows))

    def finish(self) -> Snapshot:
        """Close the files and move them into place; an identical snapshot that is already there is reused."""
        with writing_to(self.settings.snapshots):
            for writer in self._writers.values():
                writer.close()
            tables = {
                table: {
                    "file": f"{table}.parquet",
                    "rows": rows,
                    "sha256": file_hash(self._folder / f"{table}.parquet"),
                }
                for table, rows in self._rows.items()
            }
            weeks = tuple(sorted(name.partition("/")[2] for name in self._parts if name.startswith("sales/")))
            manifest = Manifest(
                str(self.week), weeks, self.segment_by, self.segment_table, tables, self._parts
            )
            _write_manifest(self._folder / MANIFEST, manifest)
            return self._into_place(manifest.data_hash)

    def _into_place(self, data_hash: str) -> Snapshot:
        for path in self._folder.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
            path.chmod(0o444)
        self._folder.chmod(0o755)
        place = self.settings.snapshots / data_hash
        try:
            self._folder.rename(place)
        except OSError:
            if not place.exists():
                raise
            return load_snapshot(data_hash, self.settings)  # made before, or just now by another run
        return Snapshot(data_hash, place)


def is_kept(data_hash: str) -> bool:
    """Whether there is a snapshot. There is none of sales that were read by row blocks, where they lie: their
    hash is that of the files' hashes."""
    return not data_hash.startswith(NOT_KEPT)


def load_snapshot(data_hash: str, settings: Settings) -> Snapshot:
    """The snapshot with this hash, after checking that every file is what was written."""
    if not is_kept(data_hash):
        raise DataError(
            "sales that were read by row blocks are not kept; the run's inputs.json names files and hashes.",
            "run the week again from them: ew run --blocks …",
        )
    folder = settings.snapshots / data_hash
    if not folder.is_dir():
        raise DataError(
            f"there is no snapshot {data_hash} in {settings.snapshots}.",
            "check the hash and EW_HOME, or run the week again from its sources.",
        )
    manifest = read_manifest(folder)
    if manifest.data_hash != data_hash:
        raise _damaged(folder, f"{MANIFEST} describes {manifest.data_hash}")
    for table in manifest.tables.values():
        path = folder / str(table["file"])
        if not path.is_file():
            raise _damaged(folder, f"{path.name} is missing")
        if file_hash(path) != table["sha256"]:
            raise _damaged(folder, f"{path.name} is not what was written")
    return Snapshot(data_hash, folder)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a snapshot."""
    try:
        written = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return Manifest(
            week=written["week"],
            weeks=tuple(written["weeks"]),
            segment_by=written["segment_by"],
            segment_table=written["segment_table"],
            tables=written["tables"],
            parts=written["parts"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, f"{MANIFEST} cannot be read ({error})") from error


def read_table(
    folder: Path, table: str, columns: Sequence[str] | None = None, part: int | None = None, without: str = ""
) -> pa.Table:
    """A table of a snapshot, text as dictionary codes; ``part``: the row group of one week of sales;
    ``without``: a column that is not read."""
    path = folder / f"{table}.parquet"
    try:
        file = pq.ParquetFile(path, memory_map=False)
        text = [
            name for name in file.schema_arrow.names if pa.types.is_string(file.schema_arrow.field(name).type)
        ]
        columns = [name for name in columns or file.schema_arrow.names if name != without]
        file = pq.ParquetFile(path, read_dictionary=text)
        return file.read(columns) if part is None else file.read_row_group(part, columns)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(folder, f"{path.name} cannot be read ({error})") from error


def _damaged(folder: Path, what: str) -> EwError:
    return EwError(
        f"the snapshot {folder.name} is damaged: {what}.",
        f"restore {folder} from a backup, or move it away and run its week again from the sources.",
    )


def _kinds(table: str, columns: Container[str]) -> dict[str, str]:
    kinds = {name: kind for name, kind in COLUMNS[table].items() if name in columns}
    return kinds | {"segment": "text"} if "segment" in columns else kinds


def _column(values: pd.Series[Any], kind: str) -> Values:
    if kind != "text":
        # Adding zero makes -0.0 the same as 0.0.
        numbers: NDArray[Any] = np.asarray(values, dtype=TYPES[kind]) + TYPES[kind].type(0)
        return numbers
    texts = values.array if isinstance(values.dtype, pd.CategoricalDtype) else pd.Categorical(values)
    codes = np.asarray(texts.codes)
    names = texts.categories.to_numpy(dtype=object)
    used = np.zeros(len(names), dtype=np.bool_)
    used[codes[codes >= 0]] = True
    kept = np.flatnonzero(used)
    kept = kept[np.argsort(names[kept].astype("U") if kept.size else kept, kind="stable")]
    place = np.full(len(names) + 1, -1, dtype=np.int32)  # the last one is for code -1
    place[kept] = np.arange(kept.size, dtype=np.int32)
    return pd.Categorical.from_codes(place[codes], categories=pd.Index(names[kept], dtype=object))


def _arrow(values: Values) -> pa.Array:
    if isinstance(values, pd.Categorical):
        given = np.asarray(values.codes)
        missing = given < 0 if given.size and given.min() < 0 else None
        codes = pa.array(given.astype(np.int32, copy=False), mask=missing)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(values.categories), pa.string()))
    return pa.array(values)


def _part_hash(name: str, rows: int, kinds: Mapping[str, str], columns: Mapping[str, Values]) -> str:
    header = canonical_json({"part": name, "rows": rows, "columns": [list(pair) for pair in kinds.items()]})
    digest = hashlib.sha256(header.encode() + b"\n")
    for values in columns.values():
        if isinstance(values, pd.Categorical):
            digest.update(np.array(len(values.categories), dtype="<i8").tobytes())
            for text in values.categories:
                data = str(text).encode()
                digest.update(np.array(len(data), dtype="<i8").tobytes() + data)
            digest.update(np.ascontiguousarray(values.codes, dtype="<i4").data)
        else:
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _write_manifest(path: Path, manifest: Manifest) -> None:
    written = {
        "data_hash": manifest.data_hash,
        "rule": RULE,
        "week": manifest.week,
        "weeks": manifest.weeks,
        "segment_by": manifest.segment_by,
        "segment_table": manifest.segment_table,
        "tables": manifest.tables,
        "parts": manifest.parts,
    }
    path.write_text(
        json.dumps(written, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def _clear_unfinished(snapshots: Path) -> None:
    """Folders of runs that were killed; those of runs under way are young, and may vanish while we look."""
    for left in snapshots.glob(f"{UNFINISHED}*"):
        try:
            stale = time.time() - left.stat().st_mtime > STALE_SECONDS
        except FileNotFoundError:
            continue
        if stale:
            shutil.rmtree(left, ignore_errors=True)
