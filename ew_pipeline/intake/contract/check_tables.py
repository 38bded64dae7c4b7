"""The contract on the tables of one week, as ``reading.load`` has put them into DuckDB.

Sales are checked a few weeks at a time, so that memory does not follow the window. The week that is run is
judged by its own share of faulty rows, and its faults can reject the batch; an earlier week only loses its
faulty rows, and the history with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ew_pipeline.core.week import Week
from ew_pipeline.intake.contract.faults import EARLIER, FaultBook
from ew_pipeline.intake.contract.gx_run import Finding, Validator
from ew_pipeline.intake.contract.plain_sales import Columns, as_frame
from ew_pipeline.intake.contract.suites import load_suite
from ew_pipeline.intake.sql_text import number

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

ROWS_AT_ONCE = 2_000_000
SALES_KEY = ("week", "store_id", "sku_id")
KEYS = {"stores": "store_id", "skus": "sku_id"}


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
        _rows(f"sales WHERE week = '{week}' OR week IS NULL", connection),
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
    key = KEYS.get(table, "store_id, sku_id")
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


def _rows(clause: str, connection: duckdb.DuckDBPyConnection) -> int:
    return number(f"SELECT count(*) FROM {clause}", connection)
