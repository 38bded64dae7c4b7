"""Labels: known by eye, and only where the weeks around allow them."""

from __future__ import annotations

import numpy as np
import pytest

from ew_pipeline.backtest.labels import LABEL_VERSION, label_week
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.week import maturity
from ew_pipeline.intake.panel import Panel

NAN = np.nan


def panel_of(units: list[list[float]], skus: list[int] | None = None) -> Panel:
    values = np.array(units, dtype=np.float32)
    n, T = values.shape
    sku = np.array(skus if skus is not None else [0] * n, dtype=np.int32)
    return Panel(
        np.array([f"S{k}" for k in range(n)]),
        np.array([f"K{k}" for k in range(int(sku.max()) + 1)]),
        np.arange(n, dtype=np.int32),
        sku,
        tuple(f"{k:02d}" for k in range(T)),
        values,
    )


def steady(now: float, before: float = 10.0, after: float = 10.0) -> list[float]:
    return [before] * 5 + [now] + [after] * 5


@pytest.mark.parametrize(("now", "anomaly"), [(5, True), (6, False), (0, True), (40, False)])
def test_text_label_is_half_the_mean_of_the_ten_weeks_around(now, anomaly):
    labels = label_week(panel_of([steady(now)]), 5, "text")
    assert labels.known.tolist() == [True]
    assert labels.anomaly.tolist() == [anomaly]


def test_text_label_takes_both_sides_and_not_the_week_itself():
    # S = (5 * 4 + 5 * 20) / 10 = 12, so 6 is an anomaly; with the week itself S would be below 12.
    assert label_week(panel_of([steady(6, before=4, after=20)]), 5).anomaly[0]
    assert not label_week(panel_of([steady(7, before=4, after=20)]), 5).anomaly[0]


def test_code_label_has_four_weeks_each_side_and_the_week_twice():
    units = [99.0, *[10.0] * 4, 4.0, *[10.0] * 4, 99.0]
    # (8 * 10 + 2 * 4) / 10 = 8.8; 4 <= 4.4
    assert label_week(panel_of([units]), 5, "code").anomaly[0]
    # (8 * 10 + 2 * 5) / 10 = 9; 5 > 4.5, though without the week itself it would be 5 <= 5
    units[5] = 5.0
    assert not label_week(panel_of([units]), 5, "code").anomaly[0]
    assert maturity("code") == 4


def test_pair_label_takes_out_what_moved_the_sku_in_the_whole_chain():
    chain = [steady(4), steady(4), steady(4), steady(0)]
    assert label_week(panel_of(chain), 5, "text").anomaly.tolist() == [True] * 4
    # R = 12 / 40 = .3, so the threshold is 1.5
    assert label_week(panel_of(chain), 5, "pair").anomaly.tolist() == [False, False, False, True]


def test_pair_label_treats_each_sku_by_itself():
    panel = panel_of([steady(4), steady(4), steady(4)], skus=[0, 0, 1])
    assert label_week(panel, 5, "pair").anomaly.tolist() == [False] * 3
    panel = panel_of([steady(4), steady(10), steady(30)], skus=[0, 0, 1])
    assert not label_week(panel, 5, "pair").anomaly.any()


def test_no_pair_label_where_the_whole_chain_sold_nothing():
    assert not label_week(panel_of([steady(0), steady(0)]), 5, "pair").known.any()


def test_a_label_needs_enough_weeks_on_each_side():
    gaps = steady(2)
    gaps[0] = gaps[1] = gaps[2] = NAN
    assert not label_week(panel_of([gaps]), 5).known[0]
    gaps[2] = 10.0
    assert label_week(panel_of([gaps]), 5).known[0]


def test_a_label_exists_only_once_the_five_weeks_after_are_in():
    full = panel_of([steady(2)])
    assert not label_week(full.until(9), 5).known.any()
    assert label_week(full.until(10), 5).known.all()


def test_the_first_weeks_of_a_table_have_no_label():
    assert not label_week(panel_of([[10.0] * 12]), 4).known.any()
    assert label_week(panel_of([[10.0] * 12]), 5).known.all()


def test_no_label_for_a_pair_not_observed_never_sold_or_without_a_level():
    unseen, silent, launched = steady(2), [0.0] * 11, [0.0] * 6 + [9.0] * 5
    unseen[5] = NAN
    assert not label_week(panel_of([unseen, silent, launched]), 5).known.any()


def test_a_zero_of_a_pair_that_sells_is_an_anomaly():
    assert label_week(panel_of([steady(0, before=1, after=0)]), 5).anomaly[0]


def test_unknown_rules_and_minimums_are_refused():
    with pytest.raises(UsageError, match="choose one of text, pair, code"):
        label_week(panel_of([steady(2)]), 5, "texts")
    with pytest.raises(UsageError, match="from 1 to 5"):
        label_week(panel_of([steady(2)]), 5, "text", minimum=6)


def worked_panel() -> Panel:
    """Sixty pairs over thirteen weeks by a formula, with gaps, zeros and drops of every depth."""
    pair, week = np.arange(60)[:, None], np.arange(13)[None, :]
    dropped = np.where((pair + week * 7) % 4 == 0, 0.2 + 0.05 * ((pair + week) % 11), 1.0)
    units = (pair % 7 + 4) * (5 + (pair * 5 + week * 3) % 4) * dropped
    units = np.where((pair * 3 + week * 5) % 17 == 0, np.nan, np.floor(units))
    return panel_of(units.tolist(), [int(k) % 6 for k in range(60)])


@pytest.mark.parametrize(
    ("rule", "known", "anomalies"), [("text", 169, 31), ("pair", 169, 24), ("code", 283, 45)]
)
def test_a_rule_that_says_something_else_needs_a_new_version(rule, known, anomalies):
    # Fails when a rule changes: raise LABEL_VERSION, so that old evaluations stay what they are, and put the
    # new figures here together with it.
    labels = [label_week(worked_panel(), t, rule) for t in range(13)]
    assert LABEL_VERSION == "1"
    assert sum(int(one.known.sum()) for one in labels) == known
    assert sum(int(one.anomaly.sum()) for one in labels) == anomalies
