"""One `ew up` in a home, and where it is: a lock that dies with its holder, and a record beside it.

Next to them is the login of its Prefect server, for this user alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.files import make_private, writing_to
from ew_pipeline.core.settings import Settings

FOLDER, LOCK, RECORD, LOGIN = "up", "lock", "up.json", "prefect.login"
THIS_MACHINE = ("127.0.0.1", "localhost")
PATIENCE = 1.0  # somebody may just be looking
NAMES = {"pages": "pages", "prefect": "Prefect", "mlflow": "MLflow"}


def up_folder(settings: Settings) -> Path:
    return settings.root / FOLDER


@contextmanager
def holding(settings: Settings) -> Iterator[None]:
    """Be the one. Another that is up is an error that says where it is."""
    folder = up_folder(settings)
    with writing_to(folder):
        make_private(settings.root)
        make_private(folder)
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _take(file, fcntl.LOCK_EX, PATIENCE):
            raise _is_up(settings)
        (folder / RECORD).unlink(missing_ok=True)  # of one that was killed
        try:
            yield
        finally:
            (folder / RECORD).unlink(missing_ok=True)
    finally:
        os.close(file)


def record(settings: Settings, what: Mapping[str, Any]) -> None:
    """Write down where the parts are; only the holder does."""
    path = up_folder(settings) / RECORD
    half = path.with_suffix(".part")
    half.write_text(json.dumps(what, indent=2), encoding="utf-8")
    os.replace(half, path)


def standing(settings: Settings) -> dict[str, Any] | None:
    """What is up in this home: its record, empty while it starts; None when nothing is."""
    folder = up_folder(settings)
    try:
        file = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        if _take(file, fcntl.LOCK_SH, 0.0):
            return None
    finally:
        os.close(file)
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def login_file(settings: Settings) -> Path:
    return up_folder(settings) / LOGIN


def prefect_login(settings: Settings) -> str:
    """Return the ``user:password`` of the home's Prefect server; drawn once, in a file of mode 0600."""
    path = login_file(settings)
    if (known := _read_private(path)) is not None:
        return known
    drawn = f"ew:{secrets.token_urlsafe(32)}"
    half = path.with_suffix(".part")
    with writing_to(path.parent):
        make_private(path.parent)
        half.unlink(missing_ok=True)
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(drawn + "\n")
        os.replace(half, path)
    return drawn


def login_for(settings: Settings, url: str) -> str | None:
    """Return the login if ``url`` is the Prefect server of the `ew up` in this home, else None."""
    ours = (standing(settings) or {}).get("prefect_api")
    if ours is None:
        return None
    asked, own = urlsplit(url), urlsplit(str(ours))
    same = asked.port == own.port and {asked.hostname, own.hostname} <= set(THIS_MACHINE)
    return _read_private(login_file(settings)) if same else None


def _read_private(path: Path) -> str | None:
    """Its text; None if it is not there, or others may read it."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read().strip()
            return text if text and os.fstat(file.fileno()).st_mode & 0o077 == 0 else None
    except OSError:
        return None


def in_words(found: Mapping[str, Any]) -> str:
    """``pages http://…, Prefect http://…, MLflow http://… (pid 4711, since …)``."""
    places = [f"{name} {found[key]}" for key, name in NAMES.items() if found.get(key)]
    if not places:
        return "it is starting"
    return f"{', '.join(places)} (pid {found.get('pid')}, since {found.get('since')})"


def _take(file: int, kind: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        else:
            return True


def _is_up(settings: Settings) -> EwError:
    found = standing(settings) or {}
    end = f"end it first: kill {found['pid']}" if "pid" in found else "wait until it has started"
    return EwError(f"`ew up` is running in {settings.root}: {in_words(found)}.", f"use it, or {end}")
