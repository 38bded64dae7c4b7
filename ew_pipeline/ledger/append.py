"""Rows that other stages hand in (checks, evaluations, drift points, alerts), made fit for the ledger."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import Table

from ew_pipeline.core.errors import UsageError, name_some
from ew_pipeline.core.provenance import canonical_json
from ew_pipeline.core.week import Week
from ew_pipeline.ledger.chain import plain
from ew_pipeline.ledger.places import moment
from ew_pipeline.ledger.tables import APPENDABLE


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
