"""CSV files for DuckDB, with nothing left to guess.

DuckDB's own detection skips lines that do not look like the rest, so a damaged line could cost a header or
rows without a word. Here the header line settles delimiter and columns, and a line that does not fit is an
error.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

from ew_pipeline.core.errors import DataError, name_some
from ew_pipeline.intake.sql_text import literal

DELIMITERS = (",", ";", "\t", "|")
Header = tuple[str, tuple[str, ...]]


def csv_scan(files: Sequence[Path], options: str) -> str:
    """A FROM clause over the files, every cell as text. Files may order their columns differently."""
    alike: dict[Header, list[Path]] = {}
    for path in files:
        alike.setdefault(_header(path), []).append(path)
    scans = [_read_csv(paths, header, options) for header, paths in alike.items()]
    return (
        scans[0]
        if len(scans) == 1
        else "(" + " UNION ALL BY NAME ".join(f"FROM {scan}" for scan in scans) + ")"
    )


def _read_csv(paths: Sequence[Path], header: Header, options: str) -> str:
    delimiter, names = header
    listed = ", ".join(literal(str(path)) for path in paths)
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv([{listed}], auto_detect=false, header=true, delim={literal(delimiter)}, "
        f"quote='\"', escape='\"', columns={{{columns}}}{options})"
    )


def _header(path: Path) -> Header:
    """The delimiter and the column names, from the first line."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = file.readline()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}.", "export it again, as UTF-8.") from error
    if not line.strip():
        raise DataError(
            f"{path} has no header line.", "export it again, with the column names in the first line."
        )
    delimiter = max(DELIMITERS, key=line.count)
    names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    repeated = sorted({name for name in names if names.count(name) > 1 or not name})
    if repeated:
        raise DataError(
            f"{path} has columns without a name of their own: "
            f"{name_some(map(repr, repeated), len(repeated))}.",
            "give every column one name in the first line.",
        )
    return delimiter, tuple(names)
