"""Arrays that are kept between runs, in files named by the content they were made from.

A name is a hash of everything the arrays depend on, the code and the libraries beneath it included, so that
what is found is what would be computed. Removing the folder costs time and nothing else; a file that cannot
be read, or a folder that cannot be written to, likewise.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.provenance import PACKAGE, canonical_json, environment

BENEATH = ("python", "machine", "numpy", "scipy", "numba")
Arrays = dict[str, npt.NDArray[Any]]


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
