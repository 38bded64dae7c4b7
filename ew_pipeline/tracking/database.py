"""MLflow's database in the home: made, brought up to date, and moved along with the home.

Beyond importing MLflow, a first touch costs 66 migrations: 1.2 s of CPU and as many waits for the disk (7 s
together on a busy machine). The schema is therefore made in a file beside, without the waits, and renamed:
killed at any moment, it is there or it is not.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

ARTIFACT_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock ends with its process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare_database(uri: str) -> None:
    """A fresh SQLite database gets its schema, one of an older MLflow is brought up to date."""
    path = _sqlite_file(uri)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_size == 0:
        _beside(path, fresh=True)
        return
    if _outdated(path):
        _beside(path, fresh=False)


def _outdated(path: Path) -> bool:
    """Asked before MLflow is, which would alter some old schemas in place, refuse others, and try for minutes
    to open a file that is no database."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    with closing(sqlite3.connect(path, timeout=60.0)) as database:
        (found,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    scripts = ScriptDirectory.from_config(_get_alembic_config(""))  # type: ignore[no-untyped-call]
    if found == scripts.get_current_head():
        return False
    if all(script.revision != found for script in scripts.walk_revisions()):
        raise RuntimeError(f"a newer MLflow made it (schema {found})")
    return True


def _beside(path: Path, *, fresh: bool) -> None:
    """Make or upgrade the schema in another file, then put it in place; the old one stays as a copy."""
    from mlflow.store.db import utils
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    if not fresh:
        shutil.copy2(path, part)
    engine = create_engine(f"sqlite:///{part}", poolclass=NullPool)
    event.listen(engine, "connect", _without_waits)
    if fresh:
        utils._initialize_tables(engine)  # type: ignore[no-untyped-call]
    else:
        utils._upgrade_db(engine)  # type: ignore[no-untyped-call]
        shutil.copy2(path, path.with_name(f"{path.name}.before-upgrade"))
    engine.dispose()
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(path)


def _without_waits(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA journal_mode=MEMORY")


def _sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite URI, as SQLAlchemy reads it."""
    from sqlalchemy.engine import make_url

    url = make_url(uri)
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return Path(url.database).absolute()


def follow_the_home(uri: str, artifacts: str, experiment: str) -> None:
    """MLflow keeps absolute paths of artifacts. In a home that was moved or copied they would lead back to
    the old place: let them lead to ``artifacts`` (a URI that ends in /)."""
    path = _sqlite_file(uri)
    if path is None:
        return
    with closing(sqlite3.connect(path, timeout=60.0)) as database, database:
        found = database.execute(
            "SELECT artifact_location FROM experiments WHERE name = ?", (experiment,)
        ).fetchone()
        if found is None or found[0] == artifacts + experiment:
            return
        old = found[0].removesuffix(experiment)
        for table, column in ARTIFACT_COLUMNS:
            database.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (artifacts, len(old) + 1, len(old), old),
            )
