"""The suites, loaded as they are written; a run never writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.provenance import PACKAGE
from ew_pipeline.core.schema import TABLES

ON_FAILURE = ("reject", "quarantine")


@dataclass(frozen=True)
class Expectation:
    """One line of a suite. ``column``: None for the table as a whole."""

    configuration: dict[str, Any]
    column: str | None
    words: str  # what should hold, a sentence
    reason: str  # what is wrong where it does not, e.g. "units below zero"
    on_failure: str

    @property
    def kind(self) -> str:
        return str(self.configuration["type"])


@dataclass(frozen=True)
class Suite:
    """The expectations of one table."""

    name: str
    expectations: tuple[Expectation, ...]

    def on(self, columns: set[str]) -> Suite:
        """Without the expectations on columns that are optional and not there."""
        required = set(TABLES[self.name].required)
        kept = tuple(
            line for line in self.expectations
            if line.column is None or line.column in columns or line.column in required
        )  # fmt: skip
        return Suite(self.name, kept)

    def only(self, kind: str) -> Suite:
        """The expectations of one kind."""
        return Suite(self.name, tuple(line for line in self.expectations if line.kind == kind))


def suites_folder() -> Path:
    """``expectations/`` at the top of a checkout; beside the code in an installed package."""
    for folder in (PACKAGE / "_expectations", PACKAGE.parent / "expectations"):
        if (folder / "sales.json").is_file():
            return folder
    raise EwError(
        f"the suites of the data contract are missing: neither {PACKAGE / '_expectations'} nor "
        f"{PACKAGE.parent / 'expectations'} holds sales.json.",
        "install ew-pipeline again.",
    )


def load_suite(name: str) -> Suite:
    """The suite of a table of ``schema.TABLES``."""
    if name not in TABLES:
        raise UsageError(f"there is no table {name} in the contract.", f"use one of {', '.join(TABLES)}.")
    path = suites_folder() / f"{name}.json"
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        lines = tuple(_expectation(line) for line in written["expectations"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EwError(f"the suite {path} cannot be used: {error}.", "restore it from the release.") from error
    return Suite(name, lines)


def _expectation(line: dict[str, Any]) -> Expectation:
    meta = line["meta"]
    if meta["on_failure"] not in ON_FAILURE:
        raise ValueError(f"on_failure is {meta['on_failure']!r}; it must be one of {', '.join(ON_FAILURE)}")
    column = line["kwargs"].get("column") if line["type"] != "expect_column_to_exist" else None
    return Expectation(line, column, str(line["description"]), str(meta["reason"]), str(meta["on_failure"]))
