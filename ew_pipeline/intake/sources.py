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
(``intake.tables``) turns them into numbers. In a URL, ``#`` within a password is written ``%23``.

A time with a zone counts by its date in that zone. Databases and Spark keep no zone: their times are in UTC.
The time zone of the machine is never used.

DuckDB's own detection of CSV skips lines that do not look like the rest. Here the header line settles
delimiter and columns, and a line that does not fit is an error.

A URL is stored and shown without its password (``intake.source_passwords``).
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.files import first_line
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.source_passwords import without_password

if TYPE_CHECKING:
    import duckdb
    from pyarrow.parquet import ParquetFile
    from sqlalchemy import Connection, Engine, TextClause

DELIMITERS = (",", ";", "\t", "|")
FORMATS = (
    "use a .parquet, .csv or .csv.gz file, a directory of them, or a database URL with #table= or #query=."
)
FORM = "write postgresql+psycopg://user@host/database#table=sales, or …#query=select store_id, … from …"
PARQUET, CSV = (".parquet", ".pq"), (".csv", ".csv.gz")
ROWS_AT_A_TIME = 200_000
UTC = "UTC"
OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
Header = tuple[str, tuple[str, ...]]


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


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("'", "''") + "'"


def number(query: str, connection: duckdb.DuckDBPyConnection) -> int:
    """The answer to a query for one number. All of it is fetched: DuckDB refuses other work before that."""
    ((answer,),) = connection.execute(query).fetchall()
    return int(answer)


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


