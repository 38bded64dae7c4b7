"""Measures on outcomes small enough to check by eye."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from ew_pipeline.backtest.measures import measure
from ew_pipeline.backtest.parts import Band, Outcomes, lift_in_top
from ew_pipeline.backtest.priced import COSTS
from ew_pipeline.core.console import number

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
    assert m.cost_ratio_by_week == pytest.approx((1.0, 1.0, 1.0))


def test_the_best_constant_has_no_regret_to_itself():
    m = measure(np.full(24, 0.25), np.zeros(24), OUTCOMES)
    assert m.regret_to_constant == pytest.approx(0.0)
    assert m.cost_ratio < 1.0


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
    assert lift_in_top(Y.astype(float), OUTCOMES, [1])[1] == pytest.approx(4.0)
    assert lift_in_top(-Y.astype(float), OUTCOMES, [1])[1] == 0.0
    assert lift_in_top(Y.astype(float), OUTCOMES, [4])[4] == pytest.approx(1.0)


def test_lift_falls_to_one_when_everything_is_checked():
    m = measure(Y.astype(float), Y.astype(float), OUTCOMES)
    assert list(m.lift_at) == ["1", "2", "5", "10", "20"]
    assert m.lift_at["1"] == pytest.approx(4.0)
    assert m.lift_at["5"] == m.lift_top_k == pytest.approx(1.0)


def test_segments_are_measured_by_themselves():
    split = replace(OUTCOMES, segment=np.arange(24) // 8, segment_names=("north", "south", "east"))
    p = np.where(np.arange(24) < 8, Y, ~Y).astype(float)  # right in the first week, wrong later
    found = {one.name: one for one in measure(p, p, split).segments}
    assert list(found) == ["east", "north", "south"]
    assert found["north"].cost_ratio == pytest.approx(0.0, abs=1e-9)
    assert found["south"].cost_ratio == pytest.approx(4.0)  # misses 2 and flags the 6 healthy ones
    assert (found["north"].pairs, found["north"].auc, found["south"].auc) == (8, 1.0, 0.0)
    assert measure(p, p, OUTCOMES).segments == ()


def test_each_cost_law_has_its_exact_ratio_and_the_one_asked_for_is_priced():
    p = np.where(Y, 0.7, 0.2)
    text, notebook = measure(p, p, OUTCOMES), measure(p, p, OUTCOMES, COSTS["notebook"])
    assert text.cost_ratio_exact == notebook.cost_ratio_exact
    assert text.cost_ratio == text.cost_ratio_exact["text"]
    assert notebook.cost_ratio == notebook.cost_ratio_exact["notebook"]
    # With false alarms that cheap nearly everything is flagged: 18 false alarms of 5 against 6 misses of 250.
    assert notebook.cost_ratio < 0.1 < text.cost_ratio


def test_a_single_week_is_drawn_again_by_stores():
    one = Outcomes(Y, np.zeros(24, dtype=int), np.arange(24) // 8, np.ones(24))
    p = np.where(one.store == 2, ~Y, Y).astype(float)
    m = measure(p, p, one)
    assert m.cost_ratio_interval[0] < 0.1
    assert m.cost_ratio_interval[1] > 2.0
    assert m.cost_ratio_by_week_interval == (m.cost_ratio_interval,)


def test_calibration_points_say_how_many_pairs_they_stand_for():
    m = measure(np.where(Y, 0.9, 0.3), Y.astype(float), OUTCOMES)
    assert [(c.predicted, c.realised, c.pairs) for c in m.calibration] == [
        (pytest.approx(0.3), 0.0, 18),
        (pytest.approx(0.9), 1.0, 6),
    ]


def test_a_band_without_an_end_and_a_figure_without_a_value_are_said_in_words():
    band = Band(pairs=4, anomaly_rate=0.0, cost_ratio=math.inf, auc=math.nan, low=20.0, high=math.inf)
    assert band.words == "20 or more"
    assert replace(band, high=50.0).words == "20 to 50"
    assert [number(value) for value in (band.cost_ratio, band.auc, None, 0.25)] == ["–", "–", "–", "0.250"]
