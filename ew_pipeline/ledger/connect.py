"""Opening the ledger: the database by its URL, its schema, one reader's and one writer's kind of transaction.

The schema is made when absent, brought up to date when old, refused when newer than this code.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.core.files import make_private
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.chain import HEAD_ID, genesis
from ew_pipeline.ledger.failures import LedgerError, explained, is_sqlite, shown

SCHEMA = "ew"  # in PostgreSQL; MLflow's tables in the same database have some of the same names
CONNECT_SECONDS = 10
WRITES = "ew_writes"
CACHE_KIB = 262_144
PAGE_BYTES = 16_384  # a large week's flags are written a tenth quicker than in pages of 4 KiB
EXAMPLES = "use sqlite:////folder/ledger.db or postgresql+psycopg://user:password@host/database."
NEWEST = "0005"  # the last file of migrations/versions; a test holds the two together
OLDEST = "0005"  # the first; what was older is brought up to it by commit LAST_WITH_OLDER
LAST_WITH_OLDER = "12bcf5a"
VERSION_TABLE = "ew_ledger_version"  # not alembic's own name: MLflow may live in the same database
MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATION_LOCK = 0x65_77_6C_65_64_67  # any number of our own: "ewledg"


def parse_url(url: str) -> URL:
    """Read a database URL; plain ``postgresql://`` means psycopg, the driver that is installed."""
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        backend = parsed.get_backend_name()
    except ArgumentError:
        raise UsageError("EW_DATABASE_URL is not the URL of a database.", EXAMPLES) from None
    if backend not in ("sqlite", "postgresql"):
        raise UsageError(f"the ledger cannot be kept in {backend}.", EXAMPLES)
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise UsageError("a ledger in memory would be lost at the end of the run.", EXAMPLES)
    return parsed


def make_engine(url: URL, busy_seconds: float) -> Engine:
    """An engine whose sessions wait ``busy_seconds`` for another writer.

    A connection per transaction: none is shared with a forked process or outlives a restart of the server.
    """
    return _sqlite_engine(url, busy_seconds) if is_sqlite(url) else _postgres_engine(url, busy_seconds)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One consistent view of the ledger."""
    with explained(engine.url), engine.connect() as connection:
        if not is_sqlite(engine.url):
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """All or nothing. In SQLite one writer from here on, in PostgreSQL from ``chain.lock_head`` on."""
    with explained(engine.url), engine.connect() as connection:
        connection = connection.execution_options(**{WRITES: True})
        with connection.begin():
            yield connection


def ensure_current(engine: Engine, *, migrate: bool) -> None:
    """Make sure the schema is the one this code knows; safe when several processes do it at once."""
    with reading(engine) as connection:
        found = schema_version(connection)
    if found == NEWEST:
        return
    _refuse_unknown_version(engine, found)
    if not migrate:
        raise LedgerError(
            f"the ledger {shown(engine.url)} "
            + ("does not exist yet." if found is None else f"has schema {found}, this code needs {NEWEST}."),
            "run a week (ew run), or open it with migrate=True.",
        )
    with writing(engine) as connection:
        if not is_sqlite(engine.url):
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            ensure_schema(connection)
        found = schema_version(connection)  # another process may have been quicker
        if found == NEWEST:
            return
        _refuse_unknown_version(engine, found)
        if found is None:
            _refuse_strange_tables(connection)
        _upgrade(connection)
        if found is None:
            _first_head(connection)


def ensure_schema(connection: Connection) -> None:
    """Make PostgreSQL's schema ``ew`` if it is not there; asking first needs no right to create."""
    found = connection.execute(text("SELECT to_regnamespace(:name) IS NOT NULL"), {"name": SCHEMA})
    if not found.scalar_one():
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))


def schema_version(connection: Connection) -> str | None:
    """The version the database has; None before the first migration."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
    return None if found is None else str(found)


def _sqlite_engine(url: URL, busy_seconds: float) -> Engine:
    file = Path(url.database or "")
    try:
        make_private(file.parent)
    except OSError as error:
        raise LedgerError(
            f"the folder of the ledger {shown(url)} cannot be made: {error.strerror}.",
            "make the folder writable, or point EW_HOME at one that is.",
        ) from error
    engine = create_engine(url, connect_args={"timeout": busy_seconds}, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: object) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; others keep their own
        connection.execute("PRAGMA journal_mode = WAL")  # readers do not wait for the writer
        connection.execute("PRAGMA synchronous = FULL")  # a commit survives a power cut
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # the indexes of a large week's flags

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres_engine(url: URL, busy_seconds: float) -> Engine:
    arguments: dict[str, Any] = {"application_name": f"ew {socket.gethostname()} pid {os.getpid()}"[:63]}
    if "connect_timeout" not in url.query:
        arguments["connect_timeout"] = CONNECT_SECONDS
    engine = create_engine(url, connect_args=arguments, poolclass=NullPool)
    milliseconds = max(1, int(busy_seconds * 1000))

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: object) -> None:
        connection.execute(f"SET search_path TO {SCHEMA}")
        connection.execute(f"SET lock_timeout TO {milliseconds}")
        connection.commit()

    return engine


def _refuse_unknown_version(engine: Engine, found: str | None) -> None:
    known = {path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py")}
    if found is None or found in known:
        return
    place = f"the ledger {shown(engine.url)} has schema {found}"
    if found < OLDEST:
        raise LedgerError(
            f"{place}, which this version of ew-pipeline no longer reads; it starts at {OLDEST}.",
            f"open it once with commit {LAST_WITH_OLDER} (git checkout {LAST_WITH_OLDER}; ew audit verify), "
            "which brings it up to date; it is untouched.",
        )
    raise LedgerError(
        f"{place}, written by a newer version of ew-pipeline; this one knows {NEWEST} at most.",
        "upgrade ew-pipeline on this machine; the ledger is untouched.",
    )


def _refuse_strange_tables(connection: Connection) -> None:
    taken = sorted(set(inspect(connection).get_table_names()) & {*tables.metadata.tables, "flags"})
    if taken:
        raise LedgerError(
            f"the database {shown(connection.engine.url)} is not a ledger but has tables of the same names "
            f"({name_some(taken, len(taken))}).",
            "point EW_DATABASE_URL at an empty database, or at none to use ledger.db in EW_HOME.",
        )


def _upgrade(connection: Connection) -> None:
    # alembic takes a while to import, and almost every run finds the schema up to date.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")


def _first_head(connection: Connection) -> None:
    if connection.execute(select(tables.chain_head.c.id)).first() is None:
        ledger_id = str(uuid.uuid4())
        connection.execute(
            insert(tables.chain_head),
            {"id": HEAD_ID, "ledger_id": ledger_id, "seq": 0, "hash": genesis(ledger_id)},
        )
