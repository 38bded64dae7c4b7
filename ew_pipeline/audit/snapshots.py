"""A snapshot against its own name: the hash of its content, computed again from the rows.

The rule is written in ``data.snapshot``. It is written a second time here on purpose: code that checks itself
with itself would never find that it is wrong, and the hashes of the files alone are kept beside the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ew_pipeline.audit.findings import Finding
from ew_pipeline.core.errors import EwError
from ew_pipeline.core.provenance import canonical_json, file_hash
from ew_pipeline.intake.snapshot import COLUMNS, MANIFEST, TYPES, Manifest, read_manifest, read_table


def verify_snapshot(folder: Path, data_hash: str, weeks: str) -> Iterator[Finding]:
    """All that is wrong with the snapshot ``data_hash``; ``weeks`` says in words what was run on it."""
    name = data_hash[:12]
    of = f"of the snapshot {name} ({weeks})"
    if not folder.is_dir():
        yield Finding("deleted", "snapshot", name, f"the snapshot {name} ({weeks}) is gone: {folder}")
        return
    try:
        manifest = read_manifest(folder)
    except EwError as error:
        words = f"{MANIFEST} {of}: {error.message}"
        there = (folder / MANIFEST).exists()
        yield Finding("edited" if there else "deleted", "snapshot", f"{name}/{MANIFEST}", words)
        return
    if manifest.data_hash != data_hash:
        yield Finding("edited", "snapshot", f"{name}/{MANIFEST}", f"{MANIFEST} {of} was edited")
        return
    yield from _verify_tables(folder, manifest, name, of)
    known = {MANIFEST, *(str(table["file"]) for table in manifest.tables.values())}
    for path in sorted(path.name for path in folder.iterdir() if path.name not in known):
        yield Finding("inserted", "snapshot", f"{name}/{path}", f"{path} {of} was put there afterwards")


def _verify_tables(folder: Path, manifest: Manifest, name: str, of: str) -> Iterator[Finding]:
    # The content hash binds the parts; the rest of the manifest has to follow from them.
    by_table: dict[str, list[str]] = {}
    for part in manifest.parts:
        by_table.setdefault(part.partition("/")[0], []).append(part)
    weeks = tuple(sorted(part.partition("/")[2] for part in by_table.get("sales", ())))
    if set(by_table) != set(manifest.tables) or weeks != manifest.weeks:
        yield Finding("edited", "snapshot", f"{name}/{MANIFEST}", f"{MANIFEST} {of} was edited")
        return
    split = []
    for table, parts in sorted(by_table.items()):
        path = folder / f"{table}.parquet"
        if not path.is_file():
            yield Finding("deleted", "snapshot", f"{name}/{path.name}", f"{path.name} {of} is gone")
            continue
        try:
            found = _hashes(folder, table, sorted(parts))
            split += [table] if "segment" in read_table(folder, table, part=0).column_names else []
        except (EwError, ValueError, KeyError, IndexError, pa.ArrowException):
            found = {}
        if found != {part: manifest.parts[part] for part in parts}:
            yield Finding(
                "edited", "snapshot", f"{name}/{path.name}", f"{path.name} {of} has other rows than were kept"
            )
        elif file_hash(path) != manifest.tables[table]["sha256"]:
            words = f"{path.name} {of} has the rows that were kept, but is another file"
            yield Finding("edited", "snapshot", f"{name}/{path.name}", words)
    if (manifest.segment_table is not None) != bool(split) or manifest.segment_table not in (*split, None):
        words = f"{MANIFEST} {of} names another table to split by than the one that has the segments"
        yield Finding("edited", "snapshot", f"{name}/{MANIFEST}", words)


def _hashes(folder: Path, table: str, parts: list[str]) -> dict[str, str]:
    if table != "sales":
        return {table: part_hash(table, table, read_table(folder, table))}
    groups = {part: read_table(folder, table, part=place) for place, part in enumerate(parts)}
    return {part: part_hash(part, table, rows) for part, rows in groups.items()}


def part_hash(part: str, table: str, rows: pa.Table) -> str:
    """RULE 1 of ``data.snapshot``."""
    kinds = {name: kind for name, kind in COLUMNS[table].items() if name in rows.column_names}
    if "segment" in rows.column_names:
        kinds["segment"] = "text"
    if set(kinds) != set(rows.column_names):
        raise ValueError(f"{part} has other columns than were kept")
    header = canonical_json(
        {"part": part, "rows": len(rows), "columns": [list(pair) for pair in kinds.items()]}
    )
    digest = hashlib.sha256(header.encode() + b"\n")
    for name, kind in kinds.items():
        if kind == "text":
            _add_text(digest, rows[name])
        else:
            digest.update(rows[name].to_numpy().astype(TYPES[kind], casting="same_kind").tobytes())
    return digest.hexdigest()


def _add_text(digest: Any, column: pa.ChunkedArray) -> None:
    codes = np.empty(0, np.int64)
    names: list[str] = []
    for chunk in column.unify_dictionaries().chunks:
        codes = np.concatenate([codes, chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
        names = chunk.dictionary.to_pylist()
    used = sorted({names[code] for code in np.unique(codes[codes >= 0])})
    place = {text: number for number, text in enumerate(used)}
    lookup = np.array([*(place.get(text, -1) for text in names), -1], dtype="<i4")
    digest.update(np.array(len(used), dtype="<i8").tobytes())
    for text in used:
        data = text.encode()
        digest.update(np.array(len(data), dtype="<i8").tobytes() + data)
    digest.update(lookup[codes].tobytes())
