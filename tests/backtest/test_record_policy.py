"""The policy `record`: what it prices, when it fits, and the floor below it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.chain_of_weeks import simulated

from ew_pipeline.backtest import policies
from ew_pipeline.backtest.history import history_of, read_truth
from ew_pipeline.backtest.policies import Record, fit_week
from ew_pipeline.backtest.registry import ALWAYS, SLOW_CELLS, chosen_policies
from ew_pipeline.backtest.view import Memory, PastView, RuleLabels, TruthLabels
from ew_pipeline.infer.follow import StateParameters, follow
from ew_pipeline.infer.parameters import Fit

T = 14
PARAMETERS = StateParameters(onset=0.02, stay=0.8)


@pytest.fixture(scope="module")
def chain():
    return simulated(stores=8, skus=9, weeks=20)


@pytest.fixture
def known(monkeypatch):
    """Parameters without a search."""
    monkeypatch.setattr(policies, "fit_parameters", lambda panel: Fit(PARAMETERS, PARAMETERS, 0.0, {}, 0, 0))


@pytest.mark.usefixtures("known")
def test_a_truth_in_shares_is_answered_by_the_loss_it_asks_for(chain):
    panel, wrong = chain
    everything = np.ones_like(wrong)
    scores = {
        threshold: Record().score(PastView(panel, T, TruthLabels(everything, wrong, threshold=threshold)))
        for threshold in (None, 0.5, 0.9)
    }
    assert (scores[0.9].probability <= scores[0.5].probability).all()
    assert (scores[0.5].probability <= scores[None].probability + 1e-12).all()
    assert scores[0.9].probability.sum() < 0.9 * scores[None].probability.sum()
    np.testing.assert_array_equal(
        Record().score(PastView(panel, T, RuleLabels("text"))).probability, scores[None].probability
    )


def test_a_truth_of_yes_and_no_has_no_threshold(tmp_path):
    frame = pd.DataFrame({"store_id": "S", "sku_id": ["a", "b"], "week": "3", "units": 4.0})
    history = history_of(frame, None, "explicit", 5, "sales")
    path = str(tmp_path / "truth.parquet")
    for values, threshold in (([0, 1], None), ([0.0, 0.4], 0.3), ([1.0, 1.0], None)):
        frame.assign(label=values).to_parquet(path)
        assert read_truth(path, history, "label", 0.3).threshold == threshold


def test_parameters_are_those_of_fixed_weeks_of_the_past():
    weeks = (0, 1, 3, 5, 7, 9, 11, 12, 15, 16, 39)
    assert [fit_week(t) for t in weeks] == [0, 1, 3, 4, 6, 8, 10, 12, 12, 16, 36]
    assert all(fit_week(t) <= t for t in range(60))


@pytest.mark.usefixtures("known")
def test_one_pass_serves_all_weeks(chain, monkeypatch):
    moved = []

    def watched(panel, parameters, past=None, until=None):
        moved.append(until + 1 - (0 if past is None else past.weeks))
        return follow(panel, parameters, past, until)

    monkeypatch.setattr(policies, "follow", watched)
    memory = Memory()
    for t in range(12, 16):
        Record().score(PastView(chain[0], t, RuleLabels("text"), memory))
    assert moved == [12, 1, 1, 1]


def test_it_is_none_of_the_slow_ones_and_runs_by_its_name():
    names = [policy.name for policy in chosen_policies([], "history", SLOW_CELLS + 1)]
    assert "record" in names
    assert {policy.name for policy in chosen_policies(["record"], "ignore")} == {*ALWAYS, "record"}
