"""What is wrong, row by row: kept in DuckDB, written to the quarantine, told in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.errors import NAMED_OFFENDERS, DataError, name_some
from ew_pipeline.intake.sql_text import literal, number

if TYPE_CHECKING:
    import duckdb


EARLIER = ", in earlier weeks"
# A number as a person wrote it: 3, not 3.0; where it could not be read, the text itself.
UNITS = (
    "coalesce(units_text, CASE WHEN isfinite(units) AND units = floor(units) AND abs(units) < 1e15 "
    "THEN CAST(CAST(units AS BIGINT) AS VARCHAR) ELSE CAST(units AS VARCHAR) END) AS units"
)
LABEL = "strftime(DATE '1970-01-05' + 7 * {}, '%G-W%V')"  # from a week's index
WRITTEN = {
    "sales": ("store_id", "sku_id", "coalesce(CAST(week AS VARCHAR), week_text) AS week", UNITS),
    "listing": (
        "store_id",
        "sku_id",
        *(f"coalesce({name}_text, {LABEL.format(name)}) AS {name}" for name in ("first_week", "last_week")),
    ),
    "costs": ("store_id", "sku_id", "cost_false_alarm", "cost_missed"),
    "stores": ("store_id", "segment"),
    "skus": ("sku_id", "segment"),
}
KEYS = {
    "sales": ("store_id", "sku_id", "coalesce(CAST(week AS VARCHAR), week_text)"),
    "stores": ("store_id",),
    "skus": ("sku_id",),
}


class ContractRejected(DataError):
    """The batch breaks the contract; nothing of it is used. ``contract``: all that was found."""

    def __init__(self, message: str, next_step: str | None, contract: Contract) -> None:
        super().__init__(message, next_step)
        self.contract = contract


@dataclass(eq=False)
class FaultBook:
    """Faults as they are found. ``row`` is DuckDB's row number in the table."""

    connection: duckdb.DuckDBPyConnection
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS faulty (table_name VARCHAR, row BIGINT, reason VARCHAR)"
        )

    def add(self, table: str, rows: NDArray[np.int64], reason: str, *, rejects: bool) -> None:
        """These rows of ``table`` are faulty."""
        if rows.size == 0:
            return
        self.connection.register("found", pd.DataFrame({"row": rows}))
        self.connection.execute(
            f"INSERT INTO faulty SELECT {literal(table)}, row, {literal(reason)} FROM found"
        )
        self.connection.unregister("found")
        self.faults.append(Fault(table, reason, rows.size, self._examples(table, np.sort(rows)), rejects))

    def add_whole(self, table: str, reason: str, examples: tuple[str, ...] = ()) -> None:
        """The table as a whole is faulty."""
        self.faults.append(Fault(table, reason, 0, examples, True))

    @property
    def tables(self) -> list[str]:
        """Tables with faulty rows."""
        return sorted({fault.table for fault in self.faults if fault.rows})

    def rows(self, table: str, condition: str = "true") -> int:
        """How many rows of ``table`` are faulty, each counted once."""
        return number(
            f"SELECT count(*) FROM {table} AS t WHERE {condition} AND "
            f"t.rowid IN (SELECT row FROM faulty WHERE table_name = {literal(table)})",
            self.connection,
        )

    def write(self, folder: Path) -> Path | None:
        """One CSV per table with every faulty row and its reasons; None when there is no faulty row."""
        for table in self.tables:
            folder.mkdir(parents=True, exist_ok=True)
            columns = ", ".join(WRITTEN[table])
            part = folder / f".{table}.csv.part"
            self.connection.execute(
                f"COPY (SELECT {columns}, f.reason FROM {table} AS t JOIN "
                "(SELECT row, string_agg(reason, '; ' ORDER BY reason) AS reason FROM faulty "
                f"WHERE table_name = {literal(table)} GROUP BY row) AS f ON t.rowid = f.row ORDER BY ALL) "
                f"TO {literal(str(part))} (FORMAT csv, HEADER true)"
            )
            part.replace(folder / f"{table}.csv")
        return folder if self.tables else None

    def _examples(self, table: str, rows: NDArray[np.int64]) -> tuple[str, ...]:
        first = ", ".join(str(row) for row in rows[:NAMED_OFFENDERS])
        columns = ", ".join(f"CAST({key} AS VARCHAR)" for key in KEYS.get(table, ("store_id", "sku_id")))
        found = self.connection.execute(
            f"SELECT {columns} FROM {table} WHERE rowid IN ({first}) ORDER BY rowid"
        )
        return tuple(key_text(key) for key in found.fetchall())


def key_text(key: tuple[object, ...]) -> str:
    """``S1/K7 in 2026-W34``; ``?`` for what is missing."""
    parts = ["?" if part is None or part != part else str(part) for part in key]
    return "/".join(parts[:2]) + (f" in {parts[2]}" if len(parts) > 2 else "")


def in_words(fault: Fault) -> str:
    """``12 rows of sales: units below zero (S1/K7 in 2026-W34, …)``."""
    named = f" ({name_some(fault.examples, max(fault.rows, len(fault.examples)))})" if fault.examples else ""
    if not fault.rows:
        return f"{fault.table}: {fault.reason}{named}"
    return f"{fault.rows:,} {'row' if fault.rows == 1 else 'rows'} of {fault.table}: {fault.reason}{named}"


@dataclass(frozen=True)
class Fault:
    """A kind of fault found in a table, with how many rows it hit."""

    table: str
    reason: str  # in words, e.g. "units below zero"
    rows: int
    examples: tuple[str, ...]  # the first few keys
    rejects: bool  # True: the whole batch is rejected; False: the rows are quarantined


@dataclass(frozen=True)
class Contract:
    """What validation found.

    ``quarantine``: the folder with a CSV per table, every faulty row with its reason; None without any.
    ``data_docs``: index.html of Great Expectations' Data Docs; not there when a table could not be read.
    ``rows_known``: sales of earlier weeks that a run before this one had found without fault in the same
    file; they are among ``rows_read``, but not in these Data Docs.
    """

    faults: tuple[Fault, ...]
    rows_read: Mapping[str, int]  # by table, of the weeks that were asked for
    rows_quarantined: int
    quarantine: Path | None
    data_docs: Path
    ignored_columns: Mapping[str, tuple[str, ...]]
    rows_known: int = 0
