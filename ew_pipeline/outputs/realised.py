"""Did published probabilities mean what they said? From the ledger's evaluations, for the week's report."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from ew_pipeline.core.week import WINDOW, Week, maturity
from ew_pipeline.ledger import Ledger
from ew_pipeline.ledger.records import BASIS, PUBLISHED
from ew_pipeline.outputs.drawing import CalibrationTable

MOST_WEEKS = 13
BINS = 10  # of the kept curves, of equal width


@dataclass(frozen=True, eq=False)
class RealisedCalibration:
    """Predicted against realised, pooled over published weeks. ``words``: which weeks, by which labels."""

    table: CalibrationTable
    words: str


def realised_calibration(ledger: Ledger, week: Week) -> RealisedCalibration | None:
    """Of the last weeks whose labels were mature in ``week``, by the rule of the newest evaluation; None
    before the first. Of each week the newest publication that was evaluated counts."""
    rows = ledger.table("evaluations", basis=BASIS)
    rows = rows[rows["label_rule"].isin(list(WINDOW))]
    if rows.empty:
        return None
    rule, version = rows[["label_rule", "label_version"]].iloc[-1]
    last = week.shift(-maturity(rule))
    same = (rows["label_rule"] == rule) & (rows["label_version"] == version) & (rows["week"] <= str(last))
    chosen = rows[same].sort_values(["week", "publication_id", "id"]).drop_duplicates("week", keep="last")
    chosen = chosen.tail(MOST_WEEKS)
    if chosen.empty:
        return None
    points = [
        (point["predicted"], point["realised"], point["pairs"])
        for text in chosen["metrics"]
        for point in json.loads(text)["policies"][PUBLISHED]["calibration"]
    ]
    predicted, realised, pairs = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    place = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(place, pairs, BINS)
    used = count > 0
    table = CalibrationTable(
        np.bincount(place, pairs * predicted, BINS)[used] / count[used],
        np.bincount(place, pairs * realised, BINS)[used] / count[used],
        count[used].astype(np.int64),
    )
    weeks = chosen["week"].tolist()
    span = weeks[0] if len(weeks) == 1 else f"{weeks[0]} to {weeks[-1]}"
    return RealisedCalibration(table, f"Published in {span}, labels {rule}")
