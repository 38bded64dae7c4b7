"""Checked tables into a snapshot: sorted, without faulty rows; weeks checked before are known again.

A week's window reaches back a year, and of two weeks of a backfill all but one are the same rows of the same
file. A week without a fault is kept by the file's content, the columns that are read, the suite and the code
that checks (``SOURCES``), so that nothing is taken over that a check would not find again. A week with a
faulty row is never kept, nor is a very large one, nor one from a database, which has no content to name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ew_pipeline.core.files import Arrays, KeptFiles, code_hash
from ew_pipeline.core.provenance import canonical_json, environment, file_hash
from ew_pipeline.core.week import Week
from ew_pipeline.intake.contract import LABEL
from ew_pipeline.intake.expectations import load_suite
from ew_pipeline.intake.snapshot import SnapshotWriter
from ew_pipeline.intake.sources import number
from ew_pipeline.intake.tables import Columns, Opened

if TYPE_CHECKING:
    import duckdb


MOST_BYTES = 1_000_000_000
MOST_ROWS = 1_000_000  # of a week
MOST_FILE_BYTES = 4_000_000_000
SOURCES = (
    "core/coded_text.py",
    "core/schema.py",
    "core/week.py",
    "intake/gx_import.py",
    "intake/checked_tables.py",
    "intake/contract.py",
    "intake/expectations.py",
    "intake/snapshot.py",
    "intake/sources.py",
    "intake/tables.py",
    "intake/gx_whole_numbers.py",
    "method/row_major.py",
)
CHECKED_BY = ("duckdb", "great-expectations", "pandas", "pyarrow")
CODES, TEXTS = "codes of ", "texts of "
FAULTY = "SELECT row FROM faulty WHERE table_name = '{}'"


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


@dataclass(frozen=True, eq=False)
class Clean:
    """Sales that were found to be without fault, by store and SKU: all of the window (``plain``), and then
    they are not in the database, or those of the week that is run (``now``)."""

    plain: Mapping[Week, Columns] | None = None
    now: pd.DataFrame | None = None


def add_tables(
    writer: SnapshotWriter,
    connection: duckdb.DuckDBPyConnection,
    tables: Mapping[str, Opened],
    week: Week,
    first: Week,
    checked: CheckedWeeks,
    clean: Clean,
) -> None:
    """Hand every table to the writer; listing rows outside ``first`` to ``week`` cannot matter."""
    if clean.plain is not None:
        _add_plain(writer, checked, clean.plain)
    else:
        segmented = tables["sales"].segment is not None
        known = {} if clean.now is None or segmented else {str(week): clean.now}
        _add_sales(writer, connection, tables["sales"], checked, known)
    if "listing" in tables:
        segment = ", segment" if tables["listing"].segment is not None else ""
        columns = ", ".join(f"{LABEL.format(name)} AS {name}" for name in ("first_week", "last_week"))
        query = (
            f"SELECT store_id, sku_id, {columns}{segment} FROM listing "
            f"WHERE rowid NOT IN ({FAULTY.format('listing')}) "
            f"AND coalesce(first_week <= {week.index}, true) AND coalesce(last_week >= {first.index}, true) "
            "ORDER BY store_id, sku_id"
        )
        writer.add("listing", connection.execute(query).df())
    if "costs" in tables:
        query = "SELECT * FROM costs ORDER BY store_id NULLS FIRST, sku_id NULLS FIRST"
        writer.add("costs", connection.execute(query).df())
    for name, key in (("stores", "store_id"), ("skus", "sku_id")):
        if name in tables and tables[name].segment is not None:
            query = f"SELECT {key}, segment FROM {name} WHERE {key} IS NOT NULL ORDER BY {key}"
            writer.add(name, connection.execute(query).df())


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


def _add_plain(writer: SnapshotWriter, checked: CheckedWeeks, plain: Mapping[Week, Columns]) -> None:
    read = {str(week): columns for week, columns in plain.items()}
    for week in sorted({*read, *checked.taken}):
        writer.add_columns("sales", checked.taken.get(week) or read[week], part=week)
        if week in read:
            checked.keep(week, read[week])


def _add_sales(
    writer: SnapshotWriter,
    connection: duckdb.DuckDBPyConnection,
    opened: Opened,
    checked: CheckedWeeks,
    known: Mapping[str, pd.DataFrame],
) -> None:
    flags = [name for name in ("promo", "holiday") if opened.has(name)]
    columns = ["store_id", "sku_id", "week", "CAST(units AS INTEGER) AS units"]
    columns += [f"coalesce({name}, 0) AS {name}" for name in flags]
    columns += ["segment"] if opened.segment is not None else []
    faulty = f"rowid IN ({FAULTY.format('sales')})"
    if not number(f"SELECT count(*) FROM ({FAULTY.format('sales')})", connection):
        faulty = "false"  # of ten million rows, none need be looked up
    with_faults = dict(
        connection.execute(
            "SELECT CAST(week AS VARCHAR), faulty FROM "
            f"(SELECT week, bool_or({faulty}) AS faulty FROM sales WHERE week IS NOT NULL GROUP BY 1)"
        ).fetchall()
    )
    for week in sorted({*with_faults, *checked.taken}):
        if week in checked.taken:
            writer.add_columns("sales", checked.taken[week], part=week)
            continue
        query = (
            f"SELECT {', '.join(columns)} FROM sales WHERE week = '{week}' AND NOT {faulty} "
            "ORDER BY store_id, sku_id"
        )
        frame = (
            known[week].fillna(dict.fromkeys(flags, 0)) if week in known else connection.execute(query).df()
        )
        if len(frame):
            kept = writer.add("sales", frame, part=week)
            if not with_faults[week]:
                checked.keep(week, kept)
    withheld = connection.execute(
        f"SELECT DISTINCT store_id, sku_id, week FROM sales WHERE {faulty} "
        "AND store_id IS NOT NULL AND sku_id IS NOT NULL AND week IS NOT NULL ORDER BY week, store_id, sku_id"
    ).df()
    if len(withheld):
        writer.add("withheld", withheld)
