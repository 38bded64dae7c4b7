"""Weeks put together from snapshots: zeros, pairs that are not ranged and pairs that nobody can know."""

from __future__ import annotations

import numpy as np

from ew_pipeline.backtest.history import _history, _KeptWeek
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.intake.ranging import WeekRows

STORES, SKUS = np.array(["S0", "S1"]), np.array(["K0", "K1", "K2"])
NAN = np.nan


def week_of(
    sold: dict[int, int], listed: list[int] | None = None, withheld: tuple[int, ...] = ()
) -> _KeptWeek:
    """Units by key: three SKUs of S0 are 0 to 2, those of S1 are 3 to 5."""
    keys = np.array(sorted(sold), dtype=np.int64)
    rows = WeekRows(keys, np.array([sold[int(key)] for key in keys], dtype=np.int32))
    ranged = None if listed is None else np.array(listed, dtype=np.int64)
    return _KeptWeek(rows, ranged, np.array(withheld, dtype=np.int64))


def weeks_of(*weeks: _KeptWeek) -> dict[Week, _KeptWeek]:
    return {Week(2026, 10 + place): week for place, week in enumerate(weeks)}


def units(weeks: dict[Week, _KeptWeek], **config: object) -> tuple[str, np.ndarray]:
    history = _history(weeks, STORES, SKUS, RunConfig(**config))
    table = np.full((6, history.panel.n_weeks), NAN)
    table[history.panel.store * 3 + history.panel.sku] = history.panel.units
    return history.zero_rule, table


def test_without_listing_or_zeros_what_sold_lately_is_still_carried():
    weeks = weeks_of(week_of({0: 4, 3: 2}), week_of({1: 5}), week_of({3: 7, 1: 1}))
    rule, table = units(weeks, inferred_weeks=1)
    assert rule == "inferred"
    np.testing.assert_array_equal(table[0], [4, 0, NAN])  # carried for one week
    np.testing.assert_array_equal(table[3], [2, NAN, 7])  # S1 did not report in the second week


def test_a_listing_is_that_of_the_week_s_own_snapshot():
    weeks = weeks_of(week_of({0: 4, 3: 2}, [0, 1, 3]), week_of({0: 4, 3: 2}, [0, 2, 3]))
    rule, table = units(weeks)
    assert rule == "listing"
    np.testing.assert_array_equal(table[1], [0, NAN])
    np.testing.assert_array_equal(table[2], [NAN, 0])


def test_a_pair_in_quarantine_is_neither_sold_nor_zero():
    weeks = weeks_of(week_of({0: 4}, [0, 1], withheld=(1,)), week_of({0: 4}, [0, 1]))
    np.testing.assert_array_equal(units(weeks)[1][1], [NAN, 0])


def test_a_week_that_nobody_kept_is_there_and_empty():
    weeks = weeks_of(week_of({0: 4, 1: 0}), week_of({0: 3, 1: 2}))
    weeks = {Week(2026, 10): weeks[Week(2026, 10)], Week(2026, 12): weeks[Week(2026, 11)]}
    rule, table = units(weeks)
    assert rule == "explicit"
    np.testing.assert_array_equal(table[:2], [[4, NAN, 3], [0, NAN, 2]])
