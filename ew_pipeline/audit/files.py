"""The files of a run, and their live copies, against the hashes in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from ew_pipeline.audit.findings import Finding
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.ledger import Publication
from ew_pipeline.ledger.writing import GROWING, UNFINISHED
from ew_pipeline.tracking.delivery import FILE as TRACKING
from ew_pipeline.weekly.live import MARK, SHOWN

# What MLflow was told so far; it changes after publication and proves nothing.
LIVING = (TRACKING, f".{TRACKING}.part")


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
