"""Everything that can be asked of the ledger; every call sees one consistent moment."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    Integer,
    Row,
    Select,
    func,
    select,
)
from sqlalchemy.sql.elements import ColumnElement

from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.anchors import read_anchors
from ew_pipeline.ledger.chain import Head, head_of
from ew_pipeline.ledger.connect import reading
from ew_pipeline.ledger.flags import flags, refuse_gaps, whole_flags
from ew_pipeline.ledger.records import ConfigRole, InputKey, Places, Problem, Publication, Run, Status, moment
from ew_pipeline.ledger.verify import verify_ledger
from ew_pipeline.results import Override

FLAG_FRAME = [flags.c[name] for name in ("store_id", "sku_id", "week", "segment")] + [
    column
    for column in flags.columns
    if column.name not in ("store_id", "sku_id", "week", "segment", "publication_id", "position")
]
SERIES_COLUMNS = [
    column for column in tables.segments.columns if column.name not in ("run_id", "segment", "week", "model")
]
UNDECIDED = "not_checked"  # the outcome of a check that was not made


def run_of(row: Mapping[str, Any], places: Places) -> Run:
    values = {item.name: row[item.name] for item in fields(Run)}
    for name in ("config", "contract", "coverage", "gate", "pricing", "warnings", "timings", "environment"):
        values[name] = None if values[name] is None else json.loads(values[name])
    for name in ("recorded_at", "started_at", "finished_at"):
        values[name] = dt.datetime.fromisoformat(values[name])
    return Run(
        **{
            **values,
            "week": Week.parse(values["week"]),
            "gate": tuple(values["gate"] or ()),
            "warnings": tuple(values["warnings"]),
            "folder": places.find(values["folder"]),
        }
    )


def publication_of(row: Mapping[str, Any], places: Places) -> Publication:
    values = {item.name: row[item.name] for item in fields(Publication) if item.name in row}
    who, why = row["override_who"], row["override_why"]
    return Publication(
        **{
            **values,
            "week": Week.parse(values["week"]),
            "published_at": dt.datetime.fromisoformat(values["published_at"]),
            "override": None if who is None else Override(who, why),
            "report": places.find(values["report"]),
            "scores": None if values["scores"] is None else places.find(values["scores"]),
            "files": json.loads(values["files"]),
        }
    )


def config_role_of(row: Mapping[str, Any]) -> ConfigRole:
    values = {item.name: row[item.name] for item in fields(ConfigRole) if item.name in row}
    return ConfigRole(
        **{
            **values,
            "values": json.loads(row["config"]),
            "assigned_at": dt.datetime.fromisoformat(values["assigned_at"]),
        }
    )


def frame_of(columns: Sequence[Column[Any]], rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """A frame whose column types do not depend on the rows, also when there are none."""
    frame = pd.DataFrame.from_records(list(map(tuple, rows)), columns=[column.name for column in columns])
    return frame.astype({column.name: _dtype(column) for column in columns})


def _dtype(column: Column[Any]) -> str:
    if isinstance(column.type, Double):
        return "float64"
    if isinstance(column.type, Boolean):
        return "boolean" if column.nullable else "bool"
    if isinstance(column.type, BigInteger | Integer):
        return "Int64" if column.nullable else "int64"
    return "str"


def newest_version(connection: Connection, week: str) -> Row[Any] | None:
    """The live publication of a week."""
    columns = tables.publications.c
    query = select(tables.publications).where(columns.week == week).order_by(columns.version.desc()).limit(1)
    return connection.execute(query).first()


def live(as_of: dt.datetime | None = None) -> Select[Any]:
    """The live publication of every week, in order; with ``as_of``, those live at that moment."""
    columns = tables.publications.c
    newest = select(columns.week, func.max(columns.version).label("version")).group_by(columns.week)
    if as_of is not None:
        newest = newest.where(columns.published_at <= moment(as_of))
    found = newest.subquery()
    return (
        select(tables.publications)
        .join(found, (columns.week == found.c.week) & (columns.version == found.c.version))
        .order_by(columns.week)
    )


def newest_runs(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The last revision of every run, the newest run first; ``conditions`` are on that revision."""
    columns = tables.runs.c
    newest = (
        select(columns.run_id, func.max(columns.revision).label("revision"))
        .group_by(columns.run_id)
        .subquery()
    )
    return (
        select(tables.runs)
        .join(newest, (columns.run_id == newest.c.run_id) & (columns.revision == newest.c.revision))
        .where(*conditions)
        .order_by(columns.started_at.desc(), columns.run_id.desc())
    )


