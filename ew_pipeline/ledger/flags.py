"""The flags of publications: how they are stored, and how they are read.

A national chain publishes hundreds of thousands of flags a week, each of thirty columns; most are the same in
every flag. A flag's own row holds what is its own; what it shares with the others of its publication, run and
segment stands in those tables once. Together they are what people see, and what ``row_hash`` is taken over.
The database has the same as a view ``flags``, for people's own queries: nothing here reads it, since whoever
can write to the database can put another in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Column, Connection, FromClause, MetaData, Select, Table, func, or_, select

from ew_pipeline.core.errors import DataError, name_some
from ew_pipeline.core.texts import TEXT, joined
from ew_pipeline.ledger import tables
from ew_pipeline.ledger.chain import scalar_text, scalar_texts
from ew_pipeline.ledger.failures import LedgerError
from ew_pipeline.ledger.rows import plain_column, theta_columns
from ew_pipeline.results import WeekResult

AT_ONCE = 20_000  # rows whose texts are in memory together, half a kilobyte each
FLAG_COLUMNS = (
    "store_id",
    "sku_id",
    "segment",
    "units",
    "expected_units",
    "anomaly_probability",
    "cost_false_alarm",
    "cost_missed",
    "threshold",
    "expected_saving",
    "store_rank",
    "reasons",
)
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
HOMES = (tables.flag_rows, tables.publications, tables.segments, tables.runs)  # where a column is looked for
Shared = dict[str, Any]


@dataclass(frozen=True, eq=False)
class FlagTable:
    """``shared``: values that all flags have; ``own``: a value per flag; no column is in both."""

    rows: int
    shared: Mapping[str, Any]
    own: Mapping[str, pa.Array]

    def texts(self) -> Iterator[str]:
        """The canonical JSON of each row, the same as ``chain.record_text`` gives."""
        pieces = self._pieces()
        for first in range(0, self.rows, AT_ONCE):
            rows = min(AT_ONCE, self.rows - first)
            part = [piece if isinstance(piece, str) else piece.slice(first, rows) for piece in pieces]
            fields = joined(pa.nulls(rows, TEXT).fill_null(""), *part)
            yield from joined("{", pc.utf8_slice_codeunits(fields, 0, -1), "}").to_pylist()

    def _pieces(self) -> list[pa.Array | str]:
        """What stands in a row's text, in order; each of its fields ends with a comma."""
        pieces: list[pa.Array | str] = [""]
        for name in sorted((*self.shared, *self.own)):
            key, same = f"{scalar_text(name)}:", pieces.pop()  # after text that all rows share
            if name not in self.own:
                value = self.shared[name]
                pieces.append(same if value is None else f"{same}{key}{scalar_text(value)},")
                continue
            texts = scalar_texts(self.own[name])
            if texts.null_count:  # the chain leaves out what is missing
                pieces += [same, joined(key, texts, ",").fill_null(""), ""]
            else:
                pieces += [f"{same}{key}", texts, ","]
        return pieces

    def tuples(self, names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
        """The rows as a database takes them, with their columns in this order."""
        columns = (
            self.own[name].to_pylist() if name in self.own else repeat(self.shared[name], self.rows)
            for name in names
        )
        return zip(*columns, strict=True)

    def with_column(self, name: str, values: Sequence[Any]) -> FlagTable:
        return FlagTable(self.rows, self.shared, {**self.own, name: pa.array(values)})


def flag_table(result: WeekResult, publication_id: int) -> FlagTable:
    """A row per flag, the best to check first, each with all that led to it."""
    chosen = result.flags
    _refuse_unusable(chosen)
    origin = result.provenance
    shared: dict[str, Any] = {
        "publication_id": publication_id,
        "week": str(result.week),
        "run_id": result.run_id,
        "flow_run_id": origin.flow_run_id,
        "mlflow_run_id": origin.mlflow_run_id,
        "data_hash": origin.data_hash,
        "config_hash": origin.config_hash,
        "code_version": origin.code_version,
    }
    own: dict[str, pa.Array] = {"position": pa.array(np.arange(len(chosen)))}
    own |= {name: plain_column(chosen[name]) for name in FLAG_COLUMNS}
    own["level"] = _finite(chosen["level"])
    by_segment = {
        part.name: {
            **theta_columns(part.theta),
            "rank": int(part.rank),
            "noise": part.noise,
            "anomaly": part.anomaly,
        }
        for part in result.segments
    }
    unknown = sorted(set(own["segment"].unique().to_pylist()) - set(by_segment))
    if unknown:
        raise DataError(f"flags of segments that were not fitted: {name_some(unknown, len(unknown))}.")
    if len(by_segment) == 1:
        shared |= next(iter(by_segment.values()))
    else:
        segments = own["segment"].to_pylist()
        for name in next(iter(by_segment.values()), {}):
            own[name] = pa.array([by_segment[segment][name] for segment in segments])
    same = {name: values[0].as_py() for name, values in own.items() if _all_same(values)}
    return FlagTable(len(chosen), {**shared, **same}, {name: own[name] for name in own if name not in same})


def _all_same(values: pa.Array) -> bool:
    if not len(values) or values.null_count:
        return 0 < len(values) == int(values.null_count)
    return bool(pc.all(pc.equal(values, values[0])).as_py())


def _finite(column: pd.Series[Any]) -> pa.Array:
    """Null for a number that is infinite or not there."""
    numbers = column.to_numpy(np.float64) + 0.0
    return pa.array(numbers, mask=~np.isfinite(numbers))


def _refuse_unusable(chosen: pd.DataFrame) -> None:
    """Refuse pairs that are flagged twice, or without a value."""
    twice = chosen[chosen.duplicated(["store_id", "sku_id"])]
    if len(twice):
        pairs = [f"{store} {sku}" for store, sku in twice[["store_id", "sku_id"]].to_numpy()]
        raise DataError(f"{len(pairs)} pairs are flagged twice: {name_some(pairs, len(pairs))}.")
    for name in FLAG_COLUMNS:
        column = chosen[name]
        numeric = pd.api.types.is_numeric_dtype(column)
        bad = ~np.isfinite(column.to_numpy(np.float64)) if numeric else column.isna().to_numpy()
        if bad.any():
            pairs = [f"{store} {sku}" for store, sku in chosen.loc[bad, ["store_id", "sku_id"]].to_numpy()]
            raise DataError(f"{len(pairs)} flags have no {name}: {name_some(pairs, len(pairs))}.")


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
