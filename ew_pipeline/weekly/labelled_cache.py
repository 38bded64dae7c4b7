"""What a calibration learns from in a past week, kept by the sales and labels it was made from.

From one week to the next all but one of the sixteen labelled weeks are the same, and making the features of
a week takes a hundred times as long as reading them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ew_pipeline.backtest.calibration import LabelledWeek
from ew_pipeline.core.files import Arrays, KeptFiles, code_hash
from ew_pipeline.weekly.fit_cache import SOURCES as FIT_SOURCES

MOST_BYTES = 1_000_000_000
SOURCES = (
    *FIT_SOURCES,
    "backtest/labels.py",
    "backtest/features.py",
    "backtest/policies.py",
    "backtest/calibration.py",
)
Columns = Mapping[str, npt.NDArray[np.float64]]


class LabelledCache:
    """``backtest.view.LabelledWeeks`` on disk."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._files = KeptFiles(folder, most_bytes)

    def find(self, content: str, make: Callable[[], LabelledWeek]) -> LabelledWeek:
        name = hashlib.sha256(f"{code_hash(SOURCES)}\n{content}".encode()).hexdigest()
        kept = self._files.read(name)
        if kept is not None:
            try:
                return _from_arrays(kept)
            except (KeyError, ValueError):  # a file of another form
                pass
        made = make()
        self._files.write(name, _to_arrays(made))
        return made


def _to_arrays(week: LabelledWeek) -> Arrays:
    tables: dict[str, Columns] = {**week.features, "": week.rivals}  # no set of features is without a name
    arrays = {f"table {name}": np.array(list(columns.values())) for name, columns in tables.items()}
    names = {"week": week.week, "tables": {name: list(columns) for name, columns in tables.items()}}
    return {
        **arrays,
        "names": np.array(json.dumps(names)),
        "sku": week.sku,
        "anomaly": week.anomaly,
        "weight": week.weight,
    }


def _from_arrays(kept: Arrays) -> LabelledWeek:
    names = json.loads(str(kept["names"]))
    tables = {
        table: dict(zip(columns, kept[f"table {table}"], strict=True))
        for table, columns in names["tables"].items()
    }
    return LabelledWeek(
        week=names["week"],
        features={name: columns for name, columns in tables.items() if name},
        sku=kept["sku"],
        anomaly=kept["anomaly"],
        weight=kept["weight"],
        rivals=tables[""],
    )
