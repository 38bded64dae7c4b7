"""The cache of past fits: found for the same content, never for another, and never in the way."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from support.chain_of_weeks import simulated

from ew_pipeline.backtest.evidence import WeekFit, gather
from ew_pipeline.weekly.fit_cache import FitCache, panel_key

PANEL, _ = simulated(stores=5, skus=6, weeks=30)


def make(panel) -> WeekFit:
    pairs = int(panel.observed[:, -1].sum())
    return WeekFit(*(np.arange(pairs) + k for k in (0.5, 1.5, 2.5, 3.5)))


def refuse(panel) -> WeekFit:
    raise AssertionError("it was to be found")


def same(one: WeekFit, other: WeekFit) -> None:
    for field in fields(WeekFit):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_what_was_made_once_is_found_by_another_process(tmp_path):
    made = FitCache(tmp_path).find(PANEL, make)
    same(FitCache(tmp_path).find(PANEL, refuse), made)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(
            p, units=np.where(np.arange(p.units.size).reshape(p.units.shape) == 7, 99, p.units)
        ),
        lambda p: replace(p, weeks=("2020-W01", *p.weeks[1:])),
        lambda p: replace(p, promo=np.zeros(p.units.shape, dtype=bool)),
        lambda p: replace(p, sku_ids=np.array([f"X{k}" for k in range(6)])),
    ],
    ids=["a count", "a week", "promotions", "ids"],
)
def test_other_content_has_another_key(change):
    assert panel_key(change(PANEL)) != panel_key(PANEL)


@pytest.mark.parametrize("spoil", [b"", b"PK nonsense"], ids=["empty", "not an archive"])
def test_a_file_that_cannot_be_read_is_made_again(spoil, tmp_path):
    FitCache(tmp_path).find(PANEL, make)
    (place,) = tmp_path.iterdir()
    place.write_bytes(spoil)
    same(FitCache(tmp_path).find(PANEL, make), make(PANEL))
    same(FitCache(tmp_path).find(PANEL, refuse), make(PANEL))


def test_a_folder_that_cannot_be_written_to_costs_time_only(tmp_path):
    (tmp_path / "file").write_text("in the way")
    same(FitCache(tmp_path / "file" / "fits").find(PANEL, make), make(PANEL))


def test_what_was_not_used_for_longest_makes_room(tmp_path):
    import os

    panels = [PANEL.until(t) for t in (26, 27, 28, 29)]
    size = 0
    for age, panel in zip((300, 100, 200), panels, strict=False):
        FitCache(tmp_path).find(panel, make)
        place = tmp_path / f"{panel_key(panel)}.npz"
        size = place.stat().st_size
        os.utime(place, (1e9 - age, 1e9 - age))
    FitCache(tmp_path, most_bytes=3 * size).find(panels[3], make)
    kept = {path.stem for path in tmp_path.iterdir()}
    assert kept == {panel_key(panels[k]) for k in (1, 2, 3)}


def test_the_evidence_does_not_depend_on_what_lies_further_back_than_half_a_year(tmp_path):
    units = PANEL.units.copy()
    units[PANEL.store == 0, 3:] = np.nan  # a store that closed long ago
    long = replace(PANEL, units=units)
    short, _ = long.recent(27)
    assert short.store_ids.size == long.store_ids.size - 1
    whole, recent = gather(long), gather(short, FitCache(tmp_path))
    for name in ("level", "expected", "posterior", "mean_26", "sku_move", "store_move"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(recent, name))
