"""Great Expectations: the suites in ``expectations/``, a run on one frame at a time, Data Docs of all.

The pandas engine with positions, never index columns: those take seconds per million rows. The context lives
in memory, so nothing is written but the Data Docs, and nothing is printed.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.files import writing_to
from ew_pipeline.core.provenance import PACKAGE
from ew_pipeline.core.schema import TABLES

ON_FAILURE = ("reject", "quarantine")
SITE = "ew"
# Data Docs show the first few; every key is in the quarantine file.
LONG = ("unexpected_list", "unexpected_index_list", "unexpected_index_query")


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


@dataclass(frozen=True, eq=False)
class Finding:
    """An expectation that does not hold. ``positions``: the rows of the frame; None when it is all of it."""

    expectation: Expectation
    positions: NDArray[np.int64] | None


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


class Validator:
    """A Great Expectations context in memory: ``validate`` frames, then ``build_docs``."""

    def __init__(self) -> None:
        gx = load_great_expectations()
        with _quiet():
            context: Any = gx.get_context(mode="ephemeral")
            self._context = context
            context.variables.progress_bars = {"globally": False}
            for name, site in dict(context.list_data_docs_sites()).items():
                context.delete_data_docs_site(name)
                # The site it comes with has made itself a temporary folder, which nobody else would remove.
                shutil.rmtree(site["store_backend"]["base_directory"], ignore_errors=True)
            self._source = context.data_sources.add_pandas("ew")
        self._batches: dict[str, Any] = {}
        self._suites: set[str] = set()

    def validate(self, suite: Suite, frame: pd.DataFrame, label: str) -> list[Finding]:
        """Every expectation of ``suite`` that ``frame`` does not meet; ``label`` names it in Data Docs."""
        import great_expectations as gx

        with _quiet():
            # Under its full name in Data Docs even when optional columns are absent.
            made = gx.ExpectationSuite(
                name=suite.name, expectations=[line.configuration for line in suite.expectations]
            )
            if suite.name not in self._suites:
                self._context.suites.add_or_update(made)
                self._suites.add(suite.name)
            batch = self._batch(suite.name).get_batch(batch_parameters={"dataframe": frame})
            result = batch.validate(made, result_format={"result_format": "COMPLETE"})
            findings = [found for line in result.results if (found := _finding(suite, line)) is not None]
            self._keep(result, suite.name, label)
        return findings

    def build_docs(self, folder: Path) -> Path:
        """Write Data Docs of everything validated so far; returns their index.html."""
        site = {
            "class_name": "SiteBuilder",
            "show_how_to_buttons": False,
            "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "show_cta_footer": False},
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        }
        with _quiet(), writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._context.add_data_docs_site(SITE, site)
            try:
                self._context.build_data_docs(site_names=[SITE])
            finally:
                self._context.delete_data_docs_site(SITE)
        return folder / "index.html"

    def _batch(self, name: str) -> Any:
        if name not in self._batches:
            asset = self._source.add_dataframe_asset(name)
            self._batches[name] = asset.add_batch_definition_whole_dataframe(name)
        return self._batches[name]

    def _keep(self, result: Any, suite: str, label: str) -> None:
        from great_expectations.core.run_identifier import RunIdentifier
        from great_expectations.data_context.types.resource_identifiers import (
            ExpectationSuiteIdentifier,
            ValidationResultIdentifier,
        )

        for line in result.results:
            for entry in LONG:
                line.result.pop(entry, None)
        run = RunIdentifier(run_name=label, run_time=dt.datetime.now(dt.UTC))
        result.meta["run_id"] = run
        result.meta["validation_time"] = run.run_time
        named = ExpectationSuiteIdentifier(suite)
        self._context.validation_results_store.store_validation_results(
            suite_validation_result=result,
            suite_validation_result_identifier=ValidationResultIdentifier(named, run, f"{suite} {label}"),
            expectation_suite_identifier=named,
        )


def load_great_expectations() -> ModuleType:
    """Import it, with our own expectation: two seconds, which a run may spend while it waits for others."""
    with _quiet():
        from ew_pipeline.intake import gx_whole_numbers  # noqa: F401 - registers the expectation

        # isort: split
        import great_expectations as gx
        from great_expectations.execution_engine import pandas_execution_engine

    # For a fingerprint, more bytes are hashed than are checked. Snapshots have a hash of their own, so frames
    # of every size do without, as very large ones do by themselves.
    pandas_execution_engine.HASH_THRESHOLD = 0
    return gx


def _expectation(line: dict[str, Any]) -> Expectation:
    meta = line["meta"]
    if meta["on_failure"] not in ON_FAILURE:
        raise ValueError(f"on_failure is {meta['on_failure']!r}; it must be one of {', '.join(ON_FAILURE)}")
    column = line["kwargs"].get("column") if line["type"] != "expect_column_to_exist" else None
    return Expectation(line, column, str(line["description"]), str(meta["reason"]), str(meta["on_failure"]))


def _finding(suite: Suite, line: Any) -> Finding | None:
    if line.success:
        return None
    configuration = line.expectation_config
    expectation = next(
        known for known in suite.expectations
        if known.configuration["meta"] == configuration.meta and known.kind == configuration.type
    )  # fmt: skip
    if any(_raised(line.exception_info)):
        message = next(iter(_raised(line.exception_info)))
        raise EwError(f"the expectation {expectation.words!r} cannot be checked: {message}.")
    positions = line.result.get("unexpected_index_list")
    return Finding(expectation, None if positions is None else np.asarray(positions, dtype=np.int64))


def _raised(info: dict[str, Any] | None) -> Iterator[str]:
    """Exceptions, which are reported for the expectation or for each of its metrics."""
    if not info:
        return
    for entry in [info, *(value for value in info.values() if isinstance(value, dict))]:
        if entry.get("raised_exception"):
            yield str(entry.get("exception_message"))


@contextmanager
def _quiet() -> Iterator[None]:
    """Great Expectations logs and warns about itself; nobody at 6 a.m. can act on it."""
    logger = logging.getLogger("great_expectations")
    before = logger.level, logger.propagate
    # Some of its modules set a level of their own, which a level here would not stop.
    logger.setLevel(logging.CRITICAL)
    logger.propagate = False
    logger.addHandler(silence := logging.NullHandler())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.removeHandler(silence)
        logger.level, logger.propagate = before
