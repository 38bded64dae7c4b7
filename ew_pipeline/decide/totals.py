"""What is said of all scored pairs of a week together, wherever their rows are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ew_pipeline.core.arrays import Int64

PROBABILITY_BINS = 20
SAMPLED_PAIRS = 1_000_000  # give the same picture as all of them


@dataclass(frozen=True, eq=False)
class ScoreTotals:
    """Of the scored pairs.

    Attributes
    ----------
    flagged_stores : with something to check.
    units, expected_units : sums.
    expected_saving : of the flagged pairs. expected_cost_ignoring : of doing nothing, P(wrong) x missed.
    by_probability, flagged_by_probability : pairs by what is priced, in equal steps from 0 to 1.
    sample : expected_units and units of every so many pairs.
    """

    pairs: int
    flagged: int
    flagged_stores: int
    stores: int
    skus: int
    units: float
    expected_units: float
    expected_saving: float
    expected_cost_ignoring: float
    by_probability: Int64
    flagged_by_probability: Int64
    sample: pd.DataFrame

    @classmethod
    def of(cls, scores: pd.DataFrame, week_pairs: int = 0) -> ScoreTotals:
        """Of scores as ``decide`` makes them; ``week_pairs``: of the whole week, where these are a part."""
        flagged = scores["flagged"].to_numpy(dtype=bool)
        probability = scores["anomaly_probability"].to_numpy()
        steps = np.minimum((probability * PROBABILITY_BINS).astype(np.int64), PROBABILITY_BINS - 1)
        every_so_many = max(1, -(-max(week_pairs, len(scores)) // SAMPLED_PAIRS))
        return cls(
            pairs=len(scores),
            flagged=int(np.count_nonzero(flagged)),
            flagged_stores=int(scores.loc[flagged, "store_id"].nunique()),
            stores=int(scores["store_id"].nunique()),
            skus=int(scores["sku_id"].nunique()),
            units=float(scores["units"].sum()),
            expected_units=float(scores["expected_units"].sum()),
            expected_saving=float(scores.loc[flagged, "expected_saving"].sum()),
            expected_cost_ignoring=float((scores["anomaly_probability"] * scores["cost_missed"]).sum()),
            by_probability=np.bincount(steps, minlength=PROBABILITY_BINS),
            flagged_by_probability=np.bincount(steps[flagged], minlength=PROBABILITY_BINS),
            # A copy: a view of some pairs would keep the columns of all.
            sample=scores[["expected_units", "units"]].iloc[::every_so_many].copy(),
        )

    @property
    def flagged_share(self) -> float:
        return self.flagged / self.pairs if self.pairs else 0.0

    @property
    def expected_cost(self) -> float:
        """With the checks made."""
        return self.expected_cost_ignoring - self.expected_saving
