"""Read the sources, hold them against the contract, keep what is valid as a snapshot."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ew_pipeline.core.errors import DataError, UsageError
from ew_pipeline.core.files import writing_to
from ew_pipeline.core.schema import COSTS, LISTING, SALES
from ew_pipeline.core.settings import RunConfig, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.intake import checked_tables
from ew_pipeline.intake import contract as rules
from ew_pipeline.intake import tables as reading
from ew_pipeline.intake.checked_tables import CheckedWeeks, Clean
from ew_pipeline.intake.contract import Contract, ContractRejected, Fault, FaultBook, in_words
from ew_pipeline.intake.expectations import Validator
from ew_pipeline.intake.snapshot import Snapshot, SnapshotWriter
from ew_pipeline.intake.source_passwords import without_password
from ew_pipeline.intake.sources import WeekSources
from ew_pipeline.intake.tables import Columns, Opened, plain_sales

if TYPE_CHECKING:
    import duckdb

SCRATCH_MEMORY = "1GB"
PER_LINE = "\n  - "


def ingest(
    request: WeekSources, settings: Settings, run_folder: Path, checks: pd.DataFrame | None = None
) -> tuple[Contract, Snapshot]:
    """Validate the inputs of a week and keep them.

    ``checks``: what stores found in earlier weeks, if a calibration is to learn from it.
    Returns what the contract found and the snapshot. Raises ``ContractRejected``, with the contract in it,
    when the batch is broken. Faulty rows are in ``quarantine/<run folder's name>/`` either way.
    """
    with writing_to(settings.root):
        run_folder.mkdir(parents=True, exist_ok=True)
    with scratch(run_folder, settings.threads) as connection:
        tables = _open_all(request, connection, run_folder)
        checked = CheckedWeeks(request.sales, tables["sales"], settings.cache / "checked")
        batch = _Batch(request, settings, run_folder, connection, tables, checked)
        contract, clean = batch.check()
        return contract, batch.keep(checks, clean)


def trailing_weeks(config: RunConfig, rows: int = 0, *, has_listing: bool = False) -> int:
    """How many weeks before the one that is run are looked at.

    ``rows`` of the week: where there are too many for a calibration, its weeks are not read either. Where
    zeros may be inferred, the first of its weeks needs the ones before it for that.
    """
    recent = config.recent_weeks
    if not config.looks_back or rows > config.max_calibrated_pairs:
        return recent
    inferred = 0 if has_listing or config.zero_rule in ("explicit", "listing") else config.inferred_weeks
    return max(recent, config.calibration_weeks + inferred)


@contextmanager
def scratch(folder: Path, threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB database that is gone afterwards: memory stays bounded, whatever the window.

    In memory, and on disk where there is no room; a file would be written of weeks that do have room, too.
    """
    import duckdb

    with writing_to(folder), tempfile.TemporaryDirectory(prefix=".ingest-", dir=folder) as place:
        options: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": SCRATCH_MEMORY,
            "threads": str(threads),
            "temp_directory": str(Path(place) / "spill"),
            "preserve_insertion_order": "false",
        }
        with duckdb.connect(":memory:", config=options) as connection:
            connection.execute("SET enable_progress_bar = false")
            yield connection


def _open_all(
    request: WeekSources, connection: duckdb.DuckDBPyConnection, run_folder: Path
) -> dict[str, Opened]:
    """Every source of the request, its columns checked; stores and SKUs only when they split the chain."""
    wanted = {"sales": request.sales, "listing": request.listing, "costs": request.costs}
    if request.config.segment_by is not None:
        wanted |= {"stores": request.stores, "skus": request.skus}
    contract_tables = {"sales": SALES, "listing": LISTING, "costs": COSTS}
    tables: dict[str, Opened] = {}
    for name, spec in wanted.items():
        if spec is None:
            continue
        try:
            if name in contract_tables:
                tables[name] = reading.open_table(contract_tables[name], spec, connection)
            else:
                tables[name] = reading.open_attributes(
                    "store_id" if name == "stores" else "sku_id", spec, connection
                )
        except DataError as error:
            raise _rejected(request, name, error, run_folder) from error
    return _split(tables, request.config.segment_by)


