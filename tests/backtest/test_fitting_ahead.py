"""All that a score fits can be fitted before it, side by side: once each, and to the same numbers."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from support.chain_of_weeks import simulated

from ew_pipeline.backtest.policies import Calibrated
from ew_pipeline.backtest.recalibrate import fit_weeks, score_week
from ew_pipeline.backtest.registry import CALIBRATED
from ew_pipeline.backtest.view import Memory, PastView, RuleLabels, TruthLabels

PANEL, _ = simulated(stores=8, skus=10, weeks=20)
T = PANEL.n_weeks - 1
POLICY = Calibrated(CALIBRATED)


class Counted:
    """Keeps no fit; says of which weeks one was asked for. The first ``together`` wait for each other."""

    def __init__(self, together: int = 1) -> None:
        self.weeks: list[str] = []
        self._free = threading.Semaphore(together)
        self._meeting = threading.Barrier(together, timeout=60.0)

    def find(self, past, make):
        self.weeks.append(past.weeks[-1])
        if self._free.acquire(blocking=False):
            self._meeting.wait()
        return make(past)


def view_of(fits: Counted) -> PastView:
    return PastView(PANEL, T, RuleLabels("pair"), Memory(fits, evidence_weeks=1))


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    return POLICY.score(PastView(PANEL, T, RuleLabels("pair"))).probability


@pytest.mark.parametrize("threads", [1, 4])
def test_every_week_is_fitted_once_and_none_by_the_score(threads, plain):
    fits = Counted()
    view = view_of(fits)
    learnt_from = POLICY.fit(view, threads)
    labelled = [PANEL.weeks[k] for k in range(5, T - 5)]
    assert learnt_from == len(labelled)
    assert sorted(fits.weeks) == [*labelled, PANEL.weeks[T]]
    # Not to the last bit: how the processor adds up a loop can depend on where in memory its arrays lie.
    np.testing.assert_allclose(POLICY.score(view).probability, plain, rtol=1e-9)
    assert len(fits.weeks) == len(labelled) + 1


def test_weeks_are_fitted_side_by_side():
    POLICY.fit(view_of(Counted(together=3)), threads=3)  # one after the other they would wait in vain


def test_a_week_without_any_labelled_one_is_fitted_too():
    fits = Counted()
    view = PastView(PANEL, 4, RuleLabels("pair"), Memory(fits, evidence_weeks=1))
    assert POLICY.fit(view, threads=2) == 0
    assert fits.weeks == [PANEL.weeks[4]]
    POLICY.score(view)
    assert fits.weeks == [PANEL.weeks[4]]


def test_the_week_against_its_past_is_fitted_where_only_the_first_week_has_labels():
    known, wrong = np.zeros_like(PANEL.observed), np.zeros_like(PANEL.observed)
    known[:, 0] = PANEL.observed[:, 0]
    wrong[::3, 0] = True
    fits = Counted()
    given = (PANEL, PANEL.weeks[T], TruthLabels(known, wrong & known), Memory(fits, evidence_weeks=1))
    assert fit_weeks(*given) == 1
    assert fits.weeks == [PANEL.weeks[T]]
    score_week(*given)
    assert fits.weeks == [PANEL.weeks[T]]
