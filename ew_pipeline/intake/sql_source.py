"""A table or a query of a database, by SQLAlchemy URL."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.files import first_line
from ew_pipeline.intake.source_passwords import without_password
from ew_pipeline.intake.sql_text import number, quoted

if TYPE_CHECKING:
    import duckdb
    from sqlalchemy import Connection, Engine, TextClause

FORM = "write postgresql+psycopg://user@host/database#table=sales, or …#query=select store_id, … from …"
ROWS_AT_A_TIME = 200_000


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
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        _refuse_missing_file(str(url.database), hidden)
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


def _refuse_missing_file(path: str, label: str) -> None:
    from pathlib import Path

    if not Path(path).exists():  # SQLite would quietly make an empty one
        raise DataError(f"{label} does not exist.", "check the path of the database file.")


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
