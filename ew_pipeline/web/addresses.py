"""Addresses of the pages, written once: ids may hold slashes or umlauts, so each is percent-encoded."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import Path
from pydantic import AfterValidator

from ew_pipeline.core.week import Week


def of_week(week: Week | str) -> str:
    return f"/weeks/{week}/"


def of_stores(week: Week | str) -> str:
    return f"/weeks/{week}/stores"


def of_store(week: Week | str, store: str) -> str:
    return f"/weeks/{week}/stores/{_part(store)}"


def of_pair(week: Week | str, store: str, sku: str) -> str:
    return f"/weeks/{week}/stores/{_part(store)}/skus/{_part(sku)}"


def of_run(run_id: str) -> str:
    return f"/runs/{_part(run_id)}/"


def of_evaluation(path: str) -> str:
    """``path``: of a file below the folder of evaluations."""
    return f"/evaluations/{quote(path, safe='/')}"


def decoded(part: str) -> str:
    """One part of an address as it was meant. Routes are matched before this, so ``%2F`` is no separator."""
    return unquote(part, errors="strict")  # UnicodeDecodeError is a ValueError: the address does not exist


def _part(text: str) -> str:
    return quote(text, safe="")


Part = Annotated[str, Path(), AfterValidator(decoded)]
