"""Measures on outcomes small enough to check by eye."""

from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.evaluate.measures import Outcomes, lift_in_top, measure

Y = np.array([True, False, False, False] * 6)
OUTCOMES = Outcomes(
    anomaly=Y,
    week=np.repeat([0, 1, 2], 8),
    store=np.tile(np.repeat([0, 1], 4), 3),
    velocity=np.tile([0.5, 3.0, 10.0, 50.0], 6),
)


def test_a_perfect_policy_costs_nothing_and_finds_everything():
    m = measure(Y.astype(float), Y.astype(float), OUTCOMES)
    assert m.cost_ratio == pytest.approx(0.0, abs=1e-9)
    assert (m.auc, m.average_precision) == (1.0, 1.0)
    assert m.tpr_at["0.01"] == pytest.approx(1.0)
    assert m.calibration_gap == pytest.approx(0.0)


def test_doing_nothing_costs_one_with_certainty():
    m = measure(np.zeros(24), np.zeros(24), OUTCOMES)
    assert m.cost_ratio == pytest.approx(1.0)
    assert m.cost_ratio_interval == pytest.approx((1.0, 1.0))
    assert m.cost_ratio_drawn == pytest.approx(1.0)
    assert m.cost_per_pair == pytest.approx(250 / 4)
    assert m.cost_ratio_by_week == pytest.approx((1.0, 1.0, 1.0))


def test_the_best_constant_has_no_regret_to_itself():
    m = measure(np.full(24, 0.25), np.zeros(24), OUTCOMES)
    assert m.regret_to_constant == pytest.approx(0.0)
    assert m.cost_ratio < 1.0


def test_drawn_costs_agree_with_the_exact_ones():
    p = np.where(Y, 0.7, 0.2)
    m = measure(p, p, OUTCOMES)
    assert m.cost_ratio_drawn == pytest.approx(m.cost_ratio, rel=0.1)
    low, high = m.cost_ratio_drawn_interval
    assert low < m.cost_ratio < high


def test_one_bad_week_widens_the_interval():
    p = np.where(OUTCOMES.week == 2, 1.0 - Y, Y).astype(float)
    low, high = measure(p, p, OUTCOMES).cost_ratio_interval
    assert low < 0.1
    assert high > 2.0


def test_bands_split_by_what_the_pair_used_to_sell():
    bands = measure(np.zeros(24), np.zeros(24), OUTCOMES).bands
    assert [(b.low, b.pairs) for b in bands] == [(0.0, 6), (1.0, 6), (5.0, 6), (20.0, 6)]
    assert [b.anomaly_rate for b in bands] == [1.0, 0.0, 0.0, 0.0]


def test_lift_counts_the_top_of_each_store_in_each_week():
    assert lift_in_top(Y.astype(float), OUTCOMES, 1) == pytest.approx(4.0)
    assert lift_in_top(-Y.astype(float), OUTCOMES, 1) == 0.0
    assert lift_in_top(Y.astype(float), OUTCOMES, 4) == pytest.approx(1.0)
