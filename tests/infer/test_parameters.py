"""Parameters from the panel alone: none wrong is none wrong, and a known chain is found again."""

from __future__ import annotations

import numpy as np
import pytest
from support.state_chain import healthy_chain, small_panel

from ew_pipeline.infer import parameters as fitting
from ew_pipeline.infer.follow import follow, infer
from ew_pipeline.infer.parameters import fit_parameters, hash_ids, sample_pairs
from ew_pipeline.intake.panel import panel_from_codes


def with_wrong(seed, onset=0.02, stay=0.6):
    """A chain in which records go wrong, their truth, and the sales without."""
    units, rate = healthy_chain(seed, stores=30, skus=40, weeks=18, size=15.0)
    rng = np.random.default_rng(seed + 1)
    truth = np.zeros(units.shape, dtype=bool)
    state = rng.random(units.shape[:2]) < onset / (1 - stay)
    for t in range(units.shape[2]):
        if t:
            state = np.where(state, rng.random(state.shape) < stay, rng.random(state.shape) < onset)
        truth[:, :, t] = state
    return np.where(truth, rng.poisson(0.05 * rate), units).astype(np.float32), truth


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLE", 450)


@pytest.mark.parametrize("size", [5.0, 30.0])
def test_where_nothing_is_wrong_nearly_nothing_is_flagged(size):
    units, _ = healthy_chain(21, stores=30, skus=40, weeks=18, size=size)
    panel = small_panel(units)
    fit = fit_parameters(panel)
    assert fit.none_wrong > 0.01  # of a fifth of a per cent the sample cannot be sure
    assert fit.parameters.onset < 1.5e-3
    beliefs = infer(panel, follow(panel, fit.parameters, until=16), fit.parameters)
    assert np.mean(beliefs.wrong > 0.5) <= 0.002
    assert beliefs.wrong.mean() < 0.005


def test_a_known_chain_is_found_again_and_the_chance_is_honest():
    units, truth = with_wrong(22)
    panel = small_panel(units)
    fit = fit_parameters(panel)
    assert fit.none_wrong < 1e-6
    assert fit.parameters.onset == pytest.approx(0.02, rel=0.5)
    assert fit.parameters.stay == pytest.approx(0.6, abs=0.12)
    assert fit.parameters.size == pytest.approx(15.0, rel=0.4)
    assert fit.parameters.strength == np.inf
    beliefs = infer(panel, follow(panel, fit.parameters, until=16), fit.parameters)
    wrong = truth[:, :, 17].ravel()
    assert beliefs.wrong.sum() == pytest.approx(wrong.sum(), rel=0.35)
    assert wrong[beliefs.wrong > 0.8].mean() > 0.75


def test_the_sample_is_drawn_by_ids_alone():
    units, _ = healthy_chain(23, stores=10, skus=12, weeks=6)
    panel = small_panel(units)
    followed = follow(panel, fitting.START)
    few = sample_pairs(panel, followed, None, 30)
    part = panel.take(panel.sku != 3)  # other rows, the same pairs
    again = sample_pairs(part, follow(part, fitting.START), None, 30)
    shared = {tuple(row) for row in few.units} & {tuple(row) for row in again.units}
    assert few.units.shape == (30, 6)
    assert len(shared) >= 24
    assert hash_ids(np.array(["a", "b"])).tolist() == hash_ids(np.array(["x", "a", "b"])).tolist()[1:]


def test_the_same_rows_in_another_order_are_the_same_parameters(monkeypatch):
    monkeypatch.setattr(fitting, "SAMPLE", 45)
    units, _ = with_wrong(24)
    units = units[:8, :10, :8]
    store, sku, week = (axis.ravel() for axis in np.indices(units.shape))
    found = []
    for rows in (np.arange(units.size), np.random.default_rng(0).permutation(units.size)):
        panel = panel_from_codes(
            np.char.add("S", store[rows].astype(str)),
            np.char.add("K", sku[rows].astype(str)),
            week[rows],
            units.ravel()[rows].astype(np.float64),
            tuple(str(t) for t in range(8)),
        )
        found.append(fit_parameters(panel))
    assert found[0].parameters == found[1].parameters
    assert found[0].none_wrong == found[1].none_wrong


def test_a_panel_of_one_week_has_nothing_to_learn_from():
    units, _ = healthy_chain(25, stores=4, skus=5, weeks=3)
    fit = fit_parameters(small_panel(units[:, :, :1]))
    assert fit.parameters.onset == 0.0
    assert fit.none_wrong == 1.0
