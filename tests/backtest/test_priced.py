"""The closed form of the cost against plain simulation, and what must hold of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.backtest.priced import (
    NOTEBOOK_COSTS,
    PAPER_COSTS,
    UniformCosts,
    cost_ratio,
    ignore_cost,
    priced_cost,
)
from ew_pipeline.core.errors import DataError, UsageError

YES, NO = np.array([True]), np.array([False])


@pytest.mark.parametrize("p", [0.0, 0.03, 0.4, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("costs", [PAPER_COSTS, NOTEBOOK_COSTS], ids=["paper", "notebook"])
def test_closed_form_matches_drawn_costs(p, costs):
    rng = np.random.default_rng(0)
    c0, c1 = rng.random(400_000) * costs.false_alarm_high, rng.random(400_000) * costs.missed_high
    flagged = p * c1 >= (1 - p) * c0
    if p == 0.0:
        flagged[:] = False
    assert priced_cost(np.array([p]), NO, costs)[0] == pytest.approx(
        np.mean(c0 * flagged), rel=0.04, abs=1e-6
    )
    assert priced_cost(np.array([p]), YES, costs)[0] == pytest.approx(
        np.mean(c1 * ~flagged), rel=0.04, abs=1e-3
    )


def test_never_flagging_is_ignore_and_always_flagging_costs_the_healthy():
    y = np.array([True, False, False, False])
    assert cost_ratio(np.zeros(4), y) == pytest.approx(1.0)
    assert cost_ratio(np.ones(4), y) == pytest.approx(3.0)
    assert ignore_cost(y).tolist() == [250.0, 0.0, 0.0, 0.0]


def test_a_perfect_hard_rule_costs_nothing():
    y = np.array([True, False])
    assert cost_ratio(y.astype(float), y) == pytest.approx(0.0, abs=1e-9)


@settings(deadline=None)
@given(st.floats(0.02, 0.98), st.floats(0.0, 1.0), st.floats(1.0, 600.0))
def test_no_probability_beats_the_true_one(true, other, high):
    costs = UniformCosts(high, 500.0)

    def expected(p: float) -> float:
        each = np.array([p])
        return true * priced_cost(each, YES, costs)[0] + (1 - true) * priced_cost(each, NO, costs)[0]

    assert expected(true) <= expected(other) + 1e-9 * high


def test_without_anomalies_the_ratio_is_not_a_number_or_infinite():
    assert np.isnan(cost_ratio(np.zeros(2), np.array([False, False])))
    assert cost_ratio(np.full(2, 0.5), np.array([False, False])) == float("inf")


def test_what_is_not_a_probability_is_refused():
    with pytest.raises(DataError):
        priced_cost(np.array([1.1]), YES)
    with pytest.raises(DataError):
        priced_cost(np.array([np.nan]), YES)
    with pytest.raises(UsageError):
        UniformCosts(0.0)
