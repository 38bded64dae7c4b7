"""Published decisions, measured by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from chain_of_weeks import simulated

from ew_pipeline.errors import DataError
from ew_pipeline.evaluate.published import evaluate_published
from ew_pipeline.evaluate.view import RuleLabels, TruthLabels

PANEL, WRONG = simulated(stores=3, skus=4, weeks=14, rate=0.0)


def decisions(flagged: list[int]) -> pd.DataFrame:
    """Every pair of the panel in shuffled order; the flagged ones by their row."""
    frame = pd.DataFrame(
        {
            "store_id": PANEL.store_ids[PANEL.store],
            "sku_id": PANEL.sku_ids[PANEL.sku],
            "flagged": np.isin(np.arange(12), flagged),
            "anomaly_probability": np.where(np.isin(np.arange(12), flagged), 0.9, 0.1),
            "cost_false_alarm": 2.0,
            "cost_missed": 10.0,
        }
    )
    return frame.sample(frac=1.0, random_state=0)


def test_costs_are_those_of_the_decisions_taken():
    wrong = np.zeros_like(WRONG)
    wrong[[1, 5, 7], 8] = True
    labels = TruthLabels(np.ones_like(wrong), wrong)
    done = evaluate_published(decisions([1, 5, 6]), PANEL, PANEL.weeks[8], labels)
    assert (done.pairs, done.anomalies, done.flagged, done.flagged_anomalies) == (12, 3, 3, 2)
    assert done.cost == pytest.approx((2.0 + 10.0) / 12)  # one false alarm, one missed
    assert done.cost_of_ignoring == pytest.approx(30.0 / 12)
    assert done.measures.auc > 0.7


def test_pairs_that_are_not_in_the_sales_are_left_out():
    extra = pd.concat([decisions([1]), decisions([1]).iloc[[0]].assign(store_id="nowhere")])
    labels = TruthLabels(np.ones_like(WRONG), WRONG)
    assert evaluate_published(extra, PANEL, PANEL.weeks[8], labels).pairs == 12
    with pytest.raises(DataError, match="no published pair"):
        evaluate_published(extra.assign(store_id="nowhere"), PANEL, PANEL.weeks[8], labels)


def test_a_week_without_mature_labels_is_refused():
    with pytest.raises(DataError, match="not mature"):
        evaluate_published(decisions([1]), PANEL, PANEL.weeks[12], RuleLabels("text"))
