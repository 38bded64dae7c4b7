"""What stores found in earlier weeks, as an input of the week: labels for a calibration."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.reading import UNDECIDED
from ew_pipeline.ledger.store import newest_checks


def earlier_checks(ledger: Ledger, week: Week, config: RunConfig) -> pd.DataFrame | None:
    """The checks of the weeks before that a calibration may learn from; None unless the settings say so.

    Only checks of what a publication flagged or drew: of others nobody knows how likely they were to be made.
    A check stands for 1 / (its chance of being sent to be checked) pairs.
    """
    if config.calibration_labels != "checks" or not config.looks_back:
        return None
    window = {str(other) for other in week.shift(-config.calibration_weeks).through(week.shift(-1))}
    checks = newest_checks(ledger)
    checks = checks[
        checks["week"].isin(window)
        & (checks["outcome"] != UNDECIDED)
        & checks["publication_id"].notna()
        & checks["inclusion_probability"].notna()
    ]
    return pd.DataFrame(
        {
            "store_id": checks["store_id"],
            "sku_id": checks["sku_id"],
            "week": checks["week"],
            "wrong": (checks["outcome"] == "confirmed").to_numpy().astype(np.uint8),
            "weight": 1.0 / checks["inclusion_probability"].to_numpy(dtype=np.float64),
        }
    )