def _split(tables: dict[str, Opened], column: str | None) -> dict[str, Opened]:
    """Mark the table that holds the column to split by; the first of sales, listing, stores, skus."""
    if column is None:
        return tables
    keys = ("store_id", "sku_id", "week", "units")
    places = {name: tables[name] for name in ("sales", "listing", "stores", "skus") if name in tables}
    for name, opened in places.items():
        if column in opened.source.columns and column not in keys:
            return tables | {name: opened.split_by(column)}
    offered = [f"{', '.join(names)} ({table})" for table, opened in places.items()
               if (names := [name for name in opened.source.columns if name not in keys])]  # fmt: skip
    raise UsageError(
        f"there is no column {column} to split the chain by. Columns: {'; '.join(offered) or 'none'}.",
        "choose one of them, or give the table that has it with --stores or --skus.",
    )


@dataclass(frozen=True)
class _Window:
    """``texts``: what each value of ``week`` stands for; ``weeks``: those to be read, in order."""

    texts: Mapping[str | None, Week | None]
    weeks: tuple[Week, ...]

    def earlier(self, week: Week) -> list[Week]:
        return [other for other in self.weeks if other < week]


@dataclass(frozen=True, eq=False)
class _Batch:
    """The opened sources of one request on their way into a snapshot."""

    request: WeekSources
    settings: Settings
    run_folder: Path
    connection: duckdb.DuckDBPyConnection
    tables: Mapping[str, Opened]
    checked: CheckedWeeks

    def check(self) -> tuple[Contract, Clean]:
        """What the contract finds, and the sales that nothing is wrong with."""
        request, connection = self.request, self.connection
        with ThreadPoolExecutor(1) as beside:  # importing Great Expectations takes seconds
            made = beside.submit(Validator)
            window = self._window()
            plain = plain_sales(self.tables["sales"], window.texts, window.weeks)
            self._view_others()
            validator = made.result()
        if plain is not None and not rules.plain_sales_hold(validator, plain, request.week, self._listed()):
            plain, validator = None, Validator()  # in Data Docs, every week stands once
        rows = self._load(window, plain)
        book = FaultBook(connection)
        share = request.config.contract.max_faulty_share
        if "listing" in self.tables:
            rules.check_listing(connection, validator, book, share)
        if "costs" in self.tables:
            rules.check_costs(connection, validator, book)
        for name in ("stores", "skus"):
            if name in self.tables and self.tables[name].segment is not None:
                rules.check_attributes(name, connection, book)
        clean = None
        if plain is None:
            clean = rules.check_sales(
                connection, validator, book, request.week, window.earlier(request.week),
                self._sales_columns(), share, has_listing="listing" in self.tables,
            )  # fmt: skip
        contract = self._contract(book, rows, validator)
        if any(fault.rejects for fault in book.faults):
            raise self._rejection(contract)
        return contract, Clean(plain, clean)

    def keep(self, checks: pd.DataFrame | None, clean: Clean) -> Snapshot:
        split = next((opened for opened in self.tables.values() if opened.segment is not None), None)
        with SnapshotWriter(
            self.settings, self.request.week, self.request.config.segment_by, split.table if split else None
        ) as writer:
            first = self.request.week.shift(-self._trailing())
            checked_tables.add_tables(
                writer, self.connection, self.tables, self.request.week, first, self.checked, clean
            )
            if checks is not None and len(checks):
                writer.add("checks", checks.sort_values(["week", "store_id", "sku_id"]))
            return writer.finish()

    def _trailing(self, rows: int = 0) -> int:
        return trailing_weeks(self.request.config, rows, has_listing="listing" in self.tables)

    def _view_others(self) -> None:
        """The tables beside sales, as views."""
        views = {"listing": reading.view_listing, "costs": reading.view_costs}
        for opened in self._used():
            if opened.table != "sales":
                with self._rejecting(opened.table):
                    views.get(opened.table, reading.view_attributes)(opened, self.connection)

    def _used(self) -> list[Opened]:
        return [opened for opened in self.tables.values()
                if opened.table not in ("stores", "skus") or opened.segment is not None]  # fmt: skip

    def _listed(self) -> set[str] | None:
        """The stores that the listing names; None without one."""
        if "listing" not in self.tables:
            return None
        with self._rejecting("listing"):
            return reading.listed_stores(self.tables["listing"], self.connection)

    def _load(self, window: _Window, plain: Mapping[Week, Columns] | None) -> dict[str, int]:
        """Read the tables, of sales the rows of the window that are not known; returns rows by table, the
        known ones counted."""
        used = self._used()
        if plain is not None:
            used = [opened for opened in used if opened.table != "sales"]
        else:
            with self._rejecting("sales"):
                reading.view_sales(self.tables["sales"], window.texts, window.weeks, self.connection)
        with self._rejecting("sales" if len(self._used()) == 1 else "data"):
            rows = reading.load(used, self.connection)
        if plain is not None:
            rows["sales"] = sum(len(columns["units"]) for columns in plain.values())
        return rows | {"sales": rows["sales"] + self.checked.rows}

    @contextmanager
    def _rejecting(self, table: str) -> Iterator[None]:
        try:
            yield
        except DataError as error:
            raise _rejected(self.request, table, error, self.run_folder) from error

    def _window(self) -> _Window:
        sales, week = self.tables["sales"], self.request.week
        with self._rejecting("sales"):
            return self._weeks_to_read(sales, week)

    def _weeks_to_read(self, sales: Opened, week: Week) -> _Window:
        rows = reading.week_rows(sales, "week")
        texts = {text: found for text, (found, _) in rows.items()}
        if not texts:
            raise DataError(f"{sales.source.label} has no rows.", "export it again.")
        found = sorted({found for found in texts.values() if found is not None})
        if not found:
            example = next(iter(texts))
            raise DataError(
                f"no value of week in {sales.source.label} can be read, for example {example!r}.",
                "write weeks as 2026-W34, or as the date they start.",
            )
        if week not in found:
            before = [other for other in found if other < week]
            raise DataError(
                f"{sales.source.label} has no row of {week}; its weeks run from {found[0]} to {found[-1]}.",
                f"add the week and run again, or take one that is there, such as {(before or found)[-1]}.",
            )
        rows_now = sum(count for found_week, count in rows.values() if found_week == week)
        window = set(week.shift(-self._trailing(rows_now)).through(week))
        window -= self.checked.take(other for other in found if other in window and other < week)
        return _Window(texts, tuple(other for other in found if other in window))

    def _sales_columns(self) -> list[str]:
        opened = self.tables["sales"]
        return [
            name for name in ("store_id", "sku_id", "week", "units", "promo", "holiday") if opened.has(name)
        ]

    def _contract(self, book: FaultBook, rows: Mapping[str, int], validator: Validator) -> Contract:
        with writing_to(self.settings.quarantine):
            quarantine = book.write(self.settings.quarantine / self.run_folder.name)
        return Contract(
            faults=tuple(book.faults),
            rows_read=dict(rows),
            rows_quarantined=sum(book.rows(table) for table in book.tables),
            quarantine=quarantine,
            data_docs=validator.build_docs(self.run_folder / "data_docs"),
            ignored_columns={name: opened.ignored for name, opened in self.tables.items() if opened.ignored},
            rows_known=self.checked.rows,
        )

    def _rejection(self, contract: Contract) -> ContractRejected:
        rejecting = [fault for fault in contract.faults if fault.rejects]
        listed = PER_LINE + PER_LINE.join(map(in_words, rejecting))
        kept = f"\nEvery row with its reason: {contract.quarantine}." if contract.quarantine else ""
        return ContractRejected(
            f"the data of {self.request.week} are rejected:{listed}{kept}", _again(self.request), contract
        )


def _rejected(request: WeekSources, table: str, error: DataError, run_folder: Path) -> ContractRejected:
    """A source that cannot be read at all: no rows, no keys, no Data Docs."""
    contract = Contract(
        faults=(Fault(table, error.message, 0, (), True),),
        rows_read={},
        rows_quarantined=0,
        quarantine=None,
        data_docs=run_folder / "data_docs" / "index.html",
        ignored_columns={},
    )
    next_step = " ".join(part for part in (error.next_step, _again(request)) if part)
    return ContractRejected(
        f"the {table} of {request.week} are rejected: {error.message}", next_step, contract
    )


def _again(request: WeekSources) -> str:
    command = ["ew", "run", "--week", str(request.week)]
    for name in ("sales", "listing", "costs", "stores", "skus"):
        spec = getattr(request, name)
        if spec is not None:
            command += [f"--{name}", without_password(spec)]
    return f"fix the data and run again: {shlex.join(command)}"
