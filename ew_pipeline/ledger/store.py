"""The ledger: every call is one transaction, and every row it writes is a link of the chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pandas as pd
from sqlalchemy import Connection, Table, func, select

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.provenance import canonical_json
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import locks, tables
from ew_pipeline.ledger import reading as queries
from ew_pipeline.ledger.anchors import write_anchor
from ew_pipeline.ledger.chain import Head, Row, extend, lock_head, record_hash
from ew_pipeline.ledger.connect import ensure_current, make_engine, parse_url, reading, writing
from ew_pipeline.ledger.failures import is_sqlite
from ew_pipeline.ledger.flags import OF_RUN
from ew_pipeline.ledger.reading import LedgerReader, config_role_of, publication_of
from ew_pipeline.ledger.records import (
    STATUSES,
    ConfigRole,
    Publication,
    RunInfo,
    Status,
    moment,
    now,
    read_config,
)
from ew_pipeline.ledger.rows import random_rows, run_row, segment_rows
from ew_pipeline.ledger.writing import (
    Artifacts,
    ChainedFlags,
    appendable,
    appended_rows,
    insert_flags,
    prepare_publication,
    previous_content,
    refuse_unpublishable,
)
from ew_pipeline.results import Override, WeekResult

BUSY_SECONDS = 30.0


@dataclass
class _Transaction:
    """One open write: rows are added to the chain as they come."""

    connection: Connection
    head: Head

    def add(self, *records: tuple[Table, Row]) -> None:
        self.head = extend(self.connection, self.head, records)

    def next_id(self, table: Table) -> int:
        return _next_id(self.connection, table)


def _next_id(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()) + 1


class Ledger(LedgerReader):
    """Open it with ``Ledger.open``; use it as a context manager or ``close`` it."""

    @classmethod
    def open(
        cls,
        url: str,
        *,
        home: Path | None = None,
        migrate: bool = True,
        busy_seconds: float = BUSY_SECONDS,
    ) -> Ledger:
        """Open the ledger at a database URL, and make or update its tables.

        ``home`` defaults to the folder of SQLite's file; with PostgreSQL and no home, paths are kept absolute
        and no anchors are written. ``busy_seconds``: how long a write waits for another one.
        """
        parsed = parse_url(url)
        if home is None and is_sqlite(parsed):
            home = Path(parsed.database or "").absolute().parent
        engine = make_engine(parsed, busy_seconds)
        ensure_current(engine, migrate=migrate)
        return cls(engine, home)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def week_lock(
        self,
        week: Week,
        *,
        who: str = "a run",
        wait_seconds: float = 0.0,
        on_wait: locks.OnWait | None = None,
    ) -> AbstractContextManager[None]:
        """Hold a week while it is run. Another holder is waited for, up to ``wait_seconds``; ``on_wait`` is
        told once who that is. The lock ends with the process, however that ends."""
        return locks.week_lock(
            self._engine, self.home, str(week), who=who, wait_seconds=wait_seconds, on_wait=on_wait
        )

    def record_run(
        self, run: WeekResult | RunInfo, status: Status, *, by: str = "unknown", error: str | None = None
    ) -> None:
        """Write down how a run ended. Recording it again adds a revision; its result stays what it was."""
        if status not in STATUSES or status == "published":
            raise UsageError(f"a run is not recorded as {status!r}.", "`publish` records published runs.")
        with self._writing() as transaction:
            self._add_run(transaction, run, status, by=by, error=error)

    def publish(
        self,
        result: WeekResult,
        *,
        by: str,
        report: Path,
        override: Override | None = None,
        last_file: Callable[[], None] | None = None,
    ) -> Publication:
        """Make a result live: run, segments, publication and flags in one transaction.

        With the inputs that are live already nothing is published again (``created`` is False); otherwise the
        new publication supersedes the live one, which stays readable. ``last_file`` returns when what is
        still being written of the run's folder is there.
        """
        refuse_unpublishable(result, override)
        # All that takes long comes before the transaction: nobody else can write while it lasts.
        with ThreadPoolExecutor(1) as beside:
            hashed = beside.submit(
                Artifacts.of, result.folder, report, self._places, result.score_files, last_file
            )
            flags = ChainedFlags.of(result, self._next_publication())
            artifacts = hashed.result()
        with self._writing() as transaction:
            current = queries.newest_version(transaction.connection, str(result.week))
            if current is not None:
                live = publication_of(current._asdict(), self._places)
                if live.input_key == result.provenance.input_key:
                    if live.run_id != result.run_id:
                        self._add_run(transaction, result, "unchanged", by=by, error=None)
                    return replace(live, created=False)
            number = transaction.next_id(tables.publications)
            if number != flags.number:  # another was quicker
                flags = ChainedFlags.of(result, number)
            row = prepare_publication(result, current, flags, artifacts, by=by, override=override)
            self._add_run(transaction, result, "published", by=by, error=None)
            transaction.add((tables.publications, row))
            insert_flags(transaction.connection, flags.table)
            drawn = random_rows(result, row["id"], transaction.next_id(tables.random_checks))
            transaction.add(*((tables.random_checks, one) for one in drawn))
        return publication_of(row, self._places)

    def rollback(self, week: Week, *, by: str, why: str) -> Publication:
        """Make what was live before live again, as a new publication; nothing is removed."""
        if not why.strip():
            raise UsageError("a rollback needs a reason.", "say why; it stays in the ledger.")
        with self._writing() as transaction:
            current = queries.newest_version(transaction.connection, str(week))
            if current is None:
                raise UsageError(f"week {week} has no publication to roll back.")
            content = previous_content(transaction.connection, current)
            if content is None:
                raise UsageError(
                    f"week {week} has nothing before publication {current.source_id} to go back to.",
                    "publish a corrected run instead: ew run --week …",
                )
            row = {
                **content._asdict(),
                "id": transaction.next_id(tables.publications),
                "version": current.version + 1,
                "kind": "rollback",
                "supersedes": current.id,
                "published_at": moment(now()),
                "published_by": by,
                "reason": why,
            }
            transaction.add((tables.publications, row))
        return publication_of(row, self._places)

    def promote(
        self, run_id: str, *, by: str, why: str, role: Literal["champion", "challenger"] = "champion"
    ) -> ConfigRole:
        """Make a run's configuration the champion (or a challenger). The champion promoted again stays as it
        is, with who made it so first."""
        run = self.run(run_id)
        if run.pairs_scored is None:
            raise UsageError(f"run {run_id} has no result ({run.status}); promote one that has.")
        config = read_config(run.config, f"run {run_id}")
        with self._writing() as transaction:
            table = tables.config_roles
            query = select(table).where(table.c.role == role).order_by(table.c.id.desc()).limit(1)
            holder = transaction.connection.execute(query).first()
            if holder is not None and holder.config_hash == config.hash:
                return config_role_of(holder._asdict())
            row = {
                "id": transaction.next_id(table),
                "role": role,
                "run_id": run_id,
                "config_hash": config.hash,
                "config": canonical_json(config.model_dump(mode="json")),
                "assigned_at": moment(now()),
                "assigned_by": by,
                "why": why,
            }
            transaction.add((table, row))
        return config_role_of(row)

    def append(self, table_name: str, rows: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add checks, evaluations, drift points, alerts or acknowledgements; their ids.

        Values may be weeks, aware datetimes, numpy numbers, and mappings or lists (kept as JSON).
        """
        table = appendable(table_name)
        with self._writing() as transaction:
            made = appended_rows(table, rows, transaction.next_id(table))
            transaction.add(*((table, row) for row in made))
        return [row["id"] for row in made]

    def _next_publication(self) -> int:
        """The id that the next publication has, unless another one comes first."""
        with reading(self._engine) as connection:
            return _next_id(connection, tables.publications)

    @contextmanager
    def _writing(self) -> Iterator[_Transaction]:
        with writing(self._engine) as connection:
            transaction = _Transaction(connection, lock_head(connection))
            before = transaction.head
            yield transaction
        if transaction.head != before:
            write_anchor(self.home, transaction.head)

    def _add_run(
        self,
        transaction: _Transaction,
        run: WeekResult | RunInfo,
        status: Status,
        *,
        by: str,
        error: str | None,
    ) -> None:
        columns = tables.runs.c
        newest = select(tables.runs).where(columns.run_id == run.run_id).order_by(columns.revision.desc())
        last = transaction.connection.execute(newest.limit(1)).first()
        row = run_row(run, status, by=by, error=error, places=self._places)
        if last is not None and isinstance(run, WeekResult) and last.pairs_scored is not None:
            other = [name for name in OF_RUN if getattr(last, name) != row[name]]
            if other:  # flags of the run share them, and are hashed with them
                raise UsageError(
                    f"run {run.run_id} is already in the ledger with another {' and '.join(other)}.",
                    "a run id names one run; run the week again.",
                )
        if last is not None and isinstance(run, RunInfo) and last.pairs_scored is not None:
            # It has a result, and perhaps a publication: what failed afterwards takes neither away.
            said = {
                name: row[name] for name in ("status", "recorded_at", "recorded_by", "finished_at", "error")
            }
            row = {**last._asdict(), **said}
            row["status"] = "published" if last.status == "published" else status
        transaction.add((tables.runs, {**row, "revision": 1 if last is None else last.revision + 1}))
        if isinstance(run, WeekResult):
            self._add_segments(transaction, run)

    def _add_segments(self, transaction: _Transaction, result: WeekResult) -> None:
        rows = segment_rows(result, self._places)
        columns = tables.segments.c
        found = transaction.connection.execute(select(tables.segments).where(columns.run_id == result.run_id))
        known = {row.segment: record_hash(row._asdict()) for row in found}
        if not known:
            transaction.add(*((tables.segments, row) for row in rows))
        elif known != {row["segment"]: record_hash(row) for row in rows}:
            raise UsageError(
                f"run {result.run_id} is already in the ledger with another result.",
                "a run id names one result; run the week again.",
            )


def newest_checks(ledger: Ledger, week: Week | None = None) -> pd.DataFrame:
    """One row per pair and week: the one that counts."""
    rows = ledger.table("checks") if week is None else ledger.table("checks", week=week)
    return rows.drop_duplicates(["store_id", "sku_id", "week"], keep="last").reset_index(drop=True)
