"""Is everything as it was written? The ledger's chain, and every file it vouches for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ew_pipeline.core.errors import EwError, name_some
from ew_pipeline.core.provenance import canonical_json, file_hash
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import ISO_WEEK
from ew_pipeline.intake.snapshot import COLUMNS, MANIFEST, TYPES, Manifest, is_kept, read_manifest, read_table
from ew_pipeline.ledger import Head, Ledger, Problem, Publication
from ew_pipeline.ledger.writing import GROWING, UNFINISHED
from ew_pipeline.tracking.delivery import FILE as TRACKING
from ew_pipeline.weekly.attempt import MARK, SHOWN

Kind = Literal["edited", "inserted", "deleted", "broken", "truncated"]
Removed = dict[str, dict[str, str]]  # run -> path in its folder -> sha256
# What MLflow was told so far; it changes after publication and proves nothing.
LIVING = (TRACKING, f".{TRACKING}.part")
OnPart = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """``where``: ledger, run, snapshot or live copy. ``name``: the row or the file."""

    kind: Kind
    where: str
    name: str
    words: str

    @classmethod
    def in_ledger(cls, problem: Problem) -> Finding:
        return cls(problem.kind, "ledger", f"{problem.table} {problem.key}", problem.words)


@dataclass(frozen=True)
class Verification:
    """What was looked at, and what was found. ``head``: write it down elsewhere, and pass it next time."""

    findings: tuple[Finding, ...]
    head: Head | None  # None: the ledger cannot be read any more
    publications: int
    files: int
    pruned: int  # files that are absent on purpose
    snapshots: int
    files_checked: bool = True

    @property
    def intact(self) -> bool:
        return not self.findings


def verify(
    ledger: Ledger,
    settings: Settings,
    *,
    files: bool = True,
    expected: Head | None = None,
    on_part: OnPart = lambda part: None,
) -> Verification:
    """Check the chain, and with ``files`` also runs, snapshots and live copies. Nothing is changed."""
    on_part("the ledger's chain")
    findings = [Finding.in_ledger(problem) for problem in ledger.verify(expected)]
    try:
        own = [one for one in ledger.publications() if one.kind == "publish"]
        removed = removed_files(ledger)
        if files:
            findings += _verify_files(ledger, settings, own, removed, on_part)
        return Verification(
            findings=tuple(findings),
            head=ledger.head(),
            publications=len(own),
            files=sum(len(vouched(one.files)) for one in own),
            pruned=sum(path in vouched(one.files) for one in own for path in removed.get(one.run_id, {})),
            snapshots=len(_used_snapshots(ledger)),
            files_checked=files,
        )
    except (EwError, ValueError, TypeError, KeyError, AttributeError):
        if not findings:
            raise
        # Rows so damaged that they cannot be read: the chain has already named them.
        return Verification(tuple(findings), None, 0, 0, 0, 0, files_checked=False)


def _verify_files(
    ledger: Ledger,
    settings: Settings,
    own: list[Publication],
    removed: Removed,
    on_part: OnPart,
) -> list[Finding]:
    findings: list[Finding] = []
    on_part("the files of the runs")
    folders = {run.run_id: run.folder for run in ledger.runs()}
    for publication in own:
        folder = folders.get(publication.run_id, publication.report.parent)
        findings += verify_run(publication, folder, removed.get(publication.run_id, {}))
    on_part("the snapshots")
    for data_hash, weeks in _used_snapshots(ledger).items():
        words = name_some(weeks, len(weeks))
        findings += verify_snapshot(settings.snapshots / data_hash, data_hash, words)
    on_part("the live copies")
    live = {str(publication.week): publication for publication in ledger.live()}
    for week, publication in live.items():
        findings += verify_live_copy(publication, settings.reports / week)
    if settings.reports.is_dir():
        shown = {path.name for path in settings.reports.iterdir() if ISO_WEEK.fullmatch(path.name)}
        for name in sorted(shown - set(live)):
            findings.append(
                Finding("inserted", "live copy", name, f"{settings.reports / name} shows nothing published")
            )
    return findings


def _used_snapshots(ledger: Ledger) -> dict[str, list[str]]:
    """Every snapshot that a result was computed on, with the weeks."""
    used: dict[str, list[str]] = {}
    for run in sorted(ledger.runs(), key=lambda run: run.week):
        if run.data_hash is not None and is_kept(run.data_hash) and run.pairs_scored is not None:
            weeks = used.setdefault(run.data_hash, [])
            weeks += [] if str(run.week) in weeks else [str(run.week)]
    return used


def removed_files(ledger: Ledger) -> Removed:
    """Everything that was ever pruned, by run."""
    found: Removed = {}
    rows = ledger.table("removals")
    for run_id, files in zip(rows["run_id"], rows["files"], strict=True):
        found.setdefault(str(run_id), {}).update(json.loads(files))
    return found


def vouched(files: Mapping[str, str]) -> dict[str, str]:
    """The files whose hash must hold."""
    return {path: sha256 for path, sha256 in files.items() if not _lives(path)}


def present(folder: Path) -> dict[str, Path]:
    """The files in a folder that somebody must vouch for, by their path in it."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {name: path for name, path in found.items() if not path.is_dir() and not _lives(name)}