def flags_frame(connection: Connection, publication_id: int, store: str | None) -> pd.DataFrame:
    """The flags of a publication that has its own, the best to check first."""
    refuse_gaps(connection, publication_id)
    whole = whole_flags().subquery()
    columns = [whole.c[column.name] for column in FLAG_FRAME]
    query = select(*columns).where(whole.c.publication_id == publication_id).order_by(whole.c.position)
    if store is not None:
        query = query.where(whole.c.store_id == store)
    return frame_of(FLAG_FRAME, connection.execute(query))


def flagged_pairs(publication_id: int) -> Select[Any]:
    """The pairs of a publication that has its own flags, the best to check first."""
    rows = tables.flag_rows.c
    return (
        select(rows.store_id, rows.sku_id)
        .where(rows.publication_id == publication_id)
        .order_by(rows.position)
    )


def flagged_stores(publication_id: int) -> Select[Any]:
    """Of a publication that has its own flags: each store, how many and what they save, most first."""
    rows = tables.flag_rows.c
    saving = func.sum(rows.expected_saving).label("expected_saving")
    return (
        select(rows.store_id, func.count().label("to_check"), saving)
        .where(rows.publication_id == publication_id)
        .group_by(rows.store_id)
        .order_by(saving.desc(), rows.store_id)
    )


def weeks_flagged(store: str, sku: str) -> Select[Any]:
    """The weeks in which a pair is on the list that is live. By publication: there is no index of pairs."""
    current, rows = live().subquery(), tables.flag_rows
    return (
        select(current.c.week)
        .join(rows, rows.c.publication_id == current.c.source_id)
        .where(rows.c.store_id == store, rows.c.sku_id == sku)
        .order_by(current.c.week)
    )


def segments_frame(connection: Connection, last_week: str, n: int, segment: str | None) -> pd.DataFrame:
    """Theta and what goes with it, per segment, over the newest ``n`` published weeks up to ``last_week``."""
    current = live().where(tables.publications.c.week <= last_week).subquery()
    weeks = select(current.c.week).order_by(current.c.week.desc()).limit(n).scalar_subquery()
    columns = tables.segments.c
    chosen = [columns.week, columns.segment, *SERIES_COLUMNS, columns.run_id]
    query = (
        select(*chosen, current.c.id.label("publication_id"))
        .join(current, columns.run_id == current.c.run_id)
        .where(current.c.week.in_(weeks))
        .order_by(columns.week, columns.segment)
    )
    if segment is not None:
        query = query.where(columns.segment == segment)
    # A fresh column of the same name: the publication's id under the name readers know.
    shown = [*chosen, flags.c.publication_id]
    return frame_of(shown, connection.execute(query))


