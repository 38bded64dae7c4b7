"""One `ew up` in a home, and where it is: a lock that dies with its holder, and a record beside it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ew_pipeline.data._disk import writing_to
from ew_pipeline.errors import EwError
from ew_pipeline.settings import Settings

FOLDER, LOCK, RECORD = "up", "lock", "up.json"
PATIENCE = 1.0  # somebody may just be looking


def up_folder(settings: Settings) -> Path:
    return settings.root / FOLDER


@contextmanager
def holding(settings: Settings) -> Iterator[None]:
    """Be the one. Another that is up is an error that says where it is."""
    folder = up_folder(settings)
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
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


def in_words(found: Mapping[str, Any]) -> str:
    """``pages http://…, Prefect http://…, MLflow http://… (pid 4711, since …)``."""
    places = [f"{name} {found[key]}" for key, name in NAMES.items() if found.get(key)]
    if not places:
        return "it is starting"
    return f"{', '.join(places)} (pid {found.get('pid')}, since {found.get('since')})"


NAMES = {"pages": "pages", "prefect": "Prefect", "mlflow": "MLflow"}


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
