"""Weeks of a sales file that were checked before and had no fault, as the snapshot takes them.

A week's window reaches back a year, and of two weeks of a backfill all but one are the same rows of the same
file. What was found without fault is kept by the file's content, the columns that are read, the suite and the
code that checks, so that nothing is taken over that a check would not find again. A week with a faulty row is
never kept: it is read and judged each time. Databases have no content to name, and very large weeks are read
once only: of both nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ew_pipeline.core.files import Arrays, KeptFiles, code_hash
from ew_pipeline.core.provenance import canonical_json, environment, file_hash
from ew_pipeline.core.week import Week
from ew_pipeline.intake.contract.reading import Opened
from ew_pipeline.intake.contract.suites import load_suite
from ew_pipeline.intake.snapshot import Column

MOST_BYTES = 1_000_000_000
MOST_ROWS = 1_000_000  # of a week
MOST_FILE_BYTES = 4_000_000_000
SOURCES = (
    "intake/csv_source.py",
    "method/row_major.py",
    "core/coded_text.py",
    "data/contract/*.py",
    "intake/snapshot.py",
    "intake/sources.py",
    "schema.py",
    "week.py",
    "intake/keep.py",
    "intake/checked_weeks.py",
)
CHECKED_BY = ("duckdb", "great-expectations", "pandas", "pyarrow")
CODES, TEXTS = "codes of ", "texts of "
Columns = Mapping[str, Column]


class CheckedWeeks:
    """What is known of the weeks of one source. ``taken``: weeks that need not be read, by their label."""

    def __init__(self, spec: str, opened: Opened, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._files = KeptFiles(folder, most_bytes)
        self._paths = _paths(spec)
        self._marks = _marks(self._paths)
        self._opened = opened
        self.taken: dict[str, Columns] = {}

    @cached_property
    def _key(self) -> str:
        """Made when it is asked for: a file of one large week, of which nothing is kept, is not hashed."""
        return _key(self._paths, self._opened) if self._paths else ""

    def take(self, weeks: Iterable[Week]) -> set[Week]:
        """Those of ``weeks`` that are known to be without fault."""
        for week in weeks:
            if not self._key:
                break
            kept = self._files.read(self._name(str(week)))
            columns = None if kept is None else _from_arrays(kept)
            if columns is not None:
                self.taken[str(week)] = columns
        return {Week.parse(label) for label in self.taken}

    @property
    def rows(self) -> int:
        """Of the weeks that were taken."""
        return sum(len(columns["units"]) for columns in self.taken.values())

    def keep(self, week: str, columns: Columns) -> None:
        """A week without fault, just read; not if the file has changed meanwhile, or the week is large."""
        if len(columns["units"]) <= MOST_ROWS and self._key and _marks(self._paths) == self._marks:
            self._files.write(self._name(week), _to_arrays(columns))

    def _name(self, week: str) -> str:
        return hashlib.sha256(f"{self._key} {week}".encode()).hexdigest()


def _paths(spec: str) -> tuple[Path, ...]:
    """The files of a source; none for a database, or where reading them again would be the smaller work."""
    if "://" in spec:
        return ()
    path = Path(spec).expanduser()
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    return tuple(files) if sum(file.stat().st_size for file in files) <= MOST_FILE_BYTES else ()


def _marks(paths: Iterable[Path]) -> list[tuple[int, int]]:
    return [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


def _key(paths: Iterable[Path], opened: Opened) -> str:
    """Everything that decides whether a week is without fault, and what its rows are then."""
    beneath = {name: version for name, version in environment().items() if name in CHECKED_BY}
    made_from = {
        "files": [[str(path), file_hash(path)] for path in paths],  # a folder's name may be a column
        "columns": [[name, kind] for name, kind in opened.source.columns.items()],
        "segment": opened.segment,
        "suite": [line.configuration for line in load_suite("sales").expectations],
        "beneath": beneath,
    }
    return hashlib.sha256((code_hash(SOURCES) + canonical_json(made_from)).encode()).hexdigest()


def _to_arrays(columns: Columns) -> Arrays:
    arrays: Arrays = {}
    for name, values in columns.items():
        if isinstance(values, pd.Categorical):
            arrays[CODES + name] = np.asarray(values.codes, dtype=np.int32)
            arrays[TEXTS + name] = np.frombuffer(json.dumps(list(values.categories)).encode(), dtype=np.uint8)
        else:
            arrays[name] = values
    return arrays


def _from_arrays(kept: Arrays) -> Columns | None:
    """None for a file of another form."""
    columns: dict[str, Any] = {}
    try:
        for name, values in kept.items():
            if name.startswith(TEXTS):
                column = name.removeprefix(TEXTS)
                texts = pd.Index(json.loads(values.tobytes().decode()), dtype=object)
                columns[column] = pd.Categorical.from_codes(kept[CODES + column], categories=texts)
            elif not name.startswith(CODES):
                columns[name] = values
    except (KeyError, ValueError):
        return None
    return columns if "units" in columns else None
