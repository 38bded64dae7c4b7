"""Which change is called what, on estimates drawn with the errors that real fits have."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from support.drift_world import FIRST, TestWeek, estimates

from ew_pipeline.drift.verdicts import assess, event_words, look_at

BEFORE, AFTER = 16, 4
SIMULATIONS = 12


def first_events(changed: TestWeek, simulations: int = SIMULATIONS, weeks: int = AFTER):
    """The first event after the change, of every simulation; None where there is none."""
    found = []
    for seed in range(simulations):
        rows = estimates([TestWeek()] * BEFORE + [changed] * weeks, np.random.default_rng([7, seed]))
        late = [event for event in assess(rows).events if event.week >= FIRST.shift(BEFORE)]
        found.append(late[0] if late else None)
    return found


def shares(events):
    counted = Counter("stable" if event is None else event.verdict for event in events)
    return {verdict: count / len(events) for verdict, count in counted.items()}


def test_twice_as_many_wrong_records_are_seen_within_four_weeks():
    events = first_events(TestWeek(anomaly_rate=0.08), simulations=30)
    assert shares(events).get("anomaly drift", 0.0) >= 0.9
    assert {event.since for event in events if event} <= {FIRST.shift(BEFORE + k) for k in (-1, 0, 1)}


def test_a_change_of_severity_is_a_drift_of_the_anomalies():
    assert shares(first_events(TestWeek(alpha=0.4)))["anomaly drift"] >= 0.9


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(TestWeek(observed_share=0.5), id="observed share"),
        pytest.param(TestWeek(observed_share=0.7), id="observed share, a little"),
        pytest.param(TestWeek(rank=6, effective=1.9), id="rank"),
        pytest.param(TestWeek(carried_over=0.6), id="assortment"),
        pytest.param(TestWeek(expected=1.5), id="mean demand"),
        pytest.param(TestWeek(expected=0.7), id="mean demand falls"),
        # as far as theta was seen to follow: the estimates are of other pairs than before
        pytest.param(
            TestWeek(rank=6, effective=1.9, anomaly_rate=0.06), id="rank, and theta is misled by it"
        ),
        pytest.param(
            TestWeek(observed_share=0.4, anomaly_rate=0.055), id="observed share, and theta is misled"
        ),
    ],
)
def test_another_composition_is_no_drift_of_the_anomalies(changed):
    assert shares(first_events(changed)).get("composition change", 0.0) >= 0.9


@pytest.mark.parametrize(
    "weeks",
    [
        pytest.param([TestWeek(alpha=0.036)] * 20 + [TestWeek(alpha=0.055)] * 20, id="2% more sales left"),
        pytest.param(
            [TestWeek(rank=1, effective=1.0)] * 20 + [TestWeek(rank=2, effective=1.17)] * 5,
            id="a small second factor, found for a month",
        ),
        pytest.param([TestWeek()] * 20 + [TestWeek(expected=1.35)] * 2, id="two weeks of holidays"),
    ],
)
def test_what_stable_retail_does_by_itself_is_no_alarm(weeks):
    for seed in range(5):
        assert assess(estimates([*weeks, *weeks[:8]], np.random.default_rng(seed))).events == ()


def test_a_change_of_overdispersion_is_named_as_such_also_when_theta_follows():
    for changed in (
        TestWeek(size=2.5),
        TestWeek(size=2.0, anomaly_rate=0.09, alpha=0.5),
        TestWeek(size=12.0),
    ):
        assert shares(first_events(changed)).get("overdispersion change", 0.0) >= 0.9


def test_a_little_more_scatter_does_not_hide_a_drift_of_the_anomalies():
    """A plain fit takes some anomalies for scatter: twice as many anomalies, and 1/s0 from 0.20 to 0.24."""
    changed = TestWeek(anomaly_rate=0.08, size=5.0 / 1.2)
    assert shares(first_events(changed)).get("anomaly drift", 0.0) >= 0.9


def test_a_drift_far_beyond_what_the_composition_explains_is_still_called_a_drift():
    changed = TestWeek(anomaly_rate=0.12, expected=1.3)
    assert shares(first_events(changed))["anomaly drift"] >= 0.9


def test_500_stable_weeks_give_no_more_alarms_than_asked_for():
    events = assess(estimates([TestWeek()] * 500, np.random.default_rng(5))).events
    assert len(events) <= 500 / 52


def test_a_stricter_rate_is_slower_and_a_looser_one_not_blind():
    rows = estimates([TestWeek()] * BEFORE + [TestWeek(anomaly_rate=0.055)] * 8, np.random.default_rng(1))
    loose, strict = assess(rows, 4.0), assess(rows, 1e6)
    assert loose.limit < strict.limit
    assert loose.events
    assert loose.events[0].week <= strict.events[0].week


def test_alarms_of_one_change_are_one_event_with_all_that_moved():
    changed = TestWeek(expected=1.5, observed_share=0.6, rank=5, effective=2.2)
    rows = estimates([TestWeek()] * BEFORE + [changed] * 12, np.random.default_rng(2))
    (event,) = assess(rows).events
    assert {one.series for one in event.moved} >= {"demand", "observed_share", "rank", "spectrum"}


def test_the_words_say_what_changed_by_how_much_and_where_to_look():
    event = first_events(TestWeek(anomaly_rate=0.08), simulations=1)[0]
    words = event_words(event)
    assert words.startswith("anomaly drift in all since 2026-W17: records wrong (p_A) ")
    assert "stores with most flags" in look_at(event)
    moved = next(one for one in event.moved if one.series == "anomaly_rate")
    assert (moved.before, moved.after) == (pytest.approx(0.04, rel=0.15), pytest.approx(0.08, rel=0.15))


def test_weeks_in_which_theta_is_not_identified_say_nothing():
    rows = estimates([TestWeek()] * BEFORE + [TestWeek(anomaly_rate=0.3)] * AFTER, np.random.default_rng(3))
    rows.loc[rows.index >= BEFORE, "identified"] = False
    assert assess(rows).events == ()


def test_a_change_of_method_starts_the_charts_of_theta_anew():
    rows = estimates([TestWeek()] * BEFORE + [TestWeek(anomaly_rate=0.08)] * AFTER, np.random.default_rng(3))
    rows["method"] = ["a"] * BEFORE + ["b"] * AFTER
    found = assess(rows)
    assert found.events == ()
    rate = next(chart for chart in found.charts if chart.series.kind.name == "anomaly_rate")
    assert [point.state for point in rate.points[BEFORE:]] == ["learning"] * AFTER


def test_weeks_are_compared_within_their_anomaly_family():
    """Under another family p_A is another number: a switch of family is no drift, a drift within one is."""
    switching = [TestWeek(), TestWeek(anomaly_rate=0.09)] * 12
    rows = estimates(switching, np.random.default_rng(6))
    rows["anomaly"] = ["exponential", "uniform"] * 12
    assert assess(rows).events == ()
    rows = estimates([*switching, *[TestWeek(anomaly_rate=0.08)] * 3], np.random.default_rng(6))
    rows["anomaly"] = ["exponential", "uniform"] * 12 + ["exponential"] * 3
    assert [event.verdict for event in assess(rows).events] == ["anomaly drift"]


def test_more_segments_share_the_same_rate_of_false_alarms():
    rows = estimates([TestWeek()] * 12, np.random.default_rng(4))
    many = pd.concat([rows.assign(segment=f"part {k}") for k in range(20)] + [rows.assign(segment="pooled")])
    one, twenty = assess(rows), assess(many)
    assert twenty.limit > one.limit
    assert twenty.alarming == 20 * 10 + 3  # stores that reported is of the whole chain
