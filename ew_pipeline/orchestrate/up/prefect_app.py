"""Prefect's server, whose scheduler works with SQLAlchemy 2.1 as it does with 2.0.

Prefect 3.8 hands whole runs to a bulk INSERT, with values under names that are no columns but computed
properties (``state``). SQLAlchemy 2.0 passes over them; 2.1 refuses the statement unless the property says
what to do with such a value, so that no run is ever scheduled. Here the properties say: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_app() -> FastAPI:
    """For ``uvicorn --factory``."""
    from prefect.server.api.server import create_app as prefect_app
    from prefect.server.database.orm_models import FlowRun, TaskRun

    for table in (FlowRun, TaskRun):
        let_bulk_inserts_pass(table)
    return prefect_app()


def let_bulk_inserts_pass(table: Any) -> None:
    """Values of computed properties are passed over; properties that know better are left alone."""
    from sqlalchemy import inspect
    from sqlalchemy.ext.hybrid import hybrid_property

    for found in inspect(table).all_orm_descriptors.values():
        if isinstance(found, hybrid_property) and getattr(found, "bulk_dml_setter", pass_over) is None:
            found.inplace.bulk_dml(pass_over)


def pass_over(cls: Any, mapping: Any, value: Any) -> None:
    """Leave the values as they are: what is no column is not inserted."""
