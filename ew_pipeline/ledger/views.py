"""Rows of the ledger as the records others read."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd
from sqlalchemy import BigInteger, Boolean, Column, Double, Integer

from ew_pipeline.core.week import Week
from ew_pipeline.ledger.places import Places
from ew_pipeline.ledger.records import ConfigRole, Publication, Run
from ew_pipeline.results import Override


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
