"""Connections to the ledger's database: one reader's and one writer's kind of transaction."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.files import make_private
from ew_pipeline.ledger.failures import LedgerError, explained, is_sqlite, shown

SCHEMA = "ew"  # in PostgreSQL; MLflow's tables in the same database have some of the same names
CONNECT_SECONDS = 10
WRITES = "ew_writes"
CACHE_KIB = 262_144
PAGE_BYTES = 16_384  # a large week's flags are written a tenth quicker than in pages of 4 KiB
EXAMPLES = "use sqlite:////folder/ledger.db or postgresql+psycopg://user:password@host/database."


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


def ensure_schema(connection: Connection) -> None:
    """Make PostgreSQL's schema ``ew`` if it is not there; asking first needs no right to create."""
    found = connection.execute(text("SELECT to_regnamespace(:name) IS NOT NULL"), {"name": SCHEMA})
    if not found.scalar_one():
        connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
