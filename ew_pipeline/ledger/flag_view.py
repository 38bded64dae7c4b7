"""Flags with their whole story: their own rows, and what they share with others, put together.

A flag's own row holds what is its own; what it shares with the others of its publication, its run and its
segment stands in those tables once. Together they are what people see, and what ``row_hash`` is taken over.
The database has the same as a view ``flags``, for people's own queries: nothing here reads it, since whoever
can write to the database can put another in its place.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, FromClause, MetaData, Select, Table, func, or_, select

from ew_pipeline.core.errors import name_some
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.failures import LedgerError

OF_PUBLICATION = ("week", "run_id", "data_hash", "config_hash", "code_version")
OF_RUN = ("flow_run_id", "mlflow_run_id")  # the same in all revisions of a run that has a result
OF_SEGMENT = (
    "alpha",
    "alpha_low",
    "alpha_high",
    "anomaly_rate",
    "anomaly_rate_low",
    "anomaly_rate_high",
    "rank",
    "noise",
    "anomaly",
)
KEY = ("publication_id", "position")
Shared = dict[str, Any]


HOMES = (tables.flag_rows, tables.publications, tables.segments, tables.runs)  # where a column is looked for


def _home(name: str) -> Column[Any]:
    return next(home.c[name] for home in HOMES if name in home.c)


def _columns() -> list[Column[Any]]:
    """As people read them: the pair, what was seen and decided, then where it comes from."""
    own = [column.name for column in tables.flag_rows.columns]
    first = (*KEY, "store_id", "sku_id", "week", "segment")
    names = [*first, *(name for name in own if name not in (*first, "row_hash")), *OF_SEGMENT]
    return [_column(name) for name in (*names, "run_id", *OF_RUN, *OF_PUBLICATION[2:], "row_hash")]


def _column(name: str) -> Column[Any]:
    found = _home(name)
    nullable = found.nullable and name not in ("rank", "noise", "anomaly")  # NULL for "pooled" alone
    return Column(name, found.type, nullable=nullable, primary_key=name in KEY)


flags = Table("flags", MetaData(), *_columns())  # names and types, not a table to be made


def whole_flags() -> Select[Any]:
    """Every flag with its whole story, in the columns of ``flags``."""
    return select(*(_home(column.name) for column in flags.columns)).select_from(_with_shared(HOMES[0]))


def refuse_gaps(connection: Connection, publication_id: int | None = None) -> None:
    """Refuse to tell half a story: of flags, of one publication or all, that lack what they share."""
    of_rows = tables.flag_rows.c
    parts = select(of_rows.publication_id, of_rows.segment, func.count().label("flags"))
    if publication_id is not None:
        parts = parts.where(of_rows.publication_id == publication_id)
    each = parts.group_by(of_rows.publication_id, of_rows.segment).subquery()
    needed = [_home(column.name) for column in flags.columns if not column.nullable]
    gaps = [column.is_(None) for column in (*needed, tables.runs.c.run_id) if column.table is not HOMES[0]]
    query = select(each).select_from(_with_shared(each)).where(or_(*gaps)).order_by(*each.c)
    lost = connection.execute(query).all()
    if lost:
        named = [f"publication {part.publication_id}, segment {part.segment}" for part in lost]
        raise LedgerError(
            f"{sum(part.flags for part in lost)} flags ({name_some(named, len(named))}) lack what they share "
            "with others: a row of their publication, run or segment is gone or was edited.",
            "ew audit verify names it; restore the ledger from a backup.",
        )


def _with_shared(rows: FromClause) -> FromClause:
    """``rows`` beside what they share; by outer joins, so that none vanishes where that is gone."""
    _, publications, segments, runs = HOMES
    again = runs.alias("newest")
    newest = select(func.max(again.c.revision)).where(again.c.run_id == publications.c.run_id)
    return (
        rows.outerjoin(publications, publications.c.id == rows.c.publication_id)
        .outerjoin(
            segments, (segments.c.run_id == publications.c.run_id) & (segments.c.segment == rows.c.segment)
        )
        .outerjoin(
            runs, (runs.c.run_id == publications.c.run_id) & (runs.c.revision == newest.scalar_subquery())
        )
    )


class SharedColumns:
    """What flags share, by publication and segment."""

    def __init__(self, connection: Connection) -> None:
        def read(table: Table, keys: tuple[str, ...], names: tuple[str, ...]) -> dict[Any, Shared]:
            query = select(*(table.c[name] for name in (*keys, *names))).order_by(*table.primary_key)
            rows = (tuple(row) for row in connection.execute(query))
            return {row[: len(keys)]: dict(zip(names, row[len(keys) :], strict=True)) for row in rows}

        self._of_publication = read(tables.publications, ("id",), OF_PUBLICATION)
        self._of_run = read(tables.runs, ("run_id",), OF_RUN)  # by revision: the newest is kept
        self._of_segment = read(tables.segments, ("run_id", "segment"), OF_SEGMENT)
        self._known: dict[tuple[int, str], Shared | None] = {}  # asked for by every one of a million flags

    def of(self, publication_id: int, segment: str) -> Shared | None:
        """None where a row is gone that they are in."""
        key = publication_id, segment
        if key not in self._known:
            self._known[key] = self._together(*key)
        return self._known[key]

    def _together(self, publication_id: int, segment: str) -> Shared | None:
        publication = self._of_publication.get((publication_id,))
        if publication is None:
            return None
        run_id = publication["run_id"]
        run, fit = self._of_run.get((run_id,)), self._of_segment.get((run_id, segment))
        return None if run is None or fit is None else {**publication, **run, **fit}
