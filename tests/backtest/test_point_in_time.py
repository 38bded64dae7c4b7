"""A week run for real, with what had been learnt by then: no later sale changes a flag or a score."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from support.chain import run_plainly
from support.chain_of_weeks import as_frame, shuffled_after, simulated
from support.learnt import assert_same_learnt

from ew_pipeline.backtest.run import EvaluationRequest, run_evaluation
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.steps import Steps
from ew_pipeline.ledger import Ledger

T = 26
PANEL, _ = simulated(stores=14, skus=20, weeks=T + 6, mean=1.5)  # little is sold: labels teach something
WEEK = PANEL.weeks[T]


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """The week published from the sales as they were, and from sales whose future was thrown about."""
    found = []
    for name, panel in (("as-it-was", PANEL), ("another-future", shuffled_after(PANEL, T))):
        folder = tmp_path_factory.mktemp(name)
        as_frame(panel).to_parquet(folder / "sales.parquet", index=False)
        sales = {"sales": str(folder / "sales.parquet")}
        outcome = run_plainly(folder / "home", sales, WEEK, changes={"probability": "auto"})
        assert outcome.status == "published", outcome.result.held
        assert outcome.result.pricing.calibrated
        found.append(folder / "home")
    return found


def published(home: Path) -> tuple[Ledger, object]:
    ledger = Ledger.open(Settings(home=home).ledger_url, home=home)
    return ledger, ledger.publications()[0]


def test_the_future_does_not_change_what_is_flagged_scored_or_learnt(homes):
    (one, now), (two, then) = map(published, homes)
    assert now.data_hash == then.data_hash
    pd.testing.assert_frame_equal(pd.read_parquet(now.scores), pd.read_parquet(then.scores))
    flags, others = (ledger.flags(1)[["store_id", "sku_id", "threshold"]] for ledger in (one, two))
    pd.testing.assert_frame_equal(flags, others)
    assert len(flags) > 0
    theta, other = (
        ledger.segments(publication.run_id).drop(columns=["run_id", "seconds", "model", "calibration"])
        for ledger, publication in ((one, now), (two, then))
    )
    pd.testing.assert_frame_equal(theta, other)
    learnt, elsewhere = (
        json.loads((home / "runs" / publication.run_id / "calibration.json").read_bytes())
        for home, publication in zip(homes, (now, then), strict=True)
    )
    assert_same_learnt(learnt, elsewhere)


def test_another_future_gives_other_labels_to_the_same_flags(homes):
    found = []
    for home in homes:
        ledger, publication = published(home)
        before = ledger.table("flags"), publication
        asked = EvaluationRequest(
            WEEK, sales=str(home.parent / "sales.parquet"), label="pair", policies=("calibrated-history",)
        )
        (done,) = run_evaluation(asked, Settings(home=home), Steps(quiet=True)).weeks
        pd.testing.assert_frame_equal(ledger.table("flags"), before[0])
        assert ledger.publications() == (before[1],)
        assert ledger.verify() == []
        found.append(done.measures)
    one, other = found
    assert one.data_hash != other.data_hash
    assert one.anomalies != other.anomalies
    # The backtest's default is what the weekly run prices: the same ranking of the same pairs.
    own, policy = one.published.measures, one.policies["calibrated-history"].measures
    assert own.cost_ratio == pytest.approx(policy.cost_ratio, rel=1e-5)
