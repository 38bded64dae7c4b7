"""One run of a week at a time, on this machine (SQLite) or on all of them (PostgreSQL).

Both locks die with their holder: an OS lock on a file in ``locks/`` of the home, or an advisory lock of a
database session. Nothing has to be cleaned up after a crash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from ew_pipeline.ledger.failures import LedgerError, explained, is_sqlite
from ew_pipeline.ledger.records import now

FOLDER = "locks"
POLL_SECONDS = 0.2
LOCK_SPACE = 0x65_77  # the first half of our advisory locks' keys
OnWait = Callable[[str], None]


@contextmanager
def week_lock(
    engine: Engine,
    home: Path | None,
    week: str,
    *,
    who: str,
    wait_seconds: float,
    on_wait: OnWait | None = None,
) -> Iterator[None]:
    """Hold the week. Waits up to ``wait_seconds`` for another holder, told once to ``on_wait``."""
    holder = f"pid {os.getpid()} since {now():%H:%M:%S} UTC, {who} on {socket.gethostname()}"
    if is_sqlite(engine.url) and home is not None:
        with _open(home / FOLDER / f"{week}.lock") as file:
            _wait(week, lambda: _take_file(file), lambda: _file_holder(file), wait_seconds, on_wait)
            _sign(file, holder)
            try:
                yield
            finally:
                _sign(file, "")  # closing the file frees the lock
        return
    with _advisory_lock(engine, week, holder, wait_seconds, on_wait):
        yield


@contextmanager
def _advisory_lock(
    engine: Engine, week: str, holder: str, wait_seconds: float, on_wait: OnWait | None
) -> Iterator[None]:
    key = int.from_bytes(hashlib.sha256(week.encode()).digest()[:4], "big", signed=True)
    with ExitStack() as stack:
        # Only our own calls are explained: what fails inside the caller's block is not the ledger.
        with explained(engine.url):
            connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            stack.callback(_end_session, connection)
            _wait(
                week, lambda: _take(connection, key), lambda: _holder(connection, key), wait_seconds, on_wait
            )
            name = f"ew {week}: {holder}"[:63]  # PostgreSQL keeps no more
            connection.execute(text("SELECT set_config('application_name', :name, false)"), {"name": name})
        yield


def _end_session(connection: Connection) -> None:
    with suppress(SQLAlchemyError):  # a session that the server has ended holds no lock
        connection.close()


def _wait(
    week: str,
    take: Callable[[], bool],
    holder: Callable[[], str],
    wait_seconds: float,
    on_wait: OnWait | None,
) -> None:
    until = time.monotonic() + wait_seconds
    told = False
    while not take():
        if time.monotonic() >= until:
            raise LedgerError(
                f"week {week} is being run by {holder()}; gave up after waiting {wait_seconds:g} s.",
                "wait until it is done, then rerun: with the same inputs nothing will change.",
                transient=True,
            )
        if not told and on_wait is not None:
            on_wait(f"week {week} is being run by {holder()}; waiting up to {wait_seconds:g} s.")
        told = True
        time.sleep(POLL_SECONDS)


@contextmanager
def _open(path: Path) -> Iterator[int]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise LedgerError(
            f"the lock file {path} cannot be made: {error.strerror}.",
            "make the folder writable, or point EW_HOME at one that is.",
        ) from error
    try:
        yield file
    finally:
        os.close(file)


def _take_file(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: int, holder: str) -> None:
    """Say who holds the lock; on a full disk it holds all the same, unsigned."""
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, holder.encode(), 0)


def _file_holder(file: int) -> str:
    return os.pread(file, 500, 0).decode(errors="replace").strip() or "another process"


def _take(connection: Connection, key: int) -> bool:
    taken = connection.execute(
        text("SELECT pg_try_advisory_lock(:space, :key)"), {"space": LOCK_SPACE, "key": key}
    )
    return bool(taken.scalar_one())


def _holder(connection: Connection, key: int) -> str:
    name = connection.execute(
        text(
            "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
            " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = :space"
            " AND l.objid::bigint = :key AND l.database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        ),
        {"space": LOCK_SPACE, "key": key % 2**32},
    ).scalar_one_or_none()
    return str(name or "").partition(": ")[2] or "another process"
