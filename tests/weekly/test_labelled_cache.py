"""Labelled weeks that are kept: the same calibration as without, found again, and never for other content."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.chain_of_weeks import simulated

from ew_pipeline.backtest.recalibrate import score_week
from ew_pipeline.backtest.view import Memory, PastView, RuleLabels
from ew_pipeline.weekly.labelled_cache import LabelledCache

PANEL, _ = simulated(stores=8, skus=20, weeks=50, mean=3.0)
LAST = PANEL.weeks[-1]


class Counting(LabelledCache):
    made = 0

    def find(self, content, make):
        def counted():
            self.made += 1
            return make()

        return super().find(content, counted)


def scored(panel, cache):
    return score_week(panel, panel.weeks[-1], memory=Memory(labelled=cache))


def test_a_kept_week_gives_the_calibration_that_a_fresh_one_gives(tmp_path):
    fresh = score_week(PANEL, LAST)
    assert fresh.calibration.accepted  # or nothing would depend on the features
    for _ in range(2):
        found = scored(PANEL, LabelledCache(tmp_path))
        assert found.calibration.to_json() == fresh.calibration.to_json()
        np.testing.assert_array_equal(found.probability, fresh.probability)


def test_the_next_week_makes_one_labelled_week_and_reads_the_others(tmp_path):
    first = Counting(tmp_path)
    scored(PANEL.until(PANEL.n_weeks - 2), first)
    assert first.made == 16
    later = replace(PANEL, weeks=PANEL.weeks[1:], units=PANEL.units[:, 1:])  # the window has moved on
    then = Counting(tmp_path)
    scored(later, then)
    assert then.made == 1


@pytest.mark.parametrize("spoil", ["units", "promo", "sku", "label"])
def test_other_content_has_another_hash(spoil):
    t = PANEL.n_weeks - 1
    panel = replace(PANEL, promo=np.zeros(PANEL.units.shape, dtype=bool))
    view = PastView(panel, t, RuleLabels("pair"))
    week, labels = next(iter(view.mature(1).items()))
    before = view.content(week, labels)
    pair = np.flatnonzero(panel.observed[:, week] & labels.known)[0]
    units, promo, sku_ids = panel.units.copy(), np.array(panel.promo), panel.sku_ids.copy()
    if spoil == "units":
        units[pair, week - 26] = 77
    elif spoil == "promo":
        promo[pair, week] = True
    elif spoil == "sku":
        sku_ids = np.char.add(sku_ids, "x")
    else:
        anomaly = labels.anomaly.copy()
        anomaly[pair] ^= True
        labels = replace(labels, anomaly=anomaly)
    other = PastView(replace(panel, units=units, promo=promo, sku_ids=sku_ids), t, RuleLabels("pair"))
    assert other.content(week, labels) != before


def test_what_lies_outside_its_half_year_does_not_matter():
    t = PANEL.n_weeks - 1
    week, labels = next(iter(PastView(PANEL, t, RuleLabels("pair")).mature(1).items()))
    units = PANEL.units.copy()
    units[:, week - 27] = 5
    units[:, week + 1] = 5
    views = [PastView(panel, t, RuleLabels("pair")) for panel in (PANEL, replace(PANEL, units=units))]
    assert views[0].content(week, labels) == views[1].content(week, labels)


def test_a_file_of_another_form_is_made_again(tmp_path):
    scored(PANEL, LabelledCache(tmp_path))
    for place in tmp_path.iterdir():
        np.savez(place, nothing=np.zeros(3))
    again = Counting(tmp_path)
    scored(PANEL, again)
    assert again.made == 16
