"""Fits of past weeks, kept by the content they were made from.

A calibration needs the evidence of up to sixteen past weeks, and most of them were fitted a week ago from
just the same sales. Each file is named by the hash of the panel, of the code that makes the fit and of the
libraries beneath it, so that what is found is what would be computed. Removing the folder costs time and
nothing else; a file that cannot be read, or a folder that cannot be written to, likewise.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path

import numpy as np

import ew_pipeline
from ew_pipeline.data.panel import Panel
from ew_pipeline.evaluate.evidence import WeekFit
from ew_pipeline.provenance import canonical_json, environment

MOST_BYTES = 1_000_000_000
SOURCES = (
    "algorithm/*.py",
    "data/history.py",
    "data/panel.py",
    "data/sales_matrix.py",
    "evaluate/evidence.py",
)
BENEATH = ("python", "machine", "numpy", "scipy", "numba")


class FitCache:
    """``evaluate.evidence.WeekFits`` on disk; the files used last are kept, up to ``most_bytes``."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self.found = 0
        self.made = 0

    def find(self, past: Panel, make: Callable[[Panel], WeekFit]) -> WeekFit:
        place = self.folder / f"{panel_key(past)}.npz"
        known = _read(place, int(past.observed[:, -1].sum()))
        if known is not None:
            self.found += 1
            return known
        self.made += 1
        fit = make(past)
        self._keep(place, fit)
        return fit

    def _keep(self, place: Path, fit: WeekFit) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".making", delete=False) as file:
                np.savez(file, **asdict(fit))
            os.replace(file.name, place)
            self._make_room()
        except OSError:
            return  # no cache, no harm

    def _make_room(self) -> None:
        kept = [(path.stat(), path) for path in self.folder.iterdir()]
        total = sum(stat.st_size for stat, _ in kept)
        for stat, path in sorted(kept, key=lambda one: (one[0].st_mtime, one[1].name)):
            if total <= self.most_bytes:
                return
            path.unlink(missing_ok=True)
            total -= stat.st_size


def panel_key(past: Panel) -> str:
    """The hash of everything that the fit of the last week depends on."""
    digest = hashlib.sha256(_of_the_code().encode())
    head = {
        "stores": past.store_ids.tolist(),
        "skus": past.sku_ids.tolist(),
        "weeks": list(past.weeks),
        "promo": past.promo is not None,
    }
    digest.update(canonical_json(head).encode())
    for values in (past.store, past.sku, past.units, past.promo):
        if values is not None:
            digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


@cache
def _of_the_code() -> str:
    """A hash of the source files, so that a change that nobody gave a version is seen too."""
    root = Path(ew_pipeline.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in root.glob(pattern)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    versions = {name: version for name, version in environment().items() if name in BENEATH}
    return digest.hexdigest() + canonical_json(versions)


def _read(place: Path, pairs: int) -> WeekFit | None:
    try:
        with np.load(place, allow_pickle=False) as kept:
            arrays = {field.name: kept[field.name] for field in fields(WeekFit)}
        if any(array.shape != (pairs,) or array.dtype != np.float64 for array in arrays.values()):
            return None
        os.utime(place)  # used just now
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return WeekFit(**arrays)