class LedgerReader:
    """What was run and published. ``home``: the folder that relative paths, locks and anchors are in."""

    def __init__(self, engine: Engine, home: Path | None) -> None:
        self._engine = engine
        self._places = Places(home)

    @property
    def home(self) -> Path | None:
        return self._places.home

    def current(self, week: Week) -> Publication | None:
        """What is live for the week."""
        with reading(self._engine) as connection:
            found = newest_version(connection, str(week))
        return None if found is None else publication_of(found._asdict(), self._places)

    def find_unchanged(self, week: Week, input_key: InputKey) -> Publication | None:
        """What is live for the week, if it was made from the same data, configuration and code."""
        found = self.current(week)
        return found if found is not None and found.input_key == input_key else None

    def publication(self, publication_id: int) -> Publication:
        found = self._publications(
            select(tables.publications).where(tables.publications.c.id == publication_id)
        )
        if not found:
            raise UsageError(f"there is no publication {publication_id}.")
        return found[0]

    def publications(self, week: Week | None = None) -> tuple[Publication, ...]:
        """All that was ever published, for one week or all, oldest first."""
        query = select(tables.publications).order_by(tables.publications.c.id)
        if week is not None:
            query = query.where(tables.publications.c.week == str(week))
        return self._publications(query)

    def live(self, as_of: dt.datetime | None = None) -> tuple[Publication, ...]:
        """The live publication of every week, in order of weeks: now, or at a moment in the past."""
        return self._publications(live(as_of))

    def last_published_before(self, week: Week) -> Publication | None:
        """What is live for the newest published week before this one."""
        columns = tables.publications.c
        newest = (
            select(tables.publications)
            .where(columns.week < str(week))
            .order_by(columns.week.desc(), columns.version.desc())
            .limit(1)
        )
        return next(iter(self._publications(newest)), None)

    def flags(self, publication_id: int, store: str | None = None) -> pd.DataFrame:
        """The published flags, the best to check first, with all that led to each.

        Columns of ``schema.FLAGS``, then level, theta, rank, noise, run ids, hashes. Their types are the same
        also when there are none.
        """
        source = self.publication(publication_id).source_id
        with reading(self._engine) as connection:
            return flags_frame(connection, source, store)

    def flagged_pairs(self, publication_id: int) -> pd.DataFrame:
        """week, store_id and sku_id of the published flags: a tenth of the work of reading all of each."""
        publication = self.publication(publication_id)
        with reading(self._engine) as connection:
            refuse_gaps(connection, publication.source_id)
            found = connection.execute(flagged_pairs(publication.source_id)).all()
        stores, skus = zip(*found, strict=True) if found else ((), ())
        pairs = {"store_id": list(stores), "sku_id": list(skus)}
        return pd.DataFrame({"week": [str(publication.week)] * len(found), **pairs}, dtype="str")

    def flagged_stores(self, publication_id: int) -> pd.DataFrame:
        """The stores with something to check: store_id, to_check, expected_saving, most to save first."""
        source = self.publication(publication_id).source_id
        with reading(self._engine) as connection:
            refuse_gaps(connection, source)
            found = connection.execute(flagged_stores(source)).all()
        frame = pd.DataFrame(found, columns=["store_id", "to_check", "expected_saving"])
        return frame.astype({"store_id": "str", "to_check": "int64", "expected_saving": "float64"})

    def weeks_flagged(self, store: str, sku: str) -> tuple[Week, ...]:
        """The weeks whose live list has the pair."""
        with reading(self._engine) as connection:
            found = connection.execute(weeks_flagged(store, sku)).scalars()
            return tuple(Week.parse(week) for week in found)

    def random_checks(self, publication_id: int, store: str | None = None) -> pd.DataFrame:
        """The pairs that were not flagged and drawn to be checked, by store and SKU."""
        source = self.publication(publication_id).source_id
        drawn = self.table("random_checks", publication_id=source)
        return drawn if store is None else drawn[drawn["store_id"] == store].reset_index(drop=True)

    def segments(self, run_id: str) -> pd.DataFrame:
        """What a run fitted: a row per segment, and ``pooled``."""
        columns = tables.segments.c
        with reading(self._engine) as connection:
            found = connection.execute(
                select(tables.segments).where(columns.run_id == run_id).order_by(columns.segment)
            )
            return frame_of(list(columns), found)

    def segments_series(self, last_week: Week, n: int, segment: str | None = None) -> pd.DataFrame:
        """Theta and what goes with it, by week and segment, as published now.

        The newest ``n`` published weeks up to ``last_week``, oldest first.
        """
        with reading(self._engine) as connection:
            return segments_frame(connection, str(last_week), n, segment)

    def run(self, run_id: str) -> Run:
        """A run as last recorded."""
        found = self._runs(newest_runs(tables.runs.c.run_id == run_id))
        if not found:
            known = [run.run_id for run in self.runs(limit=5)]
            raise UsageError(
                f"there is no run {run_id!r} in the ledger.",
                f"use one of {name_some(known, len(known))}." if known else "the ledger has no runs yet.",
            )
        return found[0]

    def run_history(self, run_id: str) -> tuple[Run, ...]:
        """All that was recorded of a run, oldest first: held, then published by override, say."""
        columns = tables.runs.c
        return self._runs(select(tables.runs).where(columns.run_id == run_id).order_by(columns.revision))

    def runs(
        self, week: Week | None = None, status: Status | None = None, limit: int | None = None
    ) -> tuple[Run, ...]:
        """Runs as last recorded, newest first."""
        columns = tables.runs.c
        query = newest_runs(
            *([columns.week == str(week)] if week is not None else []),
            *([columns.status == status] if status is not None else []),
        )
        return self._runs(query if limit is None else query.limit(limit))

    def champion(self) -> ConfigRole | None:
        """The configuration that weekly runs use; None before the first promotion."""
        return next(iter(reversed(self.config_roles("champion"))), None)

    def config_roles(self, role: str | None = None) -> tuple[ConfigRole, ...]:
        """Every promotion, oldest first."""
        query = select(tables.config_roles).order_by(tables.config_roles.c.id)
        if role is not None:
            query = query.where(tables.config_roles.c.role == role)
        with reading(self._engine) as connection:
            return tuple(config_role_of(row._asdict()) for row in connection.execute(query))

    def table(self, name: str, **equal: Any) -> pd.DataFrame:
        """Rows of any table as a frame of stable types, e.g. ``table("checks", week="2026-W34")``."""
        known = {**tables.metadata.tables, flags.name: flags}
        if name not in known:
            raise UsageError(f"the ledger has no table {name!r}.", f"use {', '.join(known)}.")
        table = known[name]
        asked = whole_flags().subquery() if table is flags else table
        query = select(asked).order_by(*(asked.c[column.name] for column in table.primary_key))
        for column, value in equal.items():
            query = query.where(asked.c[column] == (str(value) if isinstance(value, Week) else value))
        with reading(self._engine) as connection:
            if table is flags:
                refuse_gaps(connection, equal.get("publication_id"))
            return frame_of(list(table.columns), connection.execute(query))

    def head(self) -> Head:
        """Where the chain ends. Keep it elsewhere, and give it to ``verify`` later."""
        with reading(self._engine) as connection:
            return head_of(connection)

    def verify(self, expected: Head | None = None) -> list[Problem]:
        """Every row that was edited, inserted or deleted since it was written; empty: all is as it was."""
        # Anchors first: what others write meanwhile is then in the ledger, but not yet asked for.
        with reading(self._engine) as connection:
            ids = connection.execute(select(tables.chain_head.c.ledger_id)).scalars().all()
        anchors = [anchor for ledger_id in ids for anchor in read_anchors(self.home, ledger_id)]
        with reading(self._engine) as connection:
            return verify_ledger(connection, anchors, expected)

    def _publications(self, query: Select[Any]) -> tuple[Publication, ...]:
        with reading(self._engine) as connection:
            return tuple(publication_of(row._asdict(), self._places) for row in connection.execute(query))

    def _runs(self, query: Select[Any]) -> tuple[Run, ...]:
        with reading(self._engine) as connection:
            return tuple(run_of(row._asdict(), self._places) for row in connection.execute(query))
