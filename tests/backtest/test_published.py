"""Published decisions, measured by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.chain_of_weeks import shuffled_after, simulated

from ew_pipeline.backtest.policies import History, Score
from ew_pipeline.backtest.published import evaluate_published
from ew_pipeline.backtest.simple_policies import Ignore, TrailingRule
from ew_pipeline.backtest.view import RuleLabels, TruthLabels
from ew_pipeline.core.console import plain
from ew_pipeline.core.errors import DataError, UsageError

PANEL, WRONG = simulated(stores=3, skus=4, weeks=14, rate=0.0)


def decisions(flagged: list[int]) -> pd.DataFrame:
    """Every pair of the panel in shuffled order; the flagged ones by their row."""
    frame = pd.DataFrame(
        {
            "store_id": PANEL.store_ids[PANEL.store],
            "sku_id": PANEL.sku_ids[PANEL.sku],
            "segment": np.where(PANEL.sku < 2, "dry", "fresh"),
            "flagged": np.isin(np.arange(12), flagged),
            "anomaly_probability": np.where(np.isin(np.arange(12), flagged), 0.9, 0.1),
            "cost_false_alarm": 2.0,
            "cost_missed": 10.0,
        }
    )
    return frame.sample(frac=1.0, random_state=0)


def truth_with(*rows: int) -> TruthLabels:
    wrong = np.zeros_like(WRONG)
    wrong[list(rows), 8] = True
    return TruthLabels(np.ones_like(wrong), wrong)


def test_costs_are_those_of_the_decisions_taken():
    done = evaluate_published(decisions([1, 5, 6]), PANEL, PANEL.weeks[8], truth_with(1, 5, 7))
    own = done.published.decisions
    assert (done.pairs, done.anomalies, own.flagged, own.found) == (12, 3, 3, 2)
    assert own.cost.value == pytest.approx(2.0 + 10.0)  # one false alarm, one missed
    assert own.cost_ignoring.value == pytest.approx(30.0)
    assert own.saving.value == pytest.approx(18.0)
    assert (own.precision.value, own.recall.value) == pytest.approx((2 / 3, 2 / 3))
    assert own.saving.low <= 18.0 <= own.saving.high
    assert done.published.measures.auc > 0.7


def test_flagging_what_is_healthy_has_a_negative_saving():
    own = evaluate_published(decisions([0, 2]), PANEL, PANEL.weeks[8], truth_with(1)).published.decisions
    assert own.saving.value == pytest.approx(-4.0)
    assert (own.precision.value, own.recall.value) == (0.0, 0.0)


def test_policies_are_priced_with_the_costs_of_the_week_on_the_same_pairs():
    some = decisions([1]).iloc[:7]
    policies = [Ignore(), TrailingRule(), History()]
    done = evaluate_published(some, PANEL, PANEL.weeks[8], truth_with(*range(12)), policies)
    assert list(done.policies) == ["published", "ignore", "trailing", "history"]
    ignoring = done.policies["ignore"].decisions
    assert (ignoring.flagged, ignoring.saving.value, ignoring.cost.value) == (0, 0.0, 70.0)
    for one in done.policies.values():
        assert one.decisions.cost_ignoring.value == 70.0
        assert one.decisions.saving.value == pytest.approx(10.0 * one.decisions.found)
    assert set(done.seconds) == {"ignore", "trailing", "history"}


def test_scores_of_a_policy_find_their_pairs_in_any_order():
    class Oracle:
        name = "oracle"

        def score(self, view):
            return Score(np.isin(view.pairs, [1, 5, 7]).astype(float))

    some = decisions([]).iloc[:9]  # shuffled, and not all
    done = evaluate_published(some, PANEL, PANEL.weeks[8], truth_with(1, 5, 7), [Oracle()])
    own = done.policies["oracle"].decisions
    assert own.flagged == own.found == done.anomalies > 0
    assert done.policies["oracle"].measures.cost_ratio == pytest.approx(0.0, abs=1e-9)


def test_segments_are_those_that_were_fitted():
    done = evaluate_published(decisions([1]), PANEL, PANEL.weeks[8], truth_with(1, 2))
    found = {one.name: (one.pairs, one.anomaly_rate) for one in done.published.measures.segments}
    assert found == {"dry": (6, pytest.approx(1 / 6)), "fresh": (6, pytest.approx(1 / 6))}
    alone = decisions([1]).assign(segment="all")
    done = evaluate_published(alone, PANEL, PANEL.weeks[8], truth_with(1))
    assert done.published.measures.segments == ()


def test_pairs_that_are_not_in_the_sales_are_left_out():
    extra = pd.concat([decisions([1]), decisions([1]).iloc[[0]].assign(store_id="nowhere")])
    labels = TruthLabels(np.ones_like(WRONG), WRONG)
    done = evaluate_published(extra, PANEL, PANEL.weeks[8], labels)
    assert (done.pairs, done.pairs_published) == (12, 13)
    with pytest.raises(DataError, match="no published pair"):
        evaluate_published(extra.assign(store_id="nowhere"), PANEL, PANEL.weeks[8], labels)


def test_a_week_without_mature_labels_is_refused():
    with pytest.raises(DataError, match="not mature"):
        evaluate_published(decisions([1]), PANEL, PANEL.weeks[12], RuleLabels("text"))
    with pytest.raises(UsageError, match="each name once"):
        evaluate_published(decisions([1]), PANEL, PANEL.weeks[8], truth_with(1), [Ignore(), Ignore()])


def test_sales_after_the_label_s_last_week_change_nothing_not_even_the_hash():
    week, labels = PANEL.weeks[6], RuleLabels("text")
    one = evaluate_published(decisions([1]), PANEL, week, labels, [TrailingRule(), History()])
    other = evaluate_published(
        decisions([1]), shuffled_after(PANEL, 11), week, labels, [TrailingRule(), History()]
    )
    assert (one.data_hash, plain(one.policies)) == (other.data_hash, plain(other.policies))
    sooner = evaluate_published(decisions([1]), shuffled_after(PANEL, 10), week, labels)
    assert sooner.data_hash != one.data_hash


def test_the_hash_covers_outside_truth():
    one, other = (
        evaluate_published(decisions([1]), PANEL, PANEL.weeks[8], truth_with(row)).data_hash for row in (1, 2)
    )
    assert one != other
