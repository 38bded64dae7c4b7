"""The ledger's schema: made when absent, brought up to date when old, refused when newer than this code."""

from __future__ import annotations

import uuid
from pathlib import Path

from sqlalchemy import Connection, Engine, insert, inspect, select, text

from ew_pipeline.core.errors import name_some
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.chain import HEAD_ID, genesis
from ew_pipeline.ledger.connect import ensure_schema, reading, writing
from ew_pipeline.ledger.failures import LedgerError, is_sqlite, shown

NEWEST = "0005"  # the last file of migrations/versions; a test holds the two together
OLDEST = "0005"  # the first; what was older is brought up to it by commit LAST_WITH_OLDER
LAST_WITH_OLDER = "12bcf5a"
VERSION_TABLE = "ew_ledger_version"  # not alembic's own name: MLflow may live in the same database
MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATION_LOCK = 0x65_77_6C_65_64_67  # any number of our own: "ewledg"


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


def schema_version(connection: Connection) -> str | None:
    """The version the database has; None before the first migration."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
    return None if found is None else str(found)


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
