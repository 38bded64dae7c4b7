"""The control chart: its limit by calculation, and what it does with weeks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ew_pipeline.core.errors import UsageError
from ew_pipeline.drift.chart import (
    CLIP,
    LEARNING_WEEKS,
    WEIGHT,
    baseline_of,
    control_limit,
    run_chart,
    weeks_between_alarms,
)

LIMIT = control_limit(1000.0)
numbers = st.lists(st.floats(-100, 100), min_size=1, max_size=40)


def states(points):
    return [point.state for point in points]


def chart(values, error=0.0, floor=0.01, limit=LIMIT):
    return run_chart(values, [error] * len(values), floor=floor, limit=limit)


def test_the_calculated_time_between_alarms_is_that_of_a_simulation():
    limit = control_limit(60.0)
    rng = np.random.default_rng(0)
    scores = np.clip(rng.normal(size=(4000, 400)), -CLIP, CLIP)
    statistic, times = np.zeros(4000), np.full(4000, np.nan)
    for week in range(400):
        statistic = (1 - WEIGHT) * statistic + WEIGHT * scores[:, week]
        times = np.where(np.isnan(times) & (np.abs(statistic) > limit), week + 1, times)
    assert np.isnan(times).mean() < 0.01
    assert np.nanmean(times) == pytest.approx(60.0, rel=0.06)


@pytest.mark.parametrize("weeks", [52.0, 1716.0, 1e5])
def test_the_limit_gives_back_the_weeks_it_was_asked_for(weeks):
    assert weeks_between_alarms(control_limit(weeks)) == pytest.approx(weeks, rel=1e-3)


def test_more_weeks_between_alarms_need_a_wider_limit_without_end():
    limits = [control_limit(weeks) for weeks in (2.0, 52.0, 520.0, 1e7, 1e9)]
    assert limits == sorted(limits)
    assert limits[-1] == limits[-2]  # beyond ten million weeks nothing is gained


def test_an_impossible_rate_is_refused():
    with pytest.raises(UsageError, match="weeks between false alarms is 1"):
        control_limit(1.0)


def test_the_baseline_of_estimates_that_differ_only_by_their_errors_has_no_spread_of_its_own():
    rng = np.random.default_rng(1)
    errors = np.full(400, 0.3)
    found = baseline_of(list(zip(rng.normal(2.0, errors), errors, strict=True)), floor=0.001)
    assert found.between < 0.3**2 * 0.3
    assert found.centre == pytest.approx(2.0, abs=0.05)


def test_the_baseline_finds_the_spread_between_weeks_beyond_the_errors():
    rng = np.random.default_rng(2)
    errors = np.full(2000, 0.3)
    values = rng.normal(0.0, np.hypot(0.3, 0.4), 2000)
    found = baseline_of(list(zip(values, errors, strict=True)), floor=0.001)
    assert np.sqrt(found.between) == pytest.approx(0.4, rel=0.1)


def test_the_first_weeks_give_no_alarm_however_wild():
    assert states(chart([0, 50, -80, 3, 900, 0, 1e6, 2])) == ["learning"] * LEARNING_WEEKS


def test_a_lasting_change_alarms_in_its_second_week_and_names_the_first():
    values = [0.0, 0.1, -0.1, 0.05] * 4 + [2.0] * 3
    points = chart(values)
    assert states(points)[16:] == ["suspect", "alarm", "settling"]
    assert points[17].since == 16


def test_one_wild_week_alone_is_no_alarm():
    values = [0.0, 0.1, -0.1, 0.05] * 4 + [1000.0] + [0.0, 0.1, -0.1, 0.05] * 3
    assert "alarm" not in states(chart(values))


def test_the_same_change_of_a_week_with_a_wide_interval_is_no_alarm():
    values = [0.0, 0.1, -0.1, 0.05] * 4 + [2.0] * 4
    errors = [0.02] * 16 + [2.0] * 4
    assert "alarm" not in states(run_chart(values, errors, floor=0.01, limit=LIMIT))


def test_a_change_smaller_than_the_floor_is_of_no_interest():
    values = [0.0, 1e-4, -1e-4, 0.0] * 4 + [0.01] * 12
    assert "alarm" not in states(chart(values, floor=0.01))


def test_weeks_without_a_value_are_passed_over():
    values = [0.0, 0.1, -0.1, 0.05] * 4
    gaps = [*values[:10], float("nan"), *values[10:], float("nan"), 2.0, 2.0]
    assert states(chart(gaps))[-3:] == ["missing", "suspect", "alarm"]
    assert [p for p in chart(gaps) if p.state != "missing"][:16] == list(chart(values))


def test_a_series_that_goes_back_is_held_against_its_old_baseline_again():
    usual = [0.0, 0.1, -0.1, 0.05]
    points = chart(usual * 4 + [2.0] * 3 + usual * 2 + [2.0] * 2)
    assert states(points).count("alarm") == 2
    assert points[-1].centre == pytest.approx(0.0, abs=0.1)


def test_a_new_level_becomes_the_baseline():
    usual = [0.0, 0.1, -0.1, 0.05]
    points = chart(usual * 4 + [2.0 + u for u in usual] * 5)
    assert states(points).count("alarm") == 1
    assert points[-1].centre == pytest.approx(2.0, abs=0.1)


def test_stable_series_of_any_spread_keep_the_asked_rate_over_500_weeks():
    """Twelve charts, nothing known before, limit for 52 weeks as ``assess`` sets it."""
    limit = control_limit(3.0 * 52.0 * 12)
    rng = np.random.default_rng(3)
    alarms = 0
    for number in range(12):
        error = (0.0, 0.5, 2.0)[number % 3]
        values = rng.normal(0.0, np.hypot(1.0, error), 500 + LEARNING_WEEKS)
        alarms += states(chart(values, error=error, floor=1e-6, limit=limit)).count("alarm")
    assert alarms <= 500 / 52


@settings(max_examples=40, deadline=None)
@given(numbers, st.integers(1, 40))
def test_a_later_week_never_changes_what_was_said_before(values, cut):
    assert chart(values)[:cut] == chart(values[:cut])


@settings(max_examples=40, deadline=None)
@given(numbers)
def test_rises_and_falls_are_judged_alike(values):
    up, down = chart(values), chart([-value for value in values])
    assert states(up) == states(down)
    assert [p.score for p in down] == pytest.approx(
        [None if p.score is None else -p.score for p in up], nan_ok=True
    )
