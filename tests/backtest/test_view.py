"""A view holds nothing later than its week, physically, and labels only once they have matured."""

from __future__ import annotations

import numpy as np
import pytest
from support.chain_of_weeks import simulated

from ew_pipeline.backtest.view import Memory, PastView, RuleLabels, TruthLabels

PANEL, WRONG = simulated(stores=4, skus=5, weeks=20)
T = 14


def test_the_panel_of_a_view_ends_with_its_week():
    view = PastView(PANEL, T, RuleLabels("text"))
    assert view.panel.weeks == PANEL.weeks[: T + 1]
    assert view.panel.units.shape[1] == T + 1
    assert view.week == PANEL.weeks[T]


def test_a_view_holds_no_truth_of_its_week_or_later():
    view = PastView(PANEL, T, TruthLabels(np.ones_like(WRONG), WRONG))
    assert view._labels.known.shape[1] == T
    assert view._labels.anomaly.shape[1] == T
    assert list(view.mature(100)) == list(range(T))


@pytest.mark.parametrize(("rule", "last"), [("text", T - 6), ("pair", T - 6), ("code", T - 5)])
def test_labels_are_known_only_once_their_window_lies_before_the_week(rule, last):
    view = PastView(PANEL, T, RuleLabels(rule))
    assert max(view.mature(100)) == last
    assert not RuleLabels(rule).known_at(7)


def test_the_last_mature_weeks_come_first_in_line_and_in_order():
    assert list(PastView(PANEL, T, RuleLabels("text")).mature(3)) == [6, 7, 8]


def test_evidence_of_a_past_week_is_what_was_known_then():
    now, then = PastView(PANEL, T, RuleLabels("text")), PastView(PANEL, 9, RuleLabels("text"))
    np.testing.assert_array_equal(now.evidence(9).level, then.evidence().level)
    np.testing.assert_array_equal(now.evidence(9).posterior, then.evidence().posterior)


def test_memory_forgets_what_lies_too_far_back():
    memory = Memory()
    memory.keep("a", 3, "old")
    memory.keep("a", 5, "new")
    memory.forget_before(4)
    assert memory.get("a", 3, str) is None
    assert memory.get("a", 5, str) == "new"
    assert memory.get("a", 5, int) is None
