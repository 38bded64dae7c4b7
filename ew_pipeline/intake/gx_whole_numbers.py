"""``expect_column_values_to_be_whole``: the one expectation Great Expectations lacks.

Importing this module registers it; ``expectations`` does so before it reads a suite.
"""

# mypy: disable-error-code="attr-defined,misc,no-untyped-call,untyped-decorator"
from __future__ import annotations

from typing import ClassVar

import ew_pipeline.intake.gx_import  # noqa: F401

# isort: split
import numpy as np
import pandas as pd
from great_expectations.execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.expectations.metrics.map_metric_provider import (
    ColumnMapMetricProvider,
    column_condition_partial,
)


class ColumnValuesWhole(ColumnMapMetricProvider):
    """True where a number has no fraction; infinities are left to the bounds."""

    condition_metric_name = "column_values.whole"

    @column_condition_partial(engine=PandasExecutionEngine)
    def _pandas(cls, column: pd.Series[float], **kwargs: object) -> pd.Series[bool]:
        values = column.to_numpy(dtype=np.float64)
        return pd.Series(np.floor(values) == values, index=column.index)


class ExpectColumnValuesToBeWhole(ColumnMapExpectation):
    """Expect the numbers of a column to have no fraction."""

    map_metric: ClassVar[str] = "column_values.whole"
    library_metadata: ClassVar[dict[str, object]] = {"maturity": "production", "tags": [], "contributors": []}
