"""Reading a published file, with words for one that is not what its name promises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ew_pipeline.core.errors import DataError


def existing(path: str | Path, what: str) -> Path:
    """``path`` if it is there; ``what`` says which file of the dataset was expected."""
    found = Path(path)
    if not found.exists():
        raise DataError(f"{path} is not there; {what} was expected.", "download it and pass its place.")
    return found


def read_csv(
    path: str | Path,
    columns: Sequence[str],
    what: str,
    text: Sequence[str] = (),
    *,
    all_columns: bool = False,
) -> pd.DataFrame:
    """The named columns of a CSV file, or all of them; ``text`` ones are kept as they are written."""
    place = existing(path, what)
    kept = pd.read_csv(place, nrows=0).columns
    require(kept, columns, f"{path} ({what})")
    chosen = None if all_columns else list(columns)
    return pd.read_csv(place, usecols=chosen, dtype=dict.fromkeys(text, "str"))


def require(present: Sequence[str] | pd.Index[str], columns: Sequence[str], what: str) -> None:
    """Refuse a table without one of ``columns``."""
    missing = [name for name in columns if name not in present]
    if missing:
        raise DataError(
            f"{what} has no column {', '.join(missing)}; it begins with {', '.join(list(present)[:8])}.",
            "pass the file as its publisher hands it out.",
        )
