"""What readers ask the ledger."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
from sqlalchemy import Connection, Row, Select, func, select
from sqlalchemy.sql.elements import ColumnElement

from ew_pipeline.ledger import tables
from ew_pipeline.ledger.flag_view import flags, refuse_gaps, whole_flags
from ew_pipeline.ledger.places import moment
from ew_pipeline.ledger.views import frame_of

FLAG_FRAME = [flags.c[name] for name in ("store_id", "sku_id", "week", "segment")] + [
    column
    for column in flags.columns
    if column.name not in ("store_id", "sku_id", "week", "segment", "publication_id", "position")
]
SERIES_COLUMNS = [
    column for column in tables.segments.columns if column.name not in ("run_id", "segment", "week", "model")
]


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
