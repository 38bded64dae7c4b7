"""A table of checks as a person or a program wrote it, as rows of the contract."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pandas as pd

from ew_pipeline.core.errors import DataError, UsageError, name_some
from ew_pipeline.core.schema import CHECKS
from ew_pipeline.core.week import Week
from ew_pipeline.intake.sources import open_source

OPTIONAL = ("note", "checked_at")  # columns the ledger has room for
# The apostrophe that a check list puts before what a spreadsheet would take for a formula.
GUARD = re.compile(r"(?:\A|(?<=[,;|\t\r\n]))'(?=\s*[=+\-@＝＋－＠]|[\t\r\n])")


@dataclass(frozen=True, eq=False)
class CheckTable:
    """``rows``: text columns of ``schema.CHECKS``, None where missing. ``empty``: rows without outcome."""

    rows: pd.DataFrame
    empty: int
    label: str


def read_checks(spec: str) -> CheckTable:
    """Read a file or a database table (``data.sources``); a filled-in check list is one.

    Rows whose outcome is empty are not checks yet and are passed over.
    """
    import duckdb

    with duckdb.connect() as connection:
        source = open_source(spec, connection)
        absent = [name for name in CHECKS.required if name not in source.columns]
        if absent:
            raise DataError(
                f"{source.label} has no column {name_some(absent, len(absent))}.",
                f"a table of checks has {', '.join(CHECKS.names)}; a filled-in check_list.csv is one.",
            )
        names = [name for name in (*CHECKS.names, *OPTIONAL) if name in source.columns]
        cells = [
            f"{source.week_text('week')} AS week"
            if name == "week"
            else f'CAST("{name}" AS VARCHAR) AS "{name}"'
            for name in names
        ]
        frame = connection.execute(f"SELECT {', '.join(cells)} FROM {source.relation(names, None)}").df()
        return _table(frame, source.label)


def _table(frame: pd.DataFrame, label: str) -> CheckTable:
    cells = {name: _texts(frame[name]) for name in frame.columns}
    given = [row for row, outcome in enumerate(cells["outcome"]) if outcome is not None]
    rows = {name: [_meant(name, texts[row]) for row in given] for name, texts in cells.items()}
    # As objects: a column of texts would turn None into NaN.
    made = pd.DataFrame({name: pd.Series(texts, dtype=object) for name, texts in rows.items()})
    return CheckTable(made, len(frame) - len(given), label)


def one_check(**values: str | None) -> CheckTable:
    """A single check, from the command line."""
    return _table(pd.DataFrame({name: [value] for name, value in values.items()}, dtype=object), "the check")


def _texts(column: pd.Series[str]) -> list[str | None]:
    texts = (None if not isinstance(value, str) else value.strip() for value in column)
    return [text or None for text in texts]


def _meant(column: str, text: str | None) -> str | None:
    """People type ``Not checked``, and a check list guards ids against spreadsheets."""
    if text is None:
        return None
    if column in ("outcome", "source"):
        return re.sub(r"[\s-]+", "_", text.lower())
    if column in ("store_id", "sku_id"):
        return GUARD.sub("", text)
    if column == "week":
        try:
            return str(Week.parse(text))
        except UsageError:
            return None
    return text
