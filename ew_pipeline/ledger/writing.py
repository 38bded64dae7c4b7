"""Rows into the ledger: appended, and published as one transaction."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import Connection, Table, select
from sqlalchemy import Row as DatabaseRow
from sqlalchemy.exc import DBAPIError

from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.core.provenance import canonical_json, file_hash
from ew_pipeline.core.week import Week
from ew_pipeline.intake.sources import literal
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.chain import chain_flags, flags_start, plain
from ew_pipeline.ledger.failures import LedgerError
from ew_pipeline.ledger.flags import FlagTable, flag_table
from ew_pipeline.ledger.records import Places, moment, now
from ew_pipeline.ledger.tables import APPENDABLE
from ew_pipeline.results import Override, WeekResult

SCORES = "scores.parquet"
GROWING = ".log"  # written after publication too, so not vouched for; so is how far tracking has got:
TRACKING = "tracking.json"
UNFINISHED = ".part"  # of a process that was killed while it wrote; one that was not may yet rename it
DictRow = dict[str, Any]


def appendable(table_name: str) -> Table:
    """The table of this name, if rows may be handed in for it."""
    if table_name not in APPENDABLE:
        raise UsageError(f"{table_name!r} is not a table to append to.", f"use {', '.join(APPENDABLE)}.")
    return APPENDABLE[table_name]


def appended_rows(table: Table, rows: Iterable[Mapping[str, Any]], first_id: int) -> list[dict[str, Any]]:
    """The rows with ids from ``first_id`` on, every column present, values as the ledger keeps them."""
    names = [column.name for column in table.columns if column.name != "id"]
    required = {column.name for column in table.columns if not column.nullable} - {"id"}
    made = []
    for number, row in enumerate(rows, start=first_id):
        unknown = sorted(set(row) - set(names))
        kept = {name: _kept(row.get(name)) for name in names}
        absent = sorted(name for name in required if kept[name] is None)
        if unknown or absent:
            what = f"has no column {name_some(unknown, len(unknown))}" if unknown else "is without "
            raise UsageError(
                f"a row for {table.name} {what}{'' if unknown else name_some(absent, len(absent))}."
            )
        made.append({"id": number, **kept})
    return made


def _kept(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, dt.datetime):
        return moment(value)
    if isinstance(value, Week):
        return str(value)
    if isinstance(value, Mapping | list | tuple):
        return canonical_json(value)
    return plain(value)


@dataclass(frozen=True)
class Artifacts:
    """Hashes of what the run wrote."""

    report: str
    report_hash: str
    scores: str | None
    scores_hash: str | None
    files: dict[str, str]

    @classmethod
    def of(
        cls,
        folder: Path,
        report: Path,
        places: Places,
        known: Mapping[str, str] | None = None,
        last_file: Callable[[], None] | None = None,
    ) -> Artifacts:
        """Hash the report and every file in the run's folder but those whose hash is ``known``, by name, once
        the last of them is written: ``last_file`` returns then."""
        known = known or {}
        if last_file is not None:
            last_file()
        hashed = {f"{folder}/{name}" for name in known}
        try:
            paths = sorted(
                path
                for path in _files_in(folder)
                if path not in hashed and not path.endswith((GROWING, UNFINISHED, f"/{TRACKING}"))
            )
            with ThreadPoolExecutor() as pool:  # large files are hashed outside of Python
                hashes = list(pool.map(file_hash, paths))
            names = (path.removeprefix(f"{folder}/") for path in paths)
            files = dict(zip(names, hashes, strict=True)) | dict(known)
            report_hash = file_hash(report)
        except OSError as error:
            raise LedgerError(
                f"{error.filename} cannot be read ({error.strerror}): nothing was published.",
                "run the week again; a publication needs its report and files.",
            ) from error
        scores = folder / SCORES
        return cls(
            report=places.keep(report),
            report_hash=report_hash,
            scores=places.keep(scores) if SCORES in files else None,
            scores_hash=files.get(SCORES),
            files=files,
        )


def _files_in(folder: Path) -> Iterator[str]:
    """Texts, not ``Path``: a chain of 70,000 stores has as many lists."""
    for place, _, names in os.walk(folder):
        yield from (f"{place}/{name}" for name in names)


def refuse_unpublishable(result: WeekResult, override: Override | None) -> None:
    """The ledger's own guard: shadow runs never, held ones only with a name and a reason."""
    if result.shadow:
        raise UsageError(
            f"run {result.run_id} is a shadow run: it is never published.",
            "promote its configuration (ew promote), then run the week again.",
        )
    if override is not None and not (override.who.strip() and override.why.strip()):
        raise UsageError("an override needs who and why.", "say both; they stay in the ledger.")
    if result.held and override is None:
        reasons = [check.words for check in result.held]
        raise UsageError(
            f"run {result.run_id} is held back by {len(reasons)} checks: {name_some(reasons, len(reasons))}.",
            "publish it with an override that says who and why.",
        )


