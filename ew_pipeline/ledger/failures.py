"""What a database says when it fails, turned into what a person can do about it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from ew_pipeline.core.errors import EwError
from ew_pipeline.intake.source_passwords import without_password


class LedgerError(EwError):
    """The ledger cannot be read or written. ``transient``: the same call may succeed in a moment."""

    def __init__(self, message: str, next_step: str | None = None, *, transient: bool = False) -> None:
        super().__init__(message, next_step)
        self.transient = transient


NOTHING_WRITTEN = "Nothing was written."


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """Turn any error of the database into a ``LedgerError``; the block's transaction is already undone."""
    try:
        yield
    except DBAPIError as error:
        raise _explain(error, url) from error
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise LedgerError(f"the ledger {shown(url)} failed: {_first_line(error)}") from error


def shown(url: URL) -> str:
    """The ledger's name in a message: the file, or the URL without its password."""
    if is_sqlite(url):
        return url.database or "in memory"
    return without_password(url.render_as_string(hide_password=False))


def is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _explain(error: DBAPIError, url: URL) -> LedgerError:
    words = _first_line(error.orig if error.orig is not None else error)
    if isinstance(error, IntegrityError):
        return LedgerError(
            f"the ledger {shown(url)} already holds, or lacks, a row this needs ({words}). {NOTHING_WRITTEN}",
            "see whether rows were changed by hand: ew audit verify",
        )
    known = _sqlite(words, url) if is_sqlite(url) else _postgres(error, words, url)
    return known or LedgerError(f"the ledger {shown(url)} failed: {words}. {NOTHING_WRITTEN}")


def _sqlite(words: str, url: URL) -> LedgerError | None:
    place = shown(url)
    said = words.lower()
    if "locked" in said or "busy" in said:
        return LedgerError(
            f"the ledger {place} is locked by another process. {NOTHING_WRITTEN}",
            f"let the other run finish, then rerun; `fuser {place}` names it.",
            transient=True,
        )
    if "readonly" in said or "read-only" in said:
        return LedgerError(
            f"the ledger {place} cannot be written: it, or its folder, is read-only. {NOTHING_WRITTEN}",
            "make the folder writable, or point EW_HOME at one that is.",
        )
    if "not a database" in said or "malformed" in said:
        return LedgerError(
            f"the file {place} is not a readable ledger ({words}).",
            "put the last backup in its place, or move it away to start an empty ledger.",
        )
    if "full" in said or "disk i/o error" in said or "too big" in said:
        return LedgerError(
            f"the disk of the ledger {place} is full or failing ({words}). {NOTHING_WRITTEN}",
            "free some space, then rerun; what was published before is unharmed.",
        )
    if "unable to open" in said:
        return LedgerError(
            f"the ledger {place} cannot be opened: its folder is missing or not writable.",
            "make the folder writable, or point EW_HOME at one that is.",
        )
    return None


# SQLSTATE, or its class (the first two characters).
_POSTGRES = {
    "55P03": ("another run is writing to it and did not finish in time", "wait for it, then rerun.", True),
    "40": ("another transaction got in between", "rerun.", True),
    "57": ("the server is shutting down or starting", "rerun when it is up.", True),
    "08": ("the connection was lost", "check that the server is up, then rerun.", True),
    "53": (
        "the server is out of disk, memory or connections",
        "free some (df, max_connections), then rerun; what was published before is unharmed.",
        True,
    ),
    "25006": (
        "the server is read-only (a replica?)",
        "point EW_DATABASE_URL at the primary server.",
        False,
    ),
    "42501": (
        "the user may not do that",
        "grant the user the schema: CREATE SCHEMA ew AUTHORIZATION <user>",
        False,
    ),
}


def _postgres(error: DBAPIError, words: str, url: URL) -> LedgerError | None:
    place = shown(url)
    state = str(getattr(error.orig, "sqlstate", None) or "")
    known = _POSTGRES.get(state) or _POSTGRES.get(state[:2])
    if known is not None:
        what, next_step, transient = known
        return LedgerError(
            f"the ledger {place} failed: {what} ({words}). {NOTHING_WRITTEN}", next_step, transient=transient
        )
    if not state and type(error.orig).__name__ in ("OperationalError", "ConnectionTimeout"):
        return LedgerError(
            f"the ledger {place} cannot be reached: {words}",
            "start the server, check EW_DATABASE_URL (host, port, user, database), then rerun.",
            transient=True,
        )
    return None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
