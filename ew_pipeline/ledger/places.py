"""How moments and paths are written into the ledger, and read back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from ew_pipeline.core.errors import DataError


def moment(value: dt.datetime) -> str:
    """UTC in ISO text of one width, so that text sorts in time."""
    if value.tzinfo is None:
        raise DataError(f"{value} has no time zone.", "pass an aware datetime, e.g. datetime.now(UTC).")
    return value.astimezone(dt.UTC).isoformat(timespec="microseconds")


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Places:
    """Paths inside the home are kept relative to it: the home can move, or be mounted elsewhere."""

    def __init__(self, home: Path | None) -> None:
        self.home = None if home is None else home.expanduser().resolve()

    def keep(self, path: Path) -> str:
        path = path.absolute()
        if self.home is not None and path.is_relative_to(self.home):
            return path.relative_to(self.home).as_posix()
        return path.as_posix()

    def find(self, kept: str) -> Path:
        return Path(kept) if self.home is None else self.home / kept
