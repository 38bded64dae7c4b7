"""Disk trouble in words: which folder, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ew_pipeline.core.errors import EwError

WAYS_OUT = {
    errno.ENOSPC: "free some space there, or set EW_HOME to a folder on another disk, and run again.",
    errno.EDQUOT: "free some of your quota, or set EW_HOME to a folder on another disk, and run again.",
    errno.EROFS: "set EW_HOME to a folder that can be written to, and run again.",
    errno.EACCES: "give this user the right to write there, or set EW_HOME to another folder, and run again.",
    errno.EPERM: "give this user the right to write there, or set EW_HOME to another folder, and run again.",
}


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn a failed write below ``folder`` into an EwError (exit code 3). Errors of ours pass through."""
    import duckdb

    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        way_out = WAYS_OUT.get(error.errno or 0, "see that the folder can be written to, and run again.")
        raise EwError(f"cannot write to {folder}: {reason}.", way_out) from error
    except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
        # DuckDB says in words, not by a number, that its scratch file found no room.
        raise EwError(f"cannot write to {folder}: {first_line(error)}.", WAYS_OUT[errno.ENOSPC]) from error


def make_private(folder: Path) -> None:
    """Make the folder for this user alone. One that is there keeps the rights that it was given."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def first_line(error: BaseException) -> str:
    """The first line of a library's message, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
