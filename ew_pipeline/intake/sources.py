"""Where a table comes from: a file, a directory of partitions, or a database.

========================================  =====================================================
``sales.parquet``, ``sales.csv(.gz)``     one file
``sales/``                                a directory of parquet or CSV partitions, at any depth;
                                          ``column=value`` folders become columns
``postgresql+psycopg://…#table=sales``    a table (or ``schema.table``), by SQLAlchemy URL
``sqlite:///s.db#query=select … from …``  a query
========================================  =====================================================

A source says which columns it has, which values one of them takes, and hands the wanted rows to DuckDB. Cells
of CSV files and databases arrive as text exactly as written, so an id keeps its leading zeros; the reader
(``data.contract.reading``) turns them into numbers. In a URL, ``#`` within a password is written ``%23``.

A time with a zone counts by its date in that zone. Databases and Spark keep no zone: their times are in UTC.
The time zone of the machine is never used.

A URL is stored and shown without its password (``data.source_passwords``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ew_pipeline.core.errors import DataError, name_some
from ew_pipeline.core.files import first_line
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.csv_source import csv_scan
from ew_pipeline.intake.sql_text import literal, quoted

if TYPE_CHECKING:
    import duckdb
    from pyarrow.parquet import ParquetFile

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz")
FORMATS = (
    "use a .parquet, .csv or .csv.gz file, a directory of them, or a database URL with #table= or #query=."
)
UTC = "UTC"
OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")


class Source(Protocol):
    """A table to read. ``columns``: DuckDB type by name; ``text_cells``: numbers may be written as text."""

    @property
    def label(self) -> str:
        """What to call it in a message; holds no password."""

    @property
    def columns(self) -> Mapping[str, str]: ...

    @property
    def text_cells(self) -> bool: ...

    @property
    def parquet(self) -> Sequence[Path]:
        """The files, where rows may be read from them as they are; of any other source none."""

    def values(self, column: str) -> dict[str | None, int]:
        """Every value of a column as text (``week_text``), with its number of rows."""

    def week_text(self, column: str) -> str:
        """SQL: a cell of a week column as text; of a date or time, the date.

        A time with a zone that is not midnight stays a time, which ``Week.parse`` refuses: its date could be
        another one where the week begins.
        """

    def relation(
        self, columns: Sequence[str], only: Collection[str | None] | None, column: str = "week"
    ) -> str:
        """A DuckDB FROM clause with at least these columns, and the rows whose ``column`` is in ``only``.

        A file may hand over more rows than that: the caller filters too.
        """


def open_source(spec: str, connection: duckdb.DuckDBPyConnection) -> Source:
    """Find out what ``spec`` is and look at its columns. A DataError says what is wrong with it."""
    if "://" in spec:
        from ew_pipeline.intake.sql_source import open_database

        return open_database(spec, connection)
    connection.execute(f"SET TimeZone = '{UTC}'")  # DuckDB's own default is the zone of the machine
    path = Path(spec).expanduser()
    if not path.exists():
        raise DataError(f"{spec} does not exist.", "check the path; " + FORMATS)
    if path.is_dir():
        files, text_cells = _partitions(path)
    else:
        if not path.name.lower().endswith(PARQUET + CSV):
            raise DataError(f"{spec} is of an unknown format.", FORMATS)
        if path.stat().st_size == 0:
            raise DataError(f"{spec} is empty (0 bytes).", "export it again.")
        files, text_cells = [path], path.name.lower().endswith(CSV)
    hive = path.is_dir() and _is_hive(files, path)
    plain = () if text_cells or hive else tuple(files)
    source = _Files(spec, connection, _scan(files, text_cells, hive), text_cells, plain, files)
    if not source.columns:
        raise DataError(f"{spec} has no columns.", "export it again.")
    return source


def is_time(kind: str) -> bool:
    return kind == "DATE" or kind.startswith("TIMESTAMP")


@dataclass(frozen=True)
class _Files:
    """Parquet or CSV through DuckDB."""

    label: str
    connection: duckdb.DuckDBPyConnection
    scan: str
    text_cells: bool
    parquet: Sequence[Path]
    files: Sequence[Path]

    @cached_property
    def columns(self) -> Mapping[str, str]:
        return {name: kind for name, kind, *_ in self._query(f"DESCRIBE SELECT * FROM {self.scan}")}

    def values(self, column: str) -> dict[str | None, int]:
        text = self.week_text(column)
        return dict(self._query(f"SELECT {text}, count(*) FROM {self.scan} GROUP BY 1"))

    def week_text(self, column: str) -> str:
        cell = quoted(column)
        if not is_time(self.columns[column]):
            return f"CAST({cell} AS VARCHAR)"
        zone = self._zone(column)
        date = f"CAST(CAST({cell if zone is None else _local(cell, zone)} AS DATE) AS VARCHAR)"
        if zone is None:
            return date
        time = _local(cell, zone)
        midnight = f"{time} = date_trunc('day', {time})"
        return f"CASE WHEN {midnight} THEN {date} ELSE CAST({time} AS VARCHAR) || {literal(f' {zone}')} END"

    def _zone(self, column: str) -> str | None:
        """The zone that the files name for a time. UTC where they name none, or several; None: no instant."""
        if self.columns[column] == "DATE":
            return None
        from pyarrow.parquet import ParquetFile

        files = (ParquetFile(path) for path in self.files)
        zones = {zone_of(file, column) for file in files if column in file.schema_arrow.names}
        return zones.pop() if len(zones) == 1 else UTC

    def relation(
        self, columns: Sequence[str], only: Collection[str | None] | None, column: str = "week"
    ) -> str:
        return self.scan

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        with reading(self.label):
            return self.connection.execute(query).fetchall()


def zone_of(file: ParquetFile, column: str) -> str | None:
    """The zone that a file names for the times of a column; None where they are no instants."""
    places = [file.schema.column(k).path for k in range(len(file.schema.names))]
    if file.schema.column(places.index(column)).physical_type == "INT96":  # Spark's instants, without a mark
        return UTC
    zone: str | None = getattr(file.schema_arrow.field(column).type, "tz", None)
    return zone


def _local(cell: str, zone: str) -> str:
    """SQL: the wall clock of ``zone`` at an instant."""
    if offset := OFFSET.fullmatch(zone):
        sign, hours, minutes = offset.groups()
        return f"({_local(cell, UTC)} {sign} INTERVAL '{60 * int(hours) + int(minutes)} minutes')"
    return f"timezone({literal(zone)}, CAST({cell} AS TIMESTAMPTZ))"


@contextmanager
def reading(label: str) -> Iterator[None]:
    """Turn what DuckDB says of a broken file into a DataError that names the file."""
    import duckdb

    try:
        yield
    except (
        duckdb.IOException,
        duckdb.InvalidInputException,
        duckdb.ConversionException,
        duckdb.BinderException,
        duckdb.SerializationException,
        duckdb.NotImplementedException,
        duckdb.InternalException,
    ) as error:
        if "No space left" in str(error):  # in our scratch file; ``writing_to`` has the words for it
            raise
        raise DataError(
            f"{label} cannot be read: {first_line(error)}.",
            "export it again; if it opens elsewhere, write it as parquet.",
        ) from error


def _partitions(folder: Path) -> tuple[list[Path], bool]:
    """The data files below a directory, and whether they are CSV."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    parquet = [path for path in files if path.name.lower().endswith(PARQUET)]
    csv = [path for path in files if path.name.lower().endswith(CSV)]
    if parquet and csv:
        raise DataError(
            f"{folder} holds {len(parquet)} parquet and {len(csv)} CSV files.",
            "keep one kind in the directory.",
        )
    if not parquet and not csv:
        named = f" (found {name_some((path.name for path in files), len(files))})" if files else ""
        raise DataError(f"{folder} holds no parquet or CSV file{named}.", FORMATS)
    return parquet or csv, bool(csv)


def _is_hive(files: Sequence[Path], folder: Path) -> bool:
    """Whether some are in folders that are named column=value."""
    return any("=" in part for file in files for part in file.relative_to(folder).parts[:-1])


def _scan(files: Sequence[Path], text_cells: bool, hive: bool) -> str:
    """A DuckDB table function over the files."""
    # Values of column=value folders stay text, like all ids.
    options = ", hive_partitioning=true, hive_types_autocast=false" if hive else ", hive_partitioning=false"
    if text_cells:
        return csv_scan(files, options)
    listed = ", ".join(literal(str(path)) for path in files)
    return f"read_parquet([{listed}], union_by_name=true{options})"


@dataclass(frozen=True)
class WeekSources:
    """Where the tables of a week are. A source is a file, a folder of partitions, or SQL.

    ``stores`` and ``skus`` are tables of attributes (region, department) for ``config.segment_by``.
    """

    week: Week
    sales: str
    listing: str | None = None
    costs: str | None = None
    stores: str | None = None
    skus: str | None = None
    config: RunConfig = field(default_factory=RunConfig)
