"""Weeks: reading, order, and the last complete one."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import Week


@pytest.mark.parametrize(
    "text", ["2026-W34", "2026W34", " 2026-W34 ", "2026-08-17", "2026-08-22", "2026-08-17 00:00:00"]
)
def test_every_way_to_write_a_week_is_the_same_week(text):
    assert Week.parse(text) == Week(2026, 34)


def test_a_week_that_starts_on_saturday_is_the_iso_week_of_that_saturday():
    assert str(Week.parse(dt.date(2015, 3, 7))) == "2015-W10"


@pytest.mark.parametrize("text", ["2026-W54", "2026-W00", "week 34", "", "2026-13-01", "34"])
def test_what_is_not_a_week_is_refused_in_words(text):
    with pytest.raises(UsageError, match=r"not a week|there is no week"):
        Week.parse(text)


def test_a_year_of_53_weeks_has_a_week_53_and_others_do_not():
    assert Week(2026, 53).start == dt.date(2026, 12, 28)
    with pytest.raises(UsageError, match="no week 53 in 2025"):
        Week(2025, 53)


@given(st.dates(dt.date(1990, 1, 1), dt.date(2090, 1, 1)), st.integers(-300, 300))
def test_index_counts_weeks_and_shifting_back_returns(day, weeks):
    week = Week.of(day)
    assert week.start <= day < week.start + dt.timedelta(days=7)
    assert week.shift(weeks).index == week.index + weeks
    assert week.shift(weeks).shift(-weeks) == week
    assert str(week) < str(week.shift(1))
    assert week < week.shift(1)
    assert Week.parse(str(week)) == week


def test_through_includes_both_ends_across_a_year():
    assert [str(w) for w in Week(2026, 52).through(Week(2027, 1))] == ["2026-W52", "2026-W53", "2027-W01"]
    assert Week(2026, 10).through(Week(2026, 9)) == []


def test_the_last_complete_week_depends_on_the_time_zone():
    sunday_night = dt.datetime(2026, 8, 23, 23, 0, tzinfo=dt.UTC)  # Monday 01:00 in Berlin
    assert str(Week.last_complete(sunday_night, "UTC")) == "2026-W33"
    assert str(Week.last_complete(sunday_night, "Europe/Berlin")) == "2026-W34"


def test_an_unknown_time_zone_is_named():
    with pytest.raises(UsageError, match="Mars/Olympus"):
        Week.last_complete(time_zone="Mars/Olympus")