def _partitions(folder: Path) -> tuple[list[Path], bool]:
    """The data files below a directory, and whether they are CSV."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    parquet = [path for path in files if path.name.lower().endswith(PARQUET)]
    texts = [path for path in files if path.name.lower().endswith(CSV)]
    if parquet and texts:
        raise DataError(
            f"{folder} holds {len(parquet)} parquet and {len(texts)} CSV files.",
            "keep one kind in the directory.",
        )
    if not parquet and not texts:
        named = f" (found {name_some((path.name for path in files), len(files))})" if files else ""
        raise DataError(f"{folder} holds no parquet or CSV file{named}.", FORMATS)
    return parquet or texts, bool(texts)


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


def csv_scan(files: Sequence[Path], options: str) -> str:
    """A FROM clause over the files, every cell as text. Files may order their columns differently."""
    alike: dict[Header, list[Path]] = {}
    for path in files:
        alike.setdefault(_header(path), []).append(path)
    scans = [_read_csv(paths, header, options) for header, paths in alike.items()]
    return (
        scans[0]
        if len(scans) == 1
        else "(" + " UNION ALL BY NAME ".join(f"FROM {scan}" for scan in scans) + ")"
    )


def _read_csv(paths: Sequence[Path], header: Header, options: str) -> str:
    delimiter, names = header
    listed = ", ".join(literal(str(path)) for path in paths)
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv([{listed}], auto_detect=false, header=true, delim={literal(delimiter)}, "
        f"quote='\"', escape='\"', columns={{{columns}}}{options})"
    )


def _header(path: Path) -> Header:
    """The delimiter and the column names, from the first line."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = file.readline()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}.", "export it again, as UTF-8.") from error
    if not line.strip():
        raise DataError(
            f"{path} has no header line.", "export it again, with the column names in the first line."
        )
    delimiter = max(DELIMITERS, key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    repeated = sorted({name for name in names if names.count(name) > 1 or not name})
    if repeated:
        raise DataError(
            f"{path} has columns without a name of their own: "
            f"{name_some(map(repr, repeated), len(repeated))}.",
            "give every column one name in the first line.",
        )
    return delimiter, tuple(names)


def open_database(spec: str, connection: duckdb.DuckDBPyConnection) -> _Database:
    """``<url>#table=<name>`` or ``<url>#query=<select>``."""
    from sqlalchemy import create_engine
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    address, _, wanted = spec.partition("#")
    kind, _, value = wanted.partition("=")
    try:
        url = make_url(address)
        engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        shown = address.split("://")[0] + "://…"  # the rest may hold a password
        raise UsageError(
            f"{shown} is not a database this machine can open: {first_line(error)}.", FORM
        ) from None
    hidden = without_password(address)
    if kind not in ("table", "query") or not value.strip():
        raise UsageError(f"{hidden} does not say what to read.", FORM)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    if is_file and not Path(str(url.database)).exists():  # SQLite would quietly make an empty one
        raise DataError(f"{hidden} does not exist.", "check the path of the database file.")
    if kind == "table":
        quote = engine.dialect.identifier_preparer.quote
        from_clause = ".".join(quote(part) for part in value.strip().split("."))
    else:
        from_clause = f"({value.strip().rstrip(';')}) ew_source"
    database = _Database(f"{hidden}#{kind}={value}", engine, from_clause, connection)
    with database.reading() as open_connection:
        rows = open_connection.execute(_statement(f"SELECT * FROM {from_clause} WHERE 1 = 0"))
        database.columns.update(dict.fromkeys(rows.keys(), "VARCHAR"))
    return database


@dataclass(frozen=True)
class _Database:
    """Every cell as text: what a driver returns differs, what a person reads does not."""

    label: str
    engine: Engine
    from_clause: str
    connection: duckdb.DuckDBPyConnection
    columns: dict[str, str] = field(default_factory=dict)
    text_cells: bool = True
    parquet: tuple[Path, ...] = ()
    originals: dict[str, dict[str | None, list[Any]]] = field(default_factory=dict)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            with self.engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise DataError(
                f"{self.label} cannot be read: {first_line(cause)}.",
                "check that the database is up, that it can be reached, and that the table is there.",
            ) from error
        finally:
            self.engine.dispose()

    def values(self, column: str) -> dict[str | None, int]:
        name = self._name(column)
        with self.reading() as connection:
            query = f"SELECT {name}, count(*) FROM {self.from_clause} GROUP BY {name}"
            rows = connection.execute(_statement(query))
            found: dict[str | None, int] = {}
            originals: dict[str | None, list[Any]] = {}
            for value, count in rows:
                text = _cell(value)
                found[text] = found.get(text, 0) + int(count)
                originals.setdefault(text, []).append(value)
        self.originals[column] = originals
        return found

    def week_text(self, column: str) -> str:
        return f"CAST({quoted(column)} AS VARCHAR)"

    def relation(
        self, columns: Sequence[str], only: Collection[str | None] | None, column: str = "week"
    ) -> str:
        """Load the rows into a DuckDB table, a block at a time."""
        import pyarrow as pa
        from sqlalchemy import bindparam

        selected = ", ".join(self._name(name) for name in columns)
        statement, parameters = _statement(f"SELECT {selected} FROM {self.from_clause}"), {}
        if only is not None:
            name = self._name(column)
            wanted = [value for key in only for value in self.originals[column].get(key, ())]
            missing = f" OR {name} IS NULL" if None in wanted else ""
            statement = _statement(
                f"SELECT {selected} FROM {self.from_clause}", f" WHERE {name} IN :wanted{missing}"
            ).bindparams(bindparam("wanted", expanding=True))
            parameters = {"wanted": [value for value in wanted if value is not None]}
        table = f"staged_{self._next_number()}"
        definition = ", ".join(f"{quoted(name)} VARCHAR" for name in columns)
        self.connection.execute(f"CREATE TABLE {table} ({definition})")
        with self.reading() as connection:
            streamed = connection.execution_options(stream_results=True, yield_per=ROWS_AT_A_TIME)
            for block in streamed.execute(statement, parameters).partitions(ROWS_AT_A_TIME):
                cells = {
                    name: pa.array([_cell(value) for value in values], pa.string())
                    for name, values in zip(columns, zip(*block, strict=True), strict=True)
                }
                self.connection.register("block", pa.table(cells))
                self.connection.execute(f"INSERT INTO {table} SELECT * FROM block")
                self.connection.unregister("block")
        return table

    def _name(self, column: str) -> str:
        return self.engine.dialect.identifier_preparer.quote(column)

    def _next_number(self) -> int:
        return number("SELECT count(*) FROM duckdb_tables()", self.connection)


def _statement(query: str, condition: str = "") -> TextClause:
    """``query`` as it is, a colon in it being data; a colon in ``condition`` names a parameter."""
    from sqlalchemy import text

    return text(query.replace(":", "\\:") + condition)


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        # The driver shows an instant in the zone of the session; a database keeps none.
        utc = value.astimezone(dt.UTC)
        return utc.date().isoformat() if utc.time() == dt.time() else utc.isoformat(" ")
    if isinstance(value, dt.date):
        return value.isoformat()[:10]
    return str(value)
