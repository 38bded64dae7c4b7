"""The contract on a frame at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ew_pipeline.core.errors import NAMED_OFFENDERS
from ew_pipeline.core.schema import TABLES
from ew_pipeline.intake.contract.faults import Fault, in_words, key_text
from ew_pipeline.intake.contract.suites import load_suite

if TYPE_CHECKING:
    from ew_pipeline.intake.contract.gx_run import Validator


@dataclass(frozen=True, eq=False)
class TableReport:
    """What validation found in one frame.

    Attributes
    ----------
    faults : one per kind.
    faulty : ``position`` in the frame and ``reason``, one row per faulty row and kind.
    data_docs : index.html, when a folder was given.
    """

    table: str
    rows: int
    faults: tuple[Fault, ...]
    faulty: pd.DataFrame
    data_docs: Path | None

    @property
    def rejected(self) -> bool:
        return any(fault.rejects for fault in self.faults)

    @property
    def clean(self) -> NDArray[np.bool_]:
        """True for the rows of the frame without a fault."""
        mask = np.ones(self.rows, dtype=np.bool_)
        mask[self.faulty["position"].to_numpy()] = False
        return mask

    def __str__(self) -> str:
        return (
            "; ".join(map(in_words, self.faults)) or f"{self.rows:,} rows of {self.table}: nothing is wrong"
        )


def validate_table(
    name: str,
    frame: pd.DataFrame,
    data_docs: Path | None = None,
    *,
    label: str = "table",
    validator: Validator | None = None,
) -> TableReport:
    """Hold ``frame`` against the suite ``name``; with ``data_docs`` a folder, build Data Docs there."""
    from ew_pipeline.intake.contract.gx_run import Validator

    validator = validator or Validator()
    suite = load_suite(name)
    rows = frame.reset_index(drop=True)
    missing = [column for column in TABLES[name].required if column not in rows]
    if missing:
        suite = suite.only("expect_column_to_exist")
    else:
        rows = rows.assign(copies=_copies(rows, TABLES[name].key))
        suite = suite.on(set(rows.columns))
    faults, found = [], []
    for finding in validator.validate(suite, rows, label):
        reason, rejects = finding.expectation.reason, finding.expectation.on_failure == "reject"
        if finding.positions is None:
            faults.append(Fault(name, reason, 0, (), True))
            continue
        found.append(pd.DataFrame({"position": finding.positions, "reason": reason}))
        first = rows.loc[finding.positions[:NAMED_OFFENDERS], list(TABLES[name].key)]
        examples = tuple(key_text(key) for key in first.itertuples(index=False, name=None))
        faults.append(Fault(name, reason, finding.positions.size, examples, rejects))
    nothing = pd.DataFrame({"position": np.empty(0, np.int64), "reason": np.empty(0, object)})
    return TableReport(
        table=name,
        rows=len(rows),
        faults=tuple(faults),
        faulty=pd.concat(found, ignore_index=True) if found else nothing,
        data_docs=None if data_docs is None else validator.build_docs(data_docs),
    )


def _copies(frame: pd.DataFrame, key: tuple[str, ...]) -> NDArray[np.int64]:
    """How many rows share each row's key; 1 where a part of it is missing."""
    whole = frame[list(key)].notna().all(axis=1).to_numpy()
    copies = np.ones(len(frame), dtype=np.int64)
    if whole.any():
        named = frame.loc[whole, list(key)].astype("str")
        copies[whole] = named.groupby(list(key), sort=False)[key[0]].transform("size").to_numpy()
    return copies
