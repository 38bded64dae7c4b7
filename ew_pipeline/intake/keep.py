"""From the checked tables in DuckDB to the canonical tables of a snapshot: sorted, without faulty rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ew_pipeline.core.week import Week
from ew_pipeline.intake.checked_weeks import CheckedWeeks
from ew_pipeline.intake.contract.faults import LABEL
from ew_pipeline.intake.contract.reading import Opened
from ew_pipeline.intake.snapshot import SnapshotWriter
from ew_pipeline.intake.sql_text import number

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

    from ew_pipeline.intake.contract.plain_sales import Columns

FAULTY = "SELECT row FROM faulty WHERE table_name = '{}'"


@dataclass(frozen=True, eq=False)
class Clean:
    """Sales that were found to be without fault, by store and SKU: all of the window (``plain``), and then
    they are not in the database, or those of the week that is run (``now``)."""

    plain: Mapping[Week, Columns] | None = None
    now: pd.DataFrame | None = None


def add_tables(
    writer: SnapshotWriter,
    connection: duckdb.DuckDBPyConnection,
    tables: Mapping[str, Opened],
    week: Week,
    first: Week,
    checked: CheckedWeeks,
    clean: Clean,
) -> None:
    """Hand every table to the writer; listing rows outside ``first`` to ``week`` cannot matter."""
    if clean.plain is not None:
        _add_plain(writer, checked, clean.plain)
    else:
        segmented = tables["sales"].segment is not None
        known = {} if clean.now is None or segmented else {str(week): clean.now}
        _add_sales(writer, connection, tables["sales"], checked, known)
    if "listing" in tables:
        segment = ", segment" if tables["listing"].segment is not None else ""
        columns = ", ".join(f"{LABEL.format(name)} AS {name}" for name in ("first_week", "last_week"))
        query = (
            f"SELECT store_id, sku_id, {columns}{segment} FROM listing "
            f"WHERE rowid NOT IN ({FAULTY.format('listing')}) "
            f"AND coalesce(first_week <= {week.index}, true) AND coalesce(last_week >= {first.index}, true) "
            "ORDER BY store_id, sku_id"
        )
        writer.add("listing", connection.execute(query).df())
    if "costs" in tables:
        query = "SELECT * FROM costs ORDER BY store_id NULLS FIRST, sku_id NULLS FIRST"
        writer.add("costs", connection.execute(query).df())
    for name, key in (("stores", "store_id"), ("skus", "sku_id")):
        if name in tables and tables[name].segment is not None:
            query = f"SELECT {key}, segment FROM {name} WHERE {key} IS NOT NULL ORDER BY {key}"
            writer.add(name, connection.execute(query).df())


def _add_plain(writer: SnapshotWriter, checked: CheckedWeeks, plain: Mapping[Week, Columns]) -> None:
    read = {str(week): columns for week, columns in plain.items()}
    for week in sorted({*read, *checked.taken}):
        writer.add_columns("sales", checked.taken.get(week) or read[week], part=week)
        if week in read:
            checked.keep(week, read[week])


def _add_sales(
    writer: SnapshotWriter,
    connection: duckdb.DuckDBPyConnection,
    opened: Opened,
    checked: CheckedWeeks,
    known: Mapping[str, pd.DataFrame],
) -> None:
    flags = [name for name in ("promo", "holiday") if opened.has(name)]
    columns = ["store_id", "sku_id", "week", "CAST(units AS INTEGER) AS units"]
    columns += [f"coalesce({name}, 0) AS {name}" for name in flags]
    columns += ["segment"] if opened.segment is not None else []
    faulty = f"rowid IN ({FAULTY.format('sales')})"
    if not number(f"SELECT count(*) FROM ({FAULTY.format('sales')})", connection):
        faulty = "false"  # of ten million rows, none need be looked up
    with_faults = dict(
        connection.execute(
            "SELECT CAST(week AS VARCHAR), faulty FROM "
            f"(SELECT week, bool_or({faulty}) AS faulty FROM sales WHERE week IS NOT NULL GROUP BY 1)"
        ).fetchall()
    )
    for week in sorted({*with_faults, *checked.taken}):
        if week in checked.taken:
            writer.add_columns("sales", checked.taken[week], part=week)
            continue
        query = (
            f"SELECT {', '.join(columns)} FROM sales WHERE week = '{week}' AND NOT {faulty} "
            "ORDER BY store_id, sku_id"
        )
        frame = (
            known[week].fillna(dict.fromkeys(flags, 0)) if week in known else connection.execute(query).df()
        )
        if len(frame):
            kept = writer.add("sales", frame, part=week)
            if not with_faults[week]:
                checked.keep(week, kept)
    withheld = connection.execute(
        f"SELECT DISTINCT store_id, sku_id, week FROM sales WHERE {faulty} "
        "AND store_id IS NOT NULL AND sku_id IS NOT NULL AND week IS NOT NULL ORDER BY week, store_id, sku_id"
    ).df()
    if len(withheld):
        writer.add("withheld", withheld)
