"""Files on disk: clear errors when one cannot be written, background writes, arrays kept between runs.

Kept arrays are named by a hash of everything they depend on, the code and the libraries beneath it included,
so what is found is what would be computed. Removing their folder costs time and nothing else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.provenance import PACKAGE, canonical_json, environment

WAYS_OUT = {
    errno.ENOSPC: "free some space there, or set EW_HOME to a folder on another disk, and run again.",
    errno.EDQUOT: "free some of your quota, or set EW_HOME to a folder on another disk, and run again.",
    errno.EROFS: "set EW_HOME to a folder that can be written to, and run again.",
    errno.EACCES: "give this user the right to write there, or set EW_HOME to another folder, and run again.",
    errno.EPERM: "give this user the right to write there, or set EW_HOME to another folder, and run again.",
}
BENEATH = ("python", "machine", "numpy", "scipy", "numba")  # versions that are part of ``code_hash``
Arrays = dict[str, npt.NDArray[Any]]


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn a failed write below ``folder`` into an EwError (exit code 3). Errors of ours pass through."""
    import duckdb

    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        way_out = WAYS_OUT.get(error.errno or 0, "see that the folder can be written to, and run again.")
        raise EwError(f"cannot write to {folder}: {reason}.", way_out) from error
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        # DuckDB says in words, not by a number, that its scratch file found no room.
        raise EwError(f"cannot write to {folder}: {first_line(error)}.", WAYS_OUT[errno.ENOSPC]) from error


def make_private(folder: Path) -> None:
    """Make the folder for this user alone. One that is there keeps the rights that it was given."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def first_line(error: BaseException) -> str:
    """The first line of a library's message, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


class LaterFile:
    """A file that is written on another core, begun at once.

    ``wait`` returns when it is there, or raises what kept it from being written;
    whoever waits after a failure, as a step does that is tried again, has it written again.
    """

    def __init__(self, beside: Executor, write: Callable[[], None]) -> None:
        self._write = write
        self._begun: Future[None] | None = beside.submit(write)

    def wait(self) -> None:
        begun, self._begun = self._begun, None
        if begun is None:
            self._write()
        else:
            begun.result()
            self._begun = begun


class KeptFiles:
    """The files used last are kept, up to ``most_bytes``."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self.most_bytes = most_bytes

    def read(self, name: str) -> Arrays | None:
        """What was kept under this name; None when there is nothing that can be read."""
        place = self._place(name)
        try:
            with np.load(place, allow_pickle=False) as kept:
                arrays = {key: kept[key] for key in kept.files}
            os.utime(place)  # used just now
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return arrays

    def write(self, name: str, arrays: Mapping[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".making", delete=False) as file:
                np.savez(file, **arrays)
            os.replace(file.name, self._place(name))
            self._make_room()
        except OSError:
            return  # nothing kept, no harm

    def _place(self, name: str) -> Path:
        return self.folder / f"{name}.npz"

    def _make_room(self) -> None:
        kept = [(path.stat(), path) for path in self.folder.iterdir()]
        total = sum(stat.st_size for stat, _ in kept)
        for stat, path in sorted(kept, key=lambda one: (one[0].st_mtime, one[1].name)):
            if total <= self.most_bytes:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size


@cache
def code_hash(sources: tuple[str, ...]) -> str:
    """A hash of these files of the package, so that a change that nobody gave a version is seen too.

    A pattern without a file is an error: the file may have moved, and its changes would not be seen.
    """
    digest = hashlib.sha256()
    for path in sorted(path for pattern in sources for path in _matching(pattern)):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    versions = {name: version for name, version in environment().items() if name in BENEATH}
    return digest.hexdigest() + canonical_json(versions)


def _matching(pattern: str) -> list[Path]:
    found = [path for path in PACKAGE.glob(pattern) if path.is_file()]
    if not found:
        raise EwError(
            f"no file of {PACKAGE} matches {pattern!r}, on which kept results depend.",
            "correct the pattern, or install ew-pipeline again.",
        )
    return found