def verify_run(publication: Publication, folder: Path, removed: Mapping[str, str]) -> Iterator[Finding]:
    """Every file that a publication vouches for; ``removed`` are those that were pruned."""
    expected = vouched(publication.files)
    run = f"run {publication.run_id} ({publication.week}, publication {publication.id})"
    if not folder.is_dir():
        yield Finding("deleted", "run", publication.run_id, f"the folder of {run} is gone: {folder}")
        return
    yield from _compare(
        folder, expected, where="run", name=publication.run_id, of=f"of {run}", removed=removed
    )


def verify_live_copy(publication: Publication, folder: Path) -> Iterator[Finding]:
    """What people open, ``reports/<week>``, against the publication that is live."""
    week = str(publication.week)
    again = f"put it back: rm -r {folder}; ew report --week {week}"
    if not folder.is_dir():
        yield Finding("deleted", "live copy", week, f"the live copy of {week} is gone; {again}")
        return
    mark = folder / MARK
    written = mark.read_text(errors="replace") if mark.is_file() else ""
    if written != f"{publication.id} {publication.run_id}\n":
        words = f"the live copy of {week} does not show publication {publication.id}; {again}"
        yield Finding("edited", "live copy", f"{week}/{MARK}", words)
        return
    shown = {
        path: sha256 for path, sha256 in vouched(publication.files).items() if Path(path).parts[0] in SHOWN
    }
    of = f"of the live copy of {week}; {again}"
    yield from _compare(folder, shown, where="live copy", name=week, of=of, passed_over=(MARK,))


def _compare(
    folder: Path,
    expected: Mapping[str, str],
    *,
    where: str,
    name: str,
    of: str,
    removed: Mapping[str, str] | None = None,
    passed_over: tuple[str, ...] = (),
) -> Iterator[Finding]:
    found = present(folder)
    removed = removed or {}
    for path, sha256 in sorted(expected.items()):
        if path not in found:
            if removed.get(path) != sha256:
                yield Finding("deleted", where, f"{name}/{path}", f"{path} is gone: {of}")
        elif _hash(found[path]) != sha256:
            yield Finding("edited", where, f"{name}/{path}", f"{path} was edited: {of}")
    for path in sorted(set(found) - set(expected) - set(passed_over)):
        yield Finding("inserted", where, f"{name}/{path}", f"{path} was put there afterwards: {of}")


def _hash(path: Path) -> str | None:
    """None when it cannot be read (a dangling link, no permission): then it is not what was written."""
    try:
        return file_hash(path)
    except OSError:
        return None


def _lives(path: str) -> bool:
    return path in LIVING or path.endswith((GROWING, UNFINISHED))


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
    """RULE 1 of ``intake.snapshot``, written a second time on purpose: code that checks itself with itself
    never finds that it is wrong."""
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