@dataclass(frozen=True, eq=False)
class ChainedFlags:
    """The flags of publication ``number`` with their hashes; ``hash`` is the last of them."""

    number: int
    table: FlagTable
    hash: str

    @classmethod
    def of(cls, result: WeekResult, number: int) -> ChainedFlags:
        start = flags_start(number, str(result.week), result.run_id)
        flags = flag_table(result, number)
        hashes = chain_flags(start, flags.texts())
        return cls(number, flags.with_column("row_hash", hashes), hashes[-1] if hashes else start)


def prepare_publication(
    result: WeekResult,
    current: DatabaseRow[Any] | None,
    flags: ChainedFlags,
    artifacts: Artifacts,
    *,
    by: str,
    override: Override | None,
) -> DictRow:
    """The row of ``publications``. Call it with the chain's head locked."""
    used = override if result.held else None
    return {
        "id": flags.number,
        "week": str(result.week),
        "version": 1 if current is None else current.version + 1,
        "kind": "publish",
        "run_id": result.run_id,
        "supersedes": None if current is None else current.id,
        "source_id": flags.number,
        "published_at": moment(now()),
        "published_by": by,
        "override_who": None if used is None else used.who,
        "override_why": None if used is None else used.why,
        "reason": None,
        "data_hash": result.provenance.data_hash,
        "config_hash": result.provenance.config_hash,
        "code_version": result.provenance.code_version,
        "pairs_scored": result.totals.pairs,
        "flags_count": flags.table.rows,
        "flags_hash": flags.hash,
        "expected_saving": plain(result.expected_saving),
        "report": artifacts.report,
        "report_hash": artifacts.report_hash,
        "scores": artifacts.scores,
        "scores_hash": artifacts.scores_hash,
        "files": canonical_json(artifacts.files),
    }


def insert_flags(connection: Connection, flags: FlagTable) -> None:
    """Insert many flags quickly: COPY in PostgreSQL, one statement for all of them in SQLite."""
    if not flags.rows:
        return
    names = [column.name for column in tables.flag_rows.columns]
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        statement = f"COPY flag_rows ({', '.join(names)}) FROM STDIN"
        with _errors_of(connection, statement), driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in flags.tuples(names):
                copy.write_row(row)
        return
    statement, bound = sqlite_insert(names, flags.shared)
    with _errors_of(connection, statement):
        driver.executemany(statement, flags.tuples(bound))


def sqlite_insert(names: Sequence[str], shared: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A statement that holds what the flags share, and the columns that are bound for each of them.

    What is the same in all rows would be bound hundreds of thousands of times. Numbers with a fraction are
    bound all the same: SQLite may read the last digit of one in a statement differently.
    """
    written = {name: text for name in names if name in shared and (text := _in_statement(shared[name]))}
    marks = ", ".join(written.get(name, "?") for name in names)
    statement = f"INSERT INTO flag_rows ({', '.join(names)}) VALUES ({marks})"
    return statement, [name for name in names if name not in written]


def _in_statement(value: Any) -> str | None:
    """A value as SQL; None for one that has to be bound."""
    if value is None:
        return "NULL"
    if isinstance(value, str) and value.isprintable():  # a statement cannot hold every character
        return literal(value)
    return str(value) if type(value) is int else None


@contextmanager
def _errors_of(connection: Connection, statement: str) -> Iterator[None]:
    """What the driver says itself, as SQLAlchemy would have said it."""
    error_type = connection.dialect.loaded_dbapi.Error
    try:
        yield
    except error_type as error:
        raise DBAPIError.instance(statement, None, error, error_type, dialect=connection.dialect) from error


def previous_content(connection: Connection, current: DatabaseRow[Any]) -> DatabaseRow[Any] | None:
    """The publication that was live before what is live now; None when there was none.

    Rolling back twice goes back two steps: what counts is the content, not the rollback itself.
    """
    by_id = select(tables.publications)
    content = connection.execute(by_id.where(tables.publications.c.id == current.source_id)).one()
    if content.supersedes is None:
        return None
    before = connection.execute(by_id.where(tables.publications.c.id == content.supersedes)).one()
    return connection.execute(by_id.where(tables.publications.c.id == before.source_id)).one()
