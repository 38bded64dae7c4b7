"""The contract of the tables: what is checked, where faulty rows go, and the words of a rejection.

Validation rejects or quarantines, and never repairs. Sales are checked a few weeks at a time, so that memory
does not follow the window. The week that is run is judged by its own share of faulty rows, and its faults can
reject the batch; an earlier week only loses its faulty rows, and the history with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.errors import NAMED_OFFENDERS, DataError, name_some
from ew_pipeline.core.schema import TABLES
from ew_pipeline.core.week import Week
from ew_pipeline.intake.expectations import Finding, Validator, load_suite
from ew_pipeline.intake.sources import literal, number
from ew_pipeline.intake.tables import Columns, as_frame

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
KEYS = {  # by which a row is named; others by store_id, sku_id
    "sales": ("store_id", "sku_id", "coalesce(CAST(week AS VARCHAR), week_text)"),
    "stores": ("store_id",),
    "skus": ("sku_id",),
}
ROWS_AT_ONCE = 2_000_000  # of sales, checked together
SALES_KEY = ("week", "store_id", "sku_id")
ROW_KEYS = {"stores": "store_id", "skus": "sku_id"}  # each once; others by store_id, sku_id


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

    def add_whole(self, table: str, reason: str) -> None:
        """The table as a whole is faulty."""
        self.faults.append(Fault(table, reason, 0, (), True))

    @property
    def tables(self) -> list[str]:
        """Tables with faulty rows."""
        return sorted({fault.table for fault in self.faults if fault.rows})

    def rows(self, table: str) -> int:
        """How many rows of ``table`` are faulty, each counted once."""
        return number(
            f"SELECT count(*) FROM {table} AS t WHERE "
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


def check_sales(
    connection: duckdb.DuckDBPyConnection,
    validator: Validator,
    book: FaultBook,
    week: Week,
    earlier: Sequence[Week],
    columns: Sequence[str],
    max_faulty_share: float,
    *,
    has_listing: bool,
) -> pd.DataFrame | None:
    """Rows of ``week``, of each earlier week, and those whose week cannot be read (judged with ``week``).

    Returns the rows of ``week`` by store and SKU, if none of them is faulty: they need not be read again.
    """
    suite = load_suite("sales")
    listed = _listed_stores(connection) if has_listing else None
    lost: list[tuple[Finding, np.ndarray]] = []
    clean: pd.DataFrame | None = None
    by_week = connection.execute("SELECT week, count(*) FROM sales GROUP BY 1").fetchall()
    for weeks in [*_groups(earlier, {str(found): rows for found, rows in by_week}), (week,), ()]:
        condition = "week IS NULL" if not weeks else f"week BETWEEN '{weeks[0]}' AND '{weeks[-1]}'"
        frame = connection.execute(
            f"SELECT rowid AS row, {', '.join(columns)} FROM sales WHERE {condition} "
            f"ORDER BY {', '.join(SALES_KEY[1:] if len(weeks) == 1 else SALES_KEY)}"
        ).df()
        if frame.empty and weeks != (week,):
            continue
        rows = frame.pop("row").to_numpy(dtype=np.int64)
        frame["copies"] = _copies_in(frame)  # all rows of a week are in one frame
        if listed is not None and weeks == (week,):  # a store may have closed since
            codes = frame["store_id"].cat.codes.to_numpy()
            frame["store_listed"] = np.where(codes < 0, 1, listed[codes]).astype(np.int8)
        findings = validator.validate(suite.on(set(frame.columns)), frame, _label(weeks))
        if weeks == (week,) and not findings:
            clean = frame
        for finding in findings:
            if finding.positions is None:
                book.add_whole("sales", f"{finding.expectation.reason} ({week})")
            elif weeks in ((week,), ()):
                lost.append((finding, rows[finding.positions]))
            else:
                book.add(
                    "sales", rows[finding.positions], finding.expectation.reason + EARLIER, rejects=False
                )
    _judge(
        "sales",
        lost,
        number(f"SELECT count(*) FROM sales WHERE week = '{week}' OR week IS NULL", connection),
        max_faulty_share,
        book,
    )
    return clean


def plain_sales_hold(
    validator: Validator, weeks: Mapping[Week, Columns], week: Week, listed: set[str] | None
) -> bool:
    """Whether the suite has nothing against plain sales (``plain_sales``). ``listed``: the stores that the
    listing names, if there is one."""
    suite = load_suite("sales")
    rows = {str(other): len(columns["units"]) for other, columns in weeks.items()}
    earlier = [other for other in weeks if other < week]
    for group in [*_groups(earlier, rows), (week,)]:
        frame = as_frame([weeks[other] for other in group])
        if listed is not None and group == (week,):  # a store may have closed since
            named = frame["store_id"].cat.categories.isin(listed).astype(np.int64)
            frame["store_listed"] = named[frame["store_id"].cat.codes.to_numpy()]
        if validator.validate(suite.on(set(frame.columns)), frame, _label(group)):
            return False
    return True


def check_listing(
    connection: duckdb.DuckDBPyConnection, validator: Validator, book: FaultBook, max_faulty_share: float
) -> None:
    _check_small(
        "listing",
        "store_id, sku_id, CAST(first_week_text IS NULL AS TINYINT) AS first_readable, "
        "CAST(last_week_text IS NULL AS TINYINT) AS last_readable, "
        "CAST(coalesce(first_week <= last_week, true) AS TINYINT) AS in_order",
        connection,
        validator,
        book,
        max_faulty_share,
    )


def check_costs(connection: duckdb.DuckDBPyConnection, validator: Validator, book: FaultBook) -> None:
    _check_small("costs", "store_id, sku_id, cost_false_alarm, cost_missed", connection, validator, book, 0.0)


def check_attributes(table: str, connection: duckdb.DuckDBPyConnection, book: FaultBook) -> None:
    """Stores or SKUs: each once. They are ours to look up in, not part of the contract, so no suite."""
    _count_copies(table, connection)
    rows = np.asarray(
        connection.execute(f"SELECT row FROM copies_{table}").fetchnumpy()["row"], dtype=np.int64
    )
    book.add(table, rows, "the same id more than once", rejects=True)


@dataclass(frozen=True, eq=False)
class TableReport:
    """What validation found in one frame.

    Attributes
    ----------
    faults : one per kind.
    faulty : ``position`` in the frame and ``reason``, one row per faulty row and kind.
    data_docs : index.html, when a folder was given.
    """

    table: str
    rows: int
    faults: tuple[Fault, ...]
    faulty: pd.DataFrame
    data_docs: Path | None

    @property
    def rejected(self) -> bool:
        return any(fault.rejects for fault in self.faults)

    @property
    def clean(self) -> NDArray[np.bool_]:
        """True for the rows of the frame without a fault."""
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[self.faulty["position"].to_numpy()] = False
        return mask

    def __str__(self) -> str:
        return (
            "; ".join(map(in_words, self.faults)) or f"{self.rows:,} rows of {self.table}: nothing is wrong"
        )


def validate_table(
    name: str,
    frame: pd.DataFrame,
    data_docs: Path | None = None,
    *,
    label: str = "table",
    validator: Validator | None = None,
) -> TableReport:
    """Hold a frame that is at hand (store checks, published flags) against the suite ``name``; with
    ``data_docs`` a folder, build Data Docs there."""
    validator = validator or Validator()
    suite = load_suite(name)
    rows = frame.reset_index(drop=True)
    missing = [column for column in TABLES[name].required if column not in rows]
    if missing:
        suite = suite.only("expect_column_to_exist")
    else:
        rows = rows.assign(copies=_copies(rows, TABLES[name].key))
        suite = suite.on(set(rows.columns))
    faults, found = [], []
    for finding in validator.validate(suite, rows, label):
        reason, rejects = finding.expectation.reason, finding.expectation.on_failure == "reject"
        if finding.positions is None:
            faults.append(Fault(name, reason, 0, (), True))
            continue
        found.append(pd.DataFrame({"position": finding.positions, "reason": reason}))
        first = rows.loc[finding.positions[:NAMED_OFFENDERS], list(TABLES[name].key)]
        examples = tuple(key_text(key) for key in first.itertuples(index=False, name=None))
        faults.append(Fault(name, reason, finding.positions.size, examples, rejects))
    nothing = pd.DataFrame({"position": np.empty(0, np.int64), "reason": np.empty(0, object)})
    return TableReport(
        table=name,
        rows=len(rows),
        faults=tuple(faults),
        faulty=pd.concat(found, ignore_index=True) if found else nothing,
        data_docs=None if data_docs is None else validator.build_docs(data_docs),
    )


def _check_small(
    table: str,
    columns: str,
    connection: duckdb.DuckDBPyConnection,
    validator: Validator,
    book: FaultBook,
    max_faulty_share: float,
) -> None:
    _count_copies(table, connection)
    frame = connection.execute(f"SELECT rowid AS row, {columns} FROM {table}").df()
    rows = frame.pop("row").to_numpy(dtype=np.int64)
    frame["copies"] = _copies_of(table, rows, connection)
    lost = []
    for finding in validator.validate(load_suite(table).on(set(frame.columns)), frame, table):
        if finding.positions is None:
            book.add_whole(table, finding.expectation.reason)
        else:
            lost.append((finding, rows[finding.positions]))
    _judge(table, lost, len(rows), max_faulty_share, book)


def _label(weeks: Sequence[Week]) -> str:
    """What rows are called in Data Docs."""
    return " to ".join(map(str, dict.fromkeys((*weeks[:1], *weeks[-1:])))) or "week cannot be read"


def _groups(weeks: Sequence[Week], rows: Mapping[str, int]) -> Iterator[tuple[Week, ...]]:
    """Earlier weeks side by side as far as memory allows: few large checks cost less than many small ones."""
    group: list[Week] = []
    for week in weeks:
        if group and sum(rows.get(str(other), 0) for other in (*group, week)) > ROWS_AT_ONCE:
            yield tuple(group)
            group = []
        group.append(week)
    if group:
        yield tuple(group)


def _judge(
    table: str, lost: list[tuple[Finding, np.ndarray]], rows: int, max_faulty_share: float, book: FaultBook
) -> None:
    """Quarantine faulty rows up to the share; above it they reject the batch."""
    if not lost:
        return
    faulty = np.unique(np.concatenate([found for _, found in lost])).size
    above = faulty > max_faulty_share * rows
    for finding, found in lost:
        rejects = above or finding.expectation.on_failure == "reject"
        book.add(table, found, finding.expectation.reason, rejects=rejects)


def _count_copies(table: str, connection: duckdb.DuckDBPyConnection) -> None:
    """The table ``copies_<table>``: row and number of copies, of rows whose key is not theirs alone.

    In costs a missing id stands for all, so it is part of the key; elsewhere a row without its whole key is
    faulty anyway.
    """
    key = ROW_KEYS.get(table, "store_id, sku_id")
    names = key.split(", ")
    whole = "true" if table == "costs" else " AND ".join(f"{name} IS NOT NULL" for name in names)
    same = " AND ".join(f"t.{name} IS NOT DISTINCT FROM d.{name}" for name in names)
    connection.execute(
        f"CREATE TABLE repeated_{table} AS SELECT {key}, count(*) AS copies FROM {table} WHERE {whole} "
        f"GROUP BY ALL HAVING count(*) > 1"
    )
    connection.execute(
        f"CREATE TABLE copies_{table} AS SELECT t.rowid AS row, d.copies FROM {table} AS t "
        f"JOIN repeated_{table} AS d ON {same}"
    )


def _copies_of(table: str, rows: np.ndarray, connection: duckdb.DuckDBPyConnection) -> np.ndarray:
    copies = np.ones(rows.size, dtype=np.int64)  # of other integers every value is compared in Python
    found = connection.execute(f"SELECT row, copies FROM copies_{table} ORDER BY row").fetchnumpy()
    if found["row"].size:
        position = np.minimum(np.searchsorted(found["row"], rows), found["row"].size - 1)
        hit = found["row"][position] == rows
        copies[hit] = found["copies"][position[hit]]
    return copies


def _copies_in(frame: pd.DataFrame) -> np.ndarray:
    """How many rows of sales share each row's key, by which they are sorted; 1 where a part is missing."""
    codes = [frame[name].cat.codes.to_numpy() for name in SALES_KEY]
    same = np.logical_and.reduce([code[1:] == code[:-1] for code in codes])
    copies = np.ones(len(frame), dtype=np.int64)  # of other integers every value is compared in Python
    if same.any():  # rarely: counting takes several times as long as asking
        group = np.append(0, np.cumsum(~same))
        whole = np.logical_and.reduce([code >= 0 for code in codes])
        copies[whole] = np.bincount(group)[group[whole]]
    return copies


def _listed_stores(connection: duckdb.DuckDBPyConnection) -> np.ndarray:
    """By code of the store: does the listing name it?"""
    stores = connection.execute("SELECT DISTINCT store_id FROM listing WHERE store_id IS NOT NULL").df()[
        "store_id"
    ]
    listed = np.zeros(max(len(stores.cat.categories), 1), dtype=np.int8)
    listed[stores.cat.codes.to_numpy()] = 1
    return listed


def _copies(frame: pd.DataFrame, key: tuple[str, ...]) -> NDArray[np.int64]:
    """How many rows share each row's key; 1 where a part of it is missing."""
    whole = frame[list(key)].notna().all(axis=1).to_numpy()
    copies = np.ones(len(frame), dtype=np.int64)
    if whole.any():
        named = frame.loc[whole, list(key)].astype("str")
        copies[whole] = named.groupby(list(key), sort=False)[key[0]].transform("size").to_numpy()
    return copies
